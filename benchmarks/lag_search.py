"""Which settings learn as well from data that is two iterations old as from fresh data? A small search.

    python benchmarks/lag_search.py [--only "PPO" "decoupled"] [--lag 2]

The runs of `benchmarks/asynchrony.py returns`, shorter, with each of `SETTINGS`: every one of them by turns and with a
queue that holds rollouts back by `--lag` iterations, which shows what actors of the same lag do
(docs/results/asynchrony.md) and, unlike them, does not depend on time. CartPole is gymnax's and LunarLander EnvPool's,
which are the same tasks and sooner done. About 20 minutes on two cores; what is done is kept in
benchmarks/results/lag-search.jsonl and not done again. Writes benchmarks/results/lag-search.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isobatch.formatting import with_interval
from isobatch.settings.config import Config
from isobatch.settings.presets import preset
from isobatch.statistics.aggregates import contrast
from isobatch.studies.grid import Cell, digest
from isobatch.studies.lanes import train_cells
from isobatch.training.metrics import RETURN

RESULTS = Path(__file__).parent / "results"
KEPT, TEXT = RESULTS / "lag-search.jsonl", RESULTS / "lag-search.md"


class Task(NamedTuple):
    settings: dict[str, Any]
    rate: float  # of `benchmarks/asynchrony.py`
    steps: int
    seeds: int


TASKS = {
    "CartPole, 64 x 128": Task(
        dict(env="CartPole-v1", num_envs=64, num_steps=128, num_minibatches=4), 2.5e-3, 300_000, 8
    ),
    # A quarter of the batch, by the rules: what counts is how far the policy moves while data waits.
    "CartPole, 64 x 32": Task(
        dict(env="CartPole-v1", num_envs=64, num_steps=32, num_minibatches=4), 1.25e-3, 300_000, 8
    ),
    "LunarLander, 64 x 32": Task(
        dict(env="envpool/LunarLander-v3", num_envs=64, num_steps=32, num_minibatches=16), 3e-4, 100_000, 8
    ),
}
DECOUPLED, EWMA, BY_AGE = (dict(proximal_policy=name) for name in ("recent", "ewma", "loglinear-age"))
SETTINGS: dict[str, dict[str, Any]] = {  # `rate` multiplies the learning rate
    "PPO": {},
    "PPO, rate x 1/2": dict(rate=0.5),
    "PPO, rate x 2": dict(rate=2.0),
    "PPO, clip_eps 0.4": dict(clip_eps=0.4),
    "decoupled": DECOUPLED,
    "decoupled, rate x 1/2": DECOUPLED | dict(rate=0.5),
    "decoupled, target_kl 0.01": DECOUPLED | dict(target_kl=0.01),
    "ewma": EWMA,
    "ewma, center of 64 steps": EWMA | dict(beta_prox=64 / 65),
    "loglinear-age": BY_AGE,
    "loglinear-age, rate x 1/2": BY_AGE | dict(rate=0.5),
    "decoupled, 1 epoch, rate x 2": DECOUPLED | dict(update_epochs=1, rate=2.0),
    "ewma, 1 epoch, rate x 2": EWMA | dict(update_epochs=1, rate=2.0),
}
SAME_ON_FRESH_DATA = ("recent", "loglinear-age")  # as the behavior policy


class Score(NamedTuple):
    """Mean return over the run of each seed, and mean KL from the policy that collected."""

    returns: list[float]
    kl: float


def config_of(task: Task, settings: dict[str, Any], lag: int) -> Config:
    """By turns, or held back: as many updates, which begin when the queue is full."""
    given = dict(settings)
    rate = given.pop("rate", 1.0) * task.rate
    if not lag and given.get("proximal_policy") in SAME_ON_FRESH_DATA:
        given["proximal_policy"] = "behavior"
    batch = task.settings["num_envs"] * task.settings["num_steps"]
    late = dict(staleness=lag, total_timesteps=task.steps + lag * batch)
    return preset("ppo", **task.settings, **late, learning_rate=rate, **given)


def key_of(task: Task, config: Config) -> str:
    return digest({"seeds": task.seeds, **config.to_dict()})


def train_missing(task: Task, configs: list[Config], scores: dict[str, Score]) -> None:
    """Settings of equal shape are lanes of one program."""
    groups: dict[Config, dict[str, Config]] = {}
    for config in configs:
        if key_of(task, config) not in scores:
            groups.setdefault(config.static, {})[key_of(task, config)] = config
    seeds = list(range(task.seeds))
    for group in groups.values():
        outcomes = train_cells([Cell(config, {}) for config in group.values()], seeds)
        for key, outcome in zip(group, outcomes, strict=True):
            table = outcome.table
            returns = [float(np.nanmean(table[RETURN][table["seed"] == seed])) for seed in seeds]
            scores[key] = Score(returns, float(np.nanmean(table["losses/approx_kl"])))
            with KEPT.open("a") as file:
                file.write(json.dumps({"config": key, **scores[key]._asdict()}) + "\n")


def kept_scores() -> dict[str, Score]:
    rows = [json.loads(line) for line in KEPT.read_text().splitlines()] if KEPT.exists() else []
    return {row.pop("config"): Score(**row) for row in rows}


def report(scores: dict[str, Score], lag: int) -> str:
    """Of what is done."""
    text = [
        f"`python {' '.join(['benchmarks/lag_search.py', *sys.argv[1:]])}`",
        "",
        "Mean return over the run with 95 % intervals, by turns and from data that a queue held back by "
        f"{lag} iterations; KL from the policy that collected the data, mean over the run.",
    ]
    for name, task in TASKS.items():
        size = f"{name}, {task.steps:,} steps, {task.seeds} seeds"
        text += ["", f"| {size} | by turns | lag {lag} | difference | KL by turns | KL |", "|---|---|---|---|---|---|"]
        for label, settings in SETTINGS.items():
            pair = [scores.get(key_of(task, config_of(task, settings, behind))) for behind in (0, lag)]
            if (turns := pair[0]) is None or (held := pair[1]) is None:
                continue
            fresh, late = np.array(turns.returns), np.array(held.returns)
            terms = ([(1, fresh)], [(1, late)], [(1, late), (-1, fresh)])
            means = " | ".join(with_interval(contrast(each)[0]) for each in terms)
            text.append(f"| {label} | {means} | {turns.kl:.2g} | {held.kl:.2g} |")
    return "\n".join(text) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--lag", type=int, default=2, help="in iterations")
    args = parser.parse_args()
    scores = kept_scores()
    for task in TASKS.values():
        for lag in (0, args.lag):
            train_missing(task, [config_of(task, SETTINGS[name], lag) for name in args.only], scores)
    text = report(scores, args.lag)
    TEXT.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
