"""What EWMA costs: an algorithm with and without it, in one process, chunk by chunk in turn.

    python benchmarks/ewma_cost.py [--algo ppo ppg] [--chunks 40]

A slow spell of the machine hits both sides of a pair of neighboring chunks; the median of their ratios is compared.
CartPole-v1, 8 environments x 128 steps, two 64x64 networks, one seed. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import jax

import isobatch
from isobatch.training.devices import use_cores
from isobatch.training.program import MAX_ROWS
from isobatch.training.programs import initial_states, program_for, stack_hypers

TARGETS = {"ppo": 0.12, "ppg": 0.03}  # the time that the -ewma variant may take beyond the plain one


class Side:
    """A compiled program and the state it goes on from."""

    def __init__(self, algo: str) -> None:
        self.config = isobatch.preset(algo, "CartPole-v1", num_envs=8, num_steps=128, total_timesteps=2**30)
        self.states, self.hypers = initial_states(self.config, [0]), stack_hypers([self.config.hypers])
        self.per_row = self.config.policy_iterations_per_phase or 8  # whole phases
        self.program = program_for(self.config, self.states, self.hypers, self.per_row)
        self.iteration = 0

    def seconds(self, rows: int) -> float:
        """Advance by so many rows."""
        begin = time.perf_counter()
        chunk: Any = jax.block_until_ready(self.program(self.states, self.hypers, self.iteration, rows))
        self.states, self.iteration = chunk.states, self.iteration + rows * self.per_row
        return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algo", nargs="+", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("--chunks", type=int, default=40, help="pairs of neighboring chunks")
    args = parser.parse_args()
    use_cores(1)
    print(json.dumps({"costs": [cost(algo, args.chunks) for algo in args.algo]}))


def cost(algo: str, chunks: int) -> dict[str, Any]:
    """The time of the averaged variant beyond the plain one."""
    sides = Side(algo), Side(f"{algo}-ewma")
    rows = min(MAX_ROWS, max(1, int(0.4 / max(side.seconds(8) / 8 for side in sides for _ in range(2)))))
    ratios = []
    for pair in range(chunks):
        first, second = sides if pair % 2 == 0 else sides[::-1]
        taken = {first: first.seconds(rows), second: second.seconds(rows)}
        ratios.append(taken[sides[1]] / taken[sides[0]] - 1)
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {
        "what": f"{algo}-ewma, time beyond {algo}",
        "against": f"isobatch {algo}",
        "measured": f"{middle:+.1%} ({low:+.1%} to {high:+.1%})",
        "target": f"at most {TARGETS[algo]:+.0%}",
        "met": middle <= TARGETS[algo],
    }


if __name__ == "__main__":
    main()
