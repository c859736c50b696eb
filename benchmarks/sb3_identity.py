"""How often PPO and PPOEWMA reach the return that a test of Stable-Baselines3 asks of one seed.

    python benchmarks/sb3_identity.py [--seeds 16]

Its `test_discrete` learns for 1,200 steps to repeat four bits, and wants a return of 90 with seed 3.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.envs import IdentityEnvMultiBinary
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv

from isobatch.torch import PPOEWMA

STEPS, WANTED, TESTED_SEED = 1200, 90, 3


def score(kind: type[PPO], seed: int) -> float:
    envs = DummyVecEnv([lambda: IdentityEnvMultiBinary(4)])
    settings = dict(gamma=0.4, learning_rate=0.002, n_epochs=4, n_steps=256)
    model = kind("MlpPolicy", envs, seed=seed, device="cpu", **settings).learn(STEPS)
    return float(evaluate_policy(model, envs, n_eval_episodes=20, warn=False)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=16)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for kind in (PPO, PPOEWMA):
        scores = np.array([score(kind, seed) for seed in range(args.seeds)])
        reached = f"{(scores >= WANTED).sum()} of {args.seeds} reach {WANTED}"
        print(f"{kind.__name__}: mean {scores.mean():.1f}, {reached}; seed {TESTED_SEED}: {scores[TESTED_SEED]:.0f}")


if __name__ == "__main__":
    main()
