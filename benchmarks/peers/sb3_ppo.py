"""Stable-Baselines3's side of the benchmark: PPO on CartPole-v1. Run with the peers' Python.

The work is that of benchmarks/ours.py: N envs x 128 steps, 4 minibatches and 4 epochs unless told otherwise, two
separate 64x64 tanh networks, Adam, gradients clipped by global norm. No evaluation, no logging, no progress bar.
Environments are in this process (DummyVecEnv) or in one each (SubprocVecEnv). Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import time

import gymnasium
import numpy as np
import stable_baselines3
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

NUM_STEPS = 128
VECTORS = {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}


def make_env() -> gymnasium.Env:
    # The environment checker is for debugging and costs time; Monitor counts returns, as every side does.
    return Monitor(gymnasium.make("CartPole-v1", disable_env_checker=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=51_200, help="environment steps to time")
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--minibatches", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--vectorization", choices=list(VECTORS), default="dummy")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--threads", type=int, default=1, help="torch threads; 1 is the fastest for networks this small"
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    batch = args.num_envs * NUM_STEPS
    model = PPO(
        "MlpPolicy",
        VECTORS[args.vectorization]([make_env] * args.num_envs),
        learning_rate=2.5e-4,
        n_steps=NUM_STEPS,
        batch_size=batch // args.minibatches,
        n_epochs=args.epochs,
        gamma=0.99,
        gae_lambda=0.95,
        clip_range=0.2,
        ent_coef=0.01,
        vf_coef=0.5,
        max_grad_norm=0.5,
        policy_kwargs=dict(net_arch=dict(pi=[64, 64], vf=[64, 64]), activation_fn=torch.nn.Tanh),
        device="cpu",
        seed=args.seed,
    )
    steps = max(args.steps // batch, 1) * batch
    begin = time.perf_counter()
    model.learn(batch)  # nothing is compiled: this is what the first iteration costs, set-up included
    warm_up = time.perf_counter() - begin

    begin = time.perf_counter()
    model.learn(steps, reset_num_timesteps=False)
    seconds = time.perf_counter() - begin
    returns = [episode["r"] for episode in model.ep_info_buffer or []]
    print(
        json.dumps(
            {
                "library": "stable-baselines3",
                "version": stable_baselines3.__version__,
                "steps": steps,
                "seeds": 1,
                "seconds": seconds,
                "compile_seconds": warm_up,
                "steps_per_second": steps / seconds,
                "final_return": float(np.mean(returns)) if returns else None,
            }
        )
    )


if __name__ == "__main__":
    main()
