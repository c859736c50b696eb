"""Search the settings that the studies begin with, and write docs/results/bases.md and bases.json.

    python docs/results/bases.py [--only ENV] [--kind NAME] [--out runs/bases]
    python docs/results/bases.py --page       search nothing: write the page of what was found

Every algorithm of a study has its own search on each environment, at the batch of the study, and all of an environment
have as many trials, seeds and steps. Searches that are finished are kept; one that was interrupted goes on. Each
environment has a process of its own, since JAX is set up otherwise for those that step outside it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import isobatch as ib
from isobatch.formatting import by_magnitude
from isobatch.settings.parsing import SettingsByName
from isobatch.settings.presets import bare_id

HERE = Path(__file__).parent
PAGE, FOUND = HERE / "bases.md", HERE / "bases.json"
BEGIN, END = "<!-- measured -->", "<!-- end of what was measured -->"
SEARCHED = ("learning_rate", "ent_coef=1e-4:0.05", "gae_lambda", "gamma")


@dataclass(frozen=True)
class Effort:
    """What is spent on each search of an environment."""

    group: int
    num_seeds: int
    lanes: int
    confirm_seeds: int
    runs: int  # that the budget would pay in full length


@dataclass(frozen=True)
class Task:
    """An environment of the studies: what is not searched, and how long a run is."""

    steps: int
    settings: SettingsByName
    effort: Effort


WITH_JAX, OUTSIDE = Effort(18, 2, 12, 4, 30), Effort(12, 1, 1, 3, 20)
NORMALIZED: SettingsByName = dict(normalize_observations=True, normalize_rewards=True)
IMAGES: SettingsByName = dict(arrangement="dual", encoder="mlp", hidden_sizes=(64, 64), activation="relu")
# Steps: whole iterations of 16 times the largest base, 32,768.
TASKS = {
    "CartPole-v1": Task(196_608, {}, WITH_JAX),
    "Acrobot-v1": Task(163_840, NORMALIZED, WITH_JAX),
    "Pendulum-v1": Task(196_608, dict(normalize_rewards=True, gamma=0.9), WITH_JAX),
    "Breakout-MinAtar": Task(262_144, IMAGES, WITH_JAX),
    "SpaceInvaders-MinAtar": Task(262_144, IMAGES, WITH_JAX),
    "envpool/LunarLander-v3": Task(163_840, dict(normalize_rewards=True), OUTSIDE),
    "envpool/HalfCheetah-v4": Task(131_072, NORMALIZED, OUTSIDE),
    "envpool/Hopper-v4": Task(131_072, NORMALIZED, OUTSIDE),
}
COMMON: SettingsByName = dict(update_epochs=1, lr_schedule="constant", ent_coef=0.01, learning_rate=1e-3)
SMALL: SettingsByName = COMMON | dict(num_envs=16, num_steps=64, num_minibatches=16)
LARGE: SettingsByName = COMMON | dict(num_envs=64, num_steps=32, num_minibatches=32)
PHASES: SettingsByName = dict(objective="kl", policy_iterations_per_phase=16, aux_epochs=3, aux_minibatches=16)
# Gradients are not clipped, as in the paper: a bound on the norm acts differently on gradients of another noise.
UNCLIPPED: SettingsByName = dict(objective="kl", advantage_norm="ewma", max_grad_norm="inf")
KINDS: dict[str, tuple[str, SettingsByName]] = {  # of search -> algorithm, settings
    "ppo": ("ppo", SMALL),
    "ppo-ewma": ("ppo-ewma", SMALL),
    "ppg": ("ppg", SMALL | PHASES),
    "ppg-ewma": ("ppg-ewma", SMALL | PHASES),
    "divided": ("ppo-ewma", LARGE | UNCLIPPED),
    "divided-ppg": ("ppg-ewma", LARGE | PHASES | UNCLIPPED),
}
ONLY = {"divided-ppg": "CartPole-v1"}  # the algorithm with the most rules, where it is cheapest


def kinds_on(env: str) -> list[str]:
    """The searches that an environment has."""
    return [kind for kind in KINDS if ONLY.get(kind, env) == env]


def start_of(env: str, kind: str) -> ib.Config:
    """Where a search begins: settings of nobody's tuning."""
    algo, settings = KINDS[kind]
    task = TASKS[env]
    config = ib.preset(algo, env, None, **settings | task.settings | dict(total_timesteps=task.steps))
    phase = max(config.policy_iterations_per_phase, 1) * config.geometry.iteration_batch
    return config.replace(total_timesteps=task.steps // phase * phase)


def search(env: str, kind: str, out: Path) -> None:
    """Unless it is done."""
    folder, effort = out / f"{bare_id(env)}-{kind}", TASKS[env].effort
    result = folder / "result.json"
    if result.exists():
        return
    start = start_of(env, kind)
    tuned = ib.tune(
        start, out=folder, budget=effort.runs * start.env_steps, search=SEARCHED, group=effort.group,
        num_seeds=effort.num_seeds, lanes=effort.lanes, confirm_seeds=effort.confirm_seeds,
    )  # fmt: skip
    print(f"{env}, {kind}", *tuned.sentences(), sep="\n  ", flush=True)
    result.write_text(json.dumps(tuned.to_json()) + "\n")


def found_in(out: Path) -> dict[str, dict[str, Any]]:
    """Environment -> kind -> what its search found; what was found before and is not searched here stays."""
    found: dict[str, dict[str, Any]] = json.loads(FOUND.read_text()) if FOUND.exists() else {}
    for env in TASKS:
        for kind in kinds_on(env):
            file = out / f"{bare_id(env)}-{kind}" / "result.json"
            if file.exists():
                found.setdefault(env, {})[kind] = summary(json.loads(file.read_text()))
    return found


def summary(result: dict[str, Any]) -> dict[str, Any]:
    winner = result["finalists"][0]
    start = next((trial for trial in result["trials"] if trial["number"] == 0), None)
    return {
        "settings": {name: digits(value) for name, value in winner["settings"].items()},
        "returns": [digits(value) for value in winner["returns"]],
        "start": None if start is None else digits(start["scores"][-1]),
        "trials": len(result["trials"]),
        "env_steps": result["env_steps"],
    }


def digits(value: float) -> float:
    """Five significant ones: a gamma of 0.99951 is not one of 1."""
    return float(f"{value:.5g}")


def table(found: dict[str, dict[str, Any]]) -> list[str]:
    names = [item.partition("=")[0] for item in SEARCHED]
    lines = [f"| environment | search | start | found, mean of new seeds (worst, best) | {' | '.join(names)} | steps |"]
    lines.append(f"|---|---|---:|---:|{'---:|' * len(names)}---:|")
    for env in TASKS:
        for kind in kinds_on(env):
            if one := found.get(env, {}).get(kind):
                ends = one["returns"]
                mean = by_magnitude(sum(ends) / len(ends))
                spread = f"{by_magnitude(min(ends))}, {by_magnitude(max(ends))}"
                start = "" if one["start"] is None else by_magnitude(one["start"])
                values = " | ".join(f"{one['settings'][name]:g}" for name in names)
                steps = f"{one['env_steps'] / 1e6:.1f}M"
                lines.append(f"| {env} | {kind} | {start} | {mean} ({spread}) | {values} | {steps} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=TASKS, help="search on this environment alone")
    parser.add_argument("--kind", choices=KINDS, help="this search alone")
    parser.add_argument("--out", type=Path, default=Path("runs/bases"))
    parser.add_argument("--page", action="store_true", help="search nothing")
    args = parser.parse_args()
    kinds = [args.kind] if args.kind else list(KINDS)
    if args.only:
        for kind in kinds:
            search(args.only, kind, args.out)
    elif not args.page:
        for kind in kinds:
            for env in [env for env in TASKS if kind in kinds_on(env)]:
                words = ["--only", env, "--kind", kind, "--out", str(args.out)]
                subprocess.run([sys.executable, __file__, *words], check=True)
    found = found_in(args.out)
    FOUND.write_text(json.dumps(found, indent=1) + "\n")
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text("\n".join([before + BEGIN, *table(found), END + rest.split(END)[1]]))


if __name__ == "__main__":
    main()
