"""isobatch's side of the benchmark: what `isobatch train` runs, on CartPole-v1 of any backend.

N envs x 128 steps, 4 minibatches and 4 epochs unless told otherwise, two separate 64x64 tanh networks, Adam, gradients
clipped by global norm, advantages normalized per minibatch: the work that benchmarks/peers/ do, plus this package's
metrics, which nothing switches off. Compiling is timed apart. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import time

import jax
import numpy as np

import isobatch
from isobatch.training.devices import use_cores
from isobatch.training.program import EPISODES, MAX_ROWS, Supervision
from isobatch.training.programs import initial_states, program_for, stack_hypers

TIME_LIMIT = 60.0  # seconds that environments outside JAX may take for a step


def print_nothing(sentence: str) -> None:
    """What a run says when it begins is not measured."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algo", default="ppo", choices=["ppo", "ppo-ewma", "ppg", "ppg-ewma"])
    parser.add_argument("--steps", type=int, default=400_000, help="environment steps per seed to time")
    parser.add_argument("--seeds", type=int, default=1, help="seeds trained at once, sharded over the cores")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--env", default="CartPole-v1", help="gymnasium/ and envpool/ name other backends")
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--minibatches", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=4, help="of PPO")
    parser.add_argument("--actors", type=int, default=0, help="that collect while the learner learns")
    parser.add_argument("--max-lag", type=int, default=0, help="of their data, in iterations")
    args = parser.parse_args()
    config = isobatch.preset(
        args.algo,
        env=args.env,
        num_envs=args.num_envs,
        num_steps=128,
        num_minibatches=args.minibatches,
        update_epochs=1
        if args.algo.startswith("ppg")
        else args.epochs,  # PPG's own; its auxiliary phase comes with the preset
        hidden_sizes=(64, 64),
        activation="tanh",
        arrangement="dual",
        advantage_norm="minibatch",
        learning_rate=2.5e-4,
        gamma=0.99,
        gae_lambda=0.95,
        clip_eps=0.2,
        ent_coef=0.01,
        vf_coef=0.5,
        max_grad_norm=0.5,
        actors=args.actors,
        max_lag=f"{args.max_lag}i",
        total_timesteps=2**30,  # whole phases of PPG, and more than is run: the clock decides where to stop
    )
    use_cores(args.seeds, config)
    batch = config.geometry.iteration_batch
    per_row = max(1, -(-args.steps // (batch * MAX_ROWS)))
    rows = max(1, args.steps // (batch * per_row))
    steps = rows * per_row * batch
    states = initial_states(config, list(range(args.seed, args.seed + args.seeds)))
    hypers = stack_hypers([config.hypers] * states.iteration.shape[0])
    begin = time.perf_counter()
    program = program_for(config, states, hypers, per_row)
    compile_seconds = time.perf_counter() - begin

    states = program.begin(states, 0, Supervision(print_nothing, TIME_LIMIT))
    chunk = jax.block_until_ready(program(states, hypers, 0, 1))  # warm-up
    begin = time.perf_counter()
    chunk = jax.block_until_ready(program(chunk.states, hypers, per_row, rows))
    seconds = time.perf_counter() - begin
    program.end()

    last = np.asarray(chunk.table)[:, rows - max(rows // 10, 1) : rows].sum((0, 1))
    count, return_sum = (last[program.names.index(name)] for name in EPISODES[:2])
    print(
        json.dumps(
            {
                "library": f"isobatch {args.algo}",
                "version": importlib.metadata.version("isobatch"),
                "steps": steps,
                "seeds": args.seeds,
                "seconds": seconds,
                "compile_seconds": compile_seconds,
                "steps_per_second": args.seeds * steps / seconds,
                "final_return": float(return_sum / count) if count else None,
            }
        )
    )


if __name__ == "__main__":
    main()
