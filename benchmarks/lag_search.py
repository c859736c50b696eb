"""Which settings learn as well from data that is two iterations old as from fresh data? A small search.

    python benchmarks/lag_search.py [--seeds 8] [--lag 2]

The runs of `benchmarks/asynchrony.py returns`, shorter, with each of `SETTINGS`: every one of them by turns and with a
queue that holds rollouts back by `--lag` iterations, which shows what actors of the same lag do
(docs/results/asynchrony.md) and, unlike them, does not depend on time. CartPole is gymnax's and LunarLander EnvPool's,
which are the same tasks and sooner done. Settings of equal shape are lanes of one program. Writes
benchmarks/results/lag-search.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isobatch.formatting import with_interval
from isobatch.settings.config import Config
from isobatch.settings.presets import preset
from isobatch.statistics.aggregates import contrast
from isobatch.studies.grid import Cell
from isobatch.studies.lanes import train_cells
from isobatch.training.metrics import RETURN

RESULT = Path(__file__).parent / "results" / "lag-search.md"


class Task(NamedTuple):
    settings: dict[str, Any]
    steps: int
    rate: float  # of `benchmarks/asynchrony.py`


TASKS = {
    "CartPole, 64 x 128": Task(dict(env="CartPole-v1", num_envs=64, num_steps=128, num_minibatches=4), 300_000, 2.5e-3),
    "LunarLander, 64 x 32": Task(
        dict(env="envpool/LunarLander-v3", num_envs=64, num_steps=32, num_minibatches=16), 100_000, 3e-4
    ),
}
DECOUPLED = dict(proximal_policy="recent")
EWMA = dict(proximal_policy="ewma")
SETTINGS: dict[str, dict[str, Any]] = {  # `rate` multiplies the learning rate
    "PPO": {},
    "PPO, clip_eps 0.4": dict(clip_eps=0.4),
    "PPO, rate x 1/2": dict(rate=0.5),
    "PPO, rate x 2": dict(rate=2.0),
    "decoupled": DECOUPLED,
    "decoupled, importance_cap 2": DECOUPLED | dict(importance_cap=2.0),
    "decoupled, rate x 1/2": DECOUPLED | dict(rate=0.5),
    "decoupled, rate x 2": DECOUPLED | dict(rate=2.0),
    "ewma": EWMA,
    "ewma, center of 64 steps": EWMA | dict(beta_prox=64 / 65),
    "loglinear-age": dict(proximal_policy="loglinear-age"),
    "decoupled, 1 epoch, rate x 2": DECOUPLED | dict(update_epochs=1, rate=2.0),
    "decoupled, 1 epoch, rate x 4": DECOUPLED | dict(update_epochs=1, rate=4.0),
    "ewma, 1 epoch, rate x 4": EWMA | dict(update_epochs=1, rate=4.0),
}
ON_FRESH_DATA = {"recent": "behavior", "loglinear-age": "behavior"}  # proximal policies that are then the same


def config_of(task: Task, settings: dict[str, Any], lag: int) -> Config:
    """By turns, or held back: as many updates, which begin when the queue is full."""
    given = dict(settings)
    rate = given.pop("rate", 1.0) * task.rate
    if not lag and given.get("proximal_policy") in ON_FRESH_DATA:
        given["proximal_policy"] = ON_FRESH_DATA[given["proximal_policy"]]
    batch = task.settings["num_envs"] * task.settings["num_steps"]
    late = dict(staleness=lag, total_timesteps=task.steps + lag * batch)
    return preset("ppo", **task.settings, **late, learning_rate=rate, **given)


def scores_of(task: Task, lag: int, seeds: list[int]) -> dict[Config, tuple[np.ndarray, float]]:
    """Mean return over the run of each seed, and mean KL from the policy that collected."""
    groups: dict[Config, list[Config]] = {}
    for settings in SETTINGS.values():
        config = config_of(task, settings, lag)
        group = groups.setdefault(config.static, [])
        if config not in group:
            group.append(config)
    found = {}
    for group in groups.values():
        for config, outcome in zip(group, train_cells([Cell(one, {}) for one in group], seeds), strict=True):
            table = outcome.table
            means = [np.nanmean(table[RETURN][table["seed"] == seed]) for seed in seeds]
            found[config] = np.array(means), float(np.nanmean(table["losses/approx_kl"]))
            print(f"{config.env}, lag {lag}: {np.mean(means):.1f}", file=sys.stderr, flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--lag", type=int, default=2, help="in iterations")
    args = parser.parse_args()
    seeds = list(range(args.seeds))
    text = [
        f"`python {' '.join(['benchmarks/lag_search.py', *sys.argv[1:]])}`",
        "",
        f"Mean return over the run, {args.seeds} seeds, with 95 % intervals: by turns, and from data held back by "
        f"{args.lag} iterations. KL from the policy that collected the data, mean over the run.",
    ]
    for name, task in TASKS.items():
        fresh, late = (scores_of(task, lag, seeds) for lag in (0, args.lag))
        text += [
            "",
            f"| {name} | by turns | lag {args.lag} | difference | KL by turns | KL |",
            "|---|---|---|---|---|---|",
        ]
        for label, settings in SETTINGS.items():
            (turns, kl_turns), (held, kl) = (
                scores[config_of(task, settings, lag)] for scores, lag in ((fresh, 0), (late, args.lag))
            )
            means = [
                with_interval(contrast(terms)[0]) for terms in ([(1, turns)], [(1, held)], [(1, held), (-1, turns)])
            ]
            text.append(f"| {label} | {' | '.join(means)} | {kl_turns:.2g} | {kl:.2g} |")
    RESULT.write_text("\n".join(text) + "\n")
    print(RESULT.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
