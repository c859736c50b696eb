"""Search settings for gymnax's environments that had no preset, and write docs/results/presets.md and presets.json.

    python docs/results/presets.py [--only ENV] [--out runs/presets]
    python docs/results/presets.py --page       search nothing: write the page of what was found

What a search found is copied into src/isobatch/settings/searched_presets.py where it has learned. Searches
that are finished are kept; one that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from random_returns import play

import isobatch as ib
from isobatch.envs.registry import make_env
from isobatch.formatting import by_magnitude
from isobatch.settings.parsing import SettingsByName
from isobatch.settings.presets import without_environment
from isobatch.settings.searched_presets import SCALED, SMALL

HERE = Path(__file__).parent
PAGE, FOUND = HERE / "presets.md", HERE / "presets.json"
BEGIN, END = "<!-- measured -->", "<!-- end of what was measured -->"
SEARCHED = ("learning_rate", "ent_coef=1e-4:0.1", "gae_lambda", "gamma")
NAMES = tuple(each.partition("=")[0] for each in SEARCHED)
EPISODES = 1024


RUNS, GROUP, NUM_SEEDS, CONFIRM_SEEDS = 80, 24, 3, 8  # a search: its budget in whole runs, trials of a group, seeds


class Task(NamedTuple):
    begin: SettingsByName
    best: str  # what an episode can return at most, or what is known of it


TASKS = {
    "MountainCar-v0": Task(SCALED, "about -100"),
    "Catch-bsuite": Task(SMALL, "1"),
    "DeepSea-bsuite": Task(SMALL, "0.99"),
    "UmbrellaChain-bsuite": Task(SMALL, "1 on average"),
    "DiscountingChain-bsuite": Task(SMALL, "1.1"),
    "SimpleBandit-bsuite": Task(SMALL, "1"),
    "FourRooms-misc": Task(SMALL, "1"),
    "FrozenLake-misc": Task(SMALL, "1"),
    "Reacher-misc": Task(SCALED, "below 100"),
    "Swimmer-misc": Task(SCALED, "below 500"),
}


def start_of(env: str) -> ib.Config:
    """Where its search begins: what the algorithm brings by itself, in a rollout that fits the environment."""
    return without_environment("ppo", env, **TASKS[env].begin)


def search(env: str, out: Path) -> None:
    """Unless it is done."""
    folder = out / env
    if (folder / "result.json").exists():
        return
    start = start_of(env)
    tuned = ib.tune(
        start, out=folder, budget=RUNS * start.env_steps, search=SEARCHED, group=GROUP, num_seeds=NUM_SEEDS,
        lanes=GROUP, confirm_seeds=CONFIRM_SEEDS,
    )  # fmt: skip
    print(env, *tuned.sentences(), sep="\n  ", flush=True)
    (folder / "result.json").write_text(json.dumps(tuned.to_json()) + "\n")


def summary(env: str, result: dict[str, Any]) -> dict[str, Any]:
    returns, _ = play(make_env(env), EPISODES, jax.random.key(0))
    winner = result["finalists"][0]
    start = next(trial for trial in result["trials"] if trial["number"] == 0)["scores"][-1]
    return {
        "random": digits(np.asarray(returns).mean()),
        "start": None if start is None else digits(start),
        "settings": {name: digits(winner["settings"][name]) for name in NAMES},
        "returns": [digits(value) for value in winner["returns"]],
        "trials": len(result["trials"]),
        "env_steps": result["env_steps"],
    }


def digits(value: float) -> float:
    """Four significant ones."""
    return float(f"{value:.4g}")


def table(found: dict[str, dict[str, Any]]) -> list[str]:
    names = " | ".join(NAMES)
    lines = [f"| environment | random | start | found: mean (worst, best) | best possible | {names} | steps searched |"]
    lines.append(f"|---|---:|---:|---:|---:|{'---:|' * len(NAMES)}---:|")
    for env, one in found.items():
        ends = one["returns"]
        mean, worst, best = (by_magnitude(each) for each in (sum(ends) / len(ends), min(ends), max(ends)))
        start = "diverged" if one["start"] is None else by_magnitude(one["start"])
        values = " | ".join(f"{one['settings'][name]:g}" for name in NAMES)
        cells = [by_magnitude(one["random"]), start, f"{mean} ({worst}, {best})", TASKS[env].best, values]
        lines.append(f"| {env} | {' | '.join(cells)} | {one['env_steps'] / 1e6:.1f}M |")
    return lines


def with_table(page: str, found: dict[str, dict[str, Any]]) -> str:
    """The page with what was found."""
    before, rest = page.split(BEGIN)
    return "\n".join([before + BEGIN, *table(found), END + rest.split(END)[1]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=TASKS, help="search on this environment alone")
    parser.add_argument("--out", type=Path, default=Path("runs/presets"))
    parser.add_argument("--page", action="store_true", help="search nothing")
    args = parser.parse_args()
    if not args.page:
        for env in [args.only] if args.only else TASKS:
            search(env, args.out)
    before = json.loads(FOUND.read_text()) if FOUND.exists() else {}
    files = {env: args.out / env / "result.json" for env in TASKS}
    found = {
        env: summary(env, json.loads(files[env].read_text())) if files[env].exists() else before[env]
        for env in TASKS
        if files[env].exists() or env in before
    }
    FOUND.write_text(json.dumps(found, indent=1) + "\n")
    PAGE.write_text(with_table(PAGE.read_text(), found))


if __name__ == "__main__":
    main()
