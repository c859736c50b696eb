"""Trials per second: a search in one program, and the same trials as separate processes.

    python benchmarks/tuning.py [--env CartPole-v1] [--trials 24] [--steps 100000] [--seeds 3] [--at-once 2]
                                [--out benchmarks/results/tuning.md]

First `isobatch tune` searches one group of trials at random. Then every one of its trials is trained again by an
`isobatch train` of its own, with the same settings and seeds, for as many steps as it had in the search: those that
were stopped early are as short here. Processes run `--at-once` at a time, each on cores of its own. Both begin without
kept programs; processes share theirs, so that only the first ones compile. *Seconds* are from shell to prompt: for the
search they hold the runs that confirm its best three too. On a machine that others use, compare the processor time.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

from isobatch.settings.presets import preset
from isobatch.studies.lanes import log_interval_of
from isobatch.tuning.halving import Halving

SEARCHED = ("learning_rate", "ent_coef", "clip_eps", "gae_lambda")
CONFIRM = 1  # seeds, on which the best three are trained once more
LANES = 18


@dataclass(frozen=True)
class Cost:
    """Of all trials."""

    seconds: float
    cpu: float  # seconds of all processes


def measured(work: Callable[[], None]) -> Cost:
    before, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    work()
    seconds, after = time.perf_counter() - clock, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(seconds, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def command(words: list[str], cache: Path, cores: set[int] | None = None) -> None:
    environment = os.environ | {"ISOBATCH_COMPILE_CACHE": str(cache)}
    done = subprocess.run(
        [sys.executable, "-m", "isobatch", *words], env=environment, capture_output=True, text=True, check=False,
        preexec_fn=None if cores is None else lambda: os.sched_setaffinity(0, cores),
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr)


def search(args: argparse.Namespace, here: Path) -> list[dict[str, str]]:
    """One group of trials, and its rows."""
    config = preset("ppo", args.env, total_timesteps=args.steps)
    together = max(1, LANES // args.seeds)
    budget = Halving().cost(config, log_interval_of(config), args.trials, together, args.seeds)
    budget += 3 * CONFIRM * config.env_steps
    words = ["tune", "--env", args.env, "--total-timesteps", str(args.steps), "--budget", str(budget)]
    words += ["--sampler", "random", "--num-seeds", str(args.seeds), "--group", str(args.trials), "--quiet"]
    words += ["--confirm-seeds", str(CONFIRM), "--lanes", str(LANES), "--out", str(here / "search")]
    for name in SEARCHED:
        words += ["--search", name]
    command(words, here / "programs of the search")
    with (here / "search" / "trials.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def separately(args: argparse.Namespace, here: Path, rows: list[dict[str, str]]) -> None:
    cores = sorted(os.sched_getaffinity(0))
    places: Queue[set[int]] = Queue()
    for place in range(args.at_once):
        places.put(set(cores[place :: args.at_once]))

    def one(row: dict[str, str]) -> None:
        words = ["train", "--env", args.env, "--total-timesteps", str(int(row["env_steps"]) // args.seeds), "--quiet"]
        words += ["--num-seeds", str(args.seeds), "--run-dir", str(here / f"trial-{row['trial']}")]
        for name in SEARCHED:
            words += ["--" + name.replace("_", "-"), row[name]]
        own = places.get()
        try:
            command(words, here / "programs of the processes", own)
        finally:
            places.put(own)

    with ThreadPoolExecutor(args.at_once) as pool:
        list(pool.map(one, rows))


def report(args: argparse.Namespace, found: dict[str, Cost], trials: int) -> str:
    search, apart = found.values()
    flags = f"--trials {args.trials} --steps {args.steps} --seeds {args.seeds} --at-once {args.at_once}"
    lines = [
        "# Trials per second",
        "",
        f"{trials} trials of {args.env}, {args.seeds} seeds each, {args.steps:,} steps unless stopped early. Made by",
        f"`python benchmarks/tuning.py --env {args.env} {flags}`",
        f"on {len(os.sched_getaffinity(0))} cores ({platform.machine()}), Python {platform.python_version()}.",
        "",
        "| | seconds | trials/s | processor seconds |",
        "|---|---:|---:|---:|",
    ]
    for name, cost in found.items():
        lines.append(f"| {name} | {cost.seconds:.0f} | {trials / cost.seconds:.2f} | {cost.cpu:.0f} |")
    lines += ["", f"**{apart.seconds / search.seconds:.1f} times** the trials per second, with "]
    lines[-1] += f"{search.cpu / apart.cpu:.0%} of the processor time."
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="CartPole-v1")
    for name, value in {"trials": 24, "steps": 100_000, "seeds": 3, "at-once": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        here, rows = Path(temporary), list[dict[str, str]]()
        found = {"one search": measured(lambda: rows.extend(search(args, here)))}
        found["separate processes"] = measured(lambda: separately(args, here, rows))
    text = report(args, found, len(rows))
    print(text, end="")
    if args.out:
        args.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
