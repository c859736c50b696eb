"""Trials per second: a search in one program, and the same trials as separate processes.

    python benchmarks/tuning.py [--env CartPole-v1] [--groups 3] [--group 24] [--steps 100000] [--seeds 3] [--at-once 2]
                                [--sample 12] [--out benchmarks/results/tuning.md]

First a search draws groups of trials at random and trains them; the runs that confirm its best are left out. Then its
trials are trained by an `isobatch train` of their own each, with the same settings and seeds, for as many steps as they
had in the search: those that were stopped early are as short here. Of them a `--sample` is trained, evenly from the
best to the worst, and tells the cost of all. Processes run `--at-once` at a time, each on cores of its own. Both
begin without kept programs; processes share theirs, so that only the first ones compile. *Seconds* are from shell to
prompt. On a machine that others use, compare the processor time.
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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

from isobatch.executors.processes import LocalProcesses
from isobatch.settings.presets import preset
from isobatch.tuning.directory import TRIALS, TuneDirectory
from isobatch.tuning.search import Search
from isobatch.tuning.search_plan import prepare
from isobatch.tuning.trials import Trial, ranked

SEARCHED = ("learning_rate", "ent_coef", "clip_eps", "gae_lambda")


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
    """In a process of its own; its trials, best first."""
    words = [sys.executable, __file__, "--search-into", str(here / "search"), *flags(args)]
    environment = os.environ | {"ISOBATCH_COMPILE_CACHE": str(here / "programs of the search")}
    subprocess.run(words, env=environment, check=True)
    with (here / "search" / TRIALS).open(newline="") as file:
        return list(csv.DictReader(file))


def search_into(args: argparse.Namespace) -> None:
    """What `isobatch tune` does before it confirms the best."""
    config = preset("ppo", args.env, total_timesteps=args.steps)
    asked = dict(search=SEARCHED, sampler="random", num_seeds=args.seeds, group=args.group, confirm_seeds=1)
    plan = prepare(config, budget=10**12, **asked).plan
    work = Search(
        plan, TuneDirectory(args.search_into), args.groups * plan.cost(config, args.group), 0, LocalProcesses(), silent
    )
    work.devices.choose()
    with work.directory.begun(plan.to_json()):
        work.directory.save_table(ranked(work.run()))


def silent(label: str, share: float, trials: Sequence[Trial]) -> None:
    """Nobody watches."""


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
    lines = [
        "# Trials per second",
        "",
        f"{trials} trials of {args.env}, {args.seeds} seeds each, {args.steps:,} steps unless stopped early; as",
        f"separate processes {args.sample} of them, from which the cost of all is told. Made by",
        f"`python benchmarks/tuning.py {' '.join(flags(args))}`",
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


def flags(args: argparse.Namespace) -> list[str]:
    names = ("env", "groups", "group", "steps", "seeds", "at_once", "sample")
    return [word for name in names for word in ("--" + name.replace("_", "-"), str(getattr(args, name)))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="CartPole-v1")
    sizes = {"groups": 3, "group": 24, "steps": 100_000, "seeds": 3, "at-once": 2, "sample": 12}
    for name, value in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--search-into", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.search_into:
        search_into(args)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        here, rows = Path(temporary), list[dict[str, str]]()
        found = {"one search": measured(lambda: rows.extend(search(args, here)))}
        args.sample = min(args.sample, len(rows))
        some = [rows[i * len(rows) // args.sample] for i in range(args.sample)]
        cost, times = measured(lambda: separately(args, here, some)), len(rows) / args.sample
        found["separate processes"] = Cost(times * cost.seconds, times * cost.cpu)
    text = report(args, found, len(rows))
    print(text, end="")
    if args.out:
        args.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
