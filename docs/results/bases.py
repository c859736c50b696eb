"""Search the settings that the studies begin with, and write docs/results/bases.md and searched_bases.json.

    python docs/results/bases.py [--only ENV] [--kind NAME] [--out runs/bases]
    python docs/results/bases.py --page       search nothing: write the page of what was found

Every variant of a study that has settings of its own has its own search on each environment, at the batch of the
study; what is compared has as many trials, seeds and steps. Searches that are finished are kept; one that was
interrupted goes on. Each environment has a process of its own, since JAX is set up otherwise for those that step
outside it.
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
from isobatch.settings.presets import bare_id
from isobatch.studies.searched_bases import FILE, SEARCHES, TASKS, searches_on, start_of

HERE = Path(__file__).parent
PAGE = HERE / "bases.md"
FOUND = HERE.parents[1] / "src" / "isobatch" / "studies" / FILE
BEGIN, END = "<!-- measured -->", "<!-- end of what was measured -->"
SETTINGS = ("learning_rate", "ent_coef", "gae_lambda", "gamma", "kl_coef")  # that are searched


@dataclass(frozen=True)
class Effort:
    """What is spent on each search of an environment."""

    group: int
    num_seeds: int
    lanes: int
    confirm_seeds: int
    runs: int  # that the budget would pay in full length


CLASSIC, MINATAR, OUTSIDE = Effort(24, 4, 24, 8, 160), Effort(18, 3, 18, 6, 60), Effort(12, 1, 1, 3, 20)
# Where the KL coefficient is searched too, one setting more.
WITH_COEFFICIENT = {CLASSIC: Effort(24, 4, 24, 8, 320), MINATAR: MINATAR, OUTSIDE: Effort(16, 2, 1, 4, 40)}
RATE = Effort(8, 3, 8, 6, 36)


def effort_of(env: str, kind: str) -> Effort:
    """More where steps cost less, and where more is searched than a rate."""
    if len(SEARCHES[kind].ranges) == 1:
        return RATE
    usual = OUTSIDE if env.startswith("envpool/") else MINATAR if env.endswith("-MinAtar") else CLASSIC
    return WITH_COEFFICIENT[usual] if "kl_coef" in SEARCHES[kind].ranges else usual


def search(env: str, kind: str, out: Path) -> None:
    """Unless it is done."""
    folder, effort = out / f"{bare_id(env)}-{kind}", effort_of(env, kind)
    result = folder / "result.json"
    if result.exists():
        return
    start = start_of(env, kind)
    tuned = ib.tune(
        start, out=folder, budget=effort.runs * start.env_steps, search=SEARCHES[kind].ranges, group=effort.group,
        num_seeds=effort.num_seeds, lanes=effort.lanes, confirm_seeds=effort.confirm_seeds,
    )  # fmt: skip
    print(f"{env}, {kind}", *tuned.sentences(), sep="\n  ", flush=True)
    result.write_text(json.dumps(tuned.to_json()) + "\n")


def found_in(out: Path) -> dict[str, dict[str, Any]]:
    """Environment -> kind -> what its search found; what was found before and is not searched here stays."""
    before = json.loads(FOUND.read_text())
    found: dict[str, dict[str, Any]] = {env: before.get(env, {}) for env in TASKS}
    for env in TASKS:
        for kind in searches_on(env):
            file = out / f"{bare_id(env)}-{kind}" / "result.json"
            if file.exists():
                found[env][kind] = summary(json.loads(file.read_text()))
    return found


def summary(result: dict[str, Any]) -> dict[str, Any]:
    winner = result["finalists"][0]
    start = next(trial for trial in result["trials"] if trial["number"] == 0)["scores"][-1]
    return {
        "settings": {name: digits(value) for name, value in winner["settings"].items()},
        "returns": [digits(value) for value in winner["returns"]],
        "start": None if start is None else digits(start),
        "trials": len(result["trials"]),
        "env_steps": result["env_steps"],
    }


def digits(value: float) -> float:
    """Five significant ones: a gamma of 0.99951 is not one of 1."""
    return float(f"{value:.5g}")


def table(found: dict[str, dict[str, Any]]) -> list[str]:
    names = " | ".join(SETTINGS)
    lines = [f"| environment | search | start | found, mean of new seeds (worst, best) | {names} | steps |"]
    lines.append(f"|---|---|---:|---:|{'---:|' * len(SETTINGS)}---:|")
    for env in TASKS:
        for kind in searches_on(env):
            if one := found.get(env, {}).get(kind):
                ends = one["returns"]
                mean = by_magnitude(sum(ends) / len(ends))
                spread = f"{by_magnitude(min(ends))}, {by_magnitude(max(ends))}"
                start = "diverged" if one["start"] is None else by_magnitude(one["start"])
                values = " | ".join(
                    f"{one['settings'][name]:g}" if name in one["settings"] else "" for name in SETTINGS
                )
                steps = f"{one['env_steps'] / 1e6:.1f}M"
                lines.append(f"| {env} | {kind} | {start} | {mean} ({spread}) | {values} | {steps} |")
    return lines


def with_table(page: str, found: dict[str, dict[str, Any]]) -> str:
    """The page with what was found."""
    before, rest = page.split(BEGIN)
    return "\n".join([before + BEGIN, *table(found), END + rest.split(END)[1]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=TASKS, help="search on this environment alone")
    parser.add_argument("--kind", choices=SEARCHES, help="this search alone")
    parser.add_argument("--out", type=Path, default=Path("runs/bases"))
    parser.add_argument("--page", action="store_true", help="search nothing")
    args = parser.parse_args()
    kinds = [args.kind] if args.kind else list(SEARCHES)
    if args.only:
        for kind in [kind for kind in kinds if kind in searches_on(args.only)]:
            search(args.only, kind, args.out)
    elif not args.page:
        for kind in kinds:
            for env in [env for env in TASKS if kind in searches_on(env)]:
                words = ["--only", env, "--kind", kind, "--out", str(args.out)]
                subprocess.run([sys.executable, __file__, *words], check=True)
    found = found_in(args.out)
    FOUND.write_text(json.dumps(found, indent=1) + "\n")
    PAGE.write_text(with_table(PAGE.read_text(), found))


if __name__ == "__main__":
    main()
