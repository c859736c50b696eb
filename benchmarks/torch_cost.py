"""What the averaged policy costs in Stable-Baselines3: PPOEWMA against PPO, side by side.

    python benchmarks/torch_cost.py

Both learn on CartPole-v1 with the zoo's sizes and with SB3's default ones, in turns, one process and one thread; the
figure is the median over turns of the ratio of their processor times, whole and of `train` alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from isobatch.torch import PPOEWMA

SIZES = {
    "zoo, CartPole: 8 x 32, minibatches of 256, 20 epochs": (8, dict(n_steps=32, batch_size=256, n_epochs=20)),
    "zoo, LunarLander: 16 x 1,024, minibatches of 64, 4 epochs": (16, dict(n_steps=1024, batch_size=64, n_epochs=4)),
    "SB3's defaults: 1 x 2,048, minibatches of 64, 10 epochs": (1, {}),
}


class Timed:
    """A model, and the processor time of its iterations and of `train` in them."""

    def __init__(self, kind: type[PPO], env: str, n_envs: int, settings: dict[str, int]) -> None:
        self.model = kind("MlpPolicy", make_vec_env(env, n_envs, seed=0), seed=0, device="cpu", **settings)
        self.iteration = n_envs * self.model.n_steps
        self.learning = 0.0
        train = self.model.train

        def timed() -> None:
            begin = time.process_time()
            train()
            self.learning += time.process_time() - begin

        self.model.train = timed

    def run(self, iterations: int) -> tuple[float, float]:
        self.learning, begin = 0.0, time.process_time()
        self.model.learn(iterations * self.iteration, reset_num_timesteps=False)
        return time.process_time() - begin, self.learning


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--steps", type=int, default=16_384, help="environment steps of a turn")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"load before: {os.getloadavg()[0]:.1f}")
    for title, (n_envs, settings) in SIZES.items():
        pair = [Timed(kind, args.env, n_envs, settings) for kind in (PPO, PPOEWMA)]
        iterations = max(1, args.steps // pair[0].iteration)
        for one in pair:
            one.run(1)
        ratios = []
        for turn in range(args.turns):
            order = pair if turn % 2 else pair[::-1]
            taken = {one.model.__class__: one.run(iterations) for one in order}
            ratios.append([taken[PPOEWMA][i] / taken[PPO][i] for i in (0, 1)])
        whole, train = (statistics.median(column) for column in zip(*ratios, strict=True))
        low, high = (min(row[0] for row in ratios), max(row[0] for row in ratios))
        print(f"{title}: {whole:.3f} x PPO's time in all ({low:.3f} to {high:.3f}), {train:.3f} x in train")
        print(json.dumps({"sizes": title, "env": args.env, "whole": whole, "train": train, "turns": args.turns}))
    print(f"load after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
