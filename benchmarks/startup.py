"""How long a short run takes from shell to prompt: the first time, and again when its programs are kept.

    python benchmarks/startup.py [--rounds 3] [--before COMMIT] [--env CartPole-v1]

Each round begins with an empty cache and runs `isobatch train --total-timesteps 2048` three times: first, again, and
again with another seed and learning rate; then once without a cache. With --before the same command of an earlier
commit runs in every round, so that a slow spell of the machine hits both. CPU is user and system time of the process:
on a machine that others use, compare CPU, and ratios within one run.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from same_bits import checkout

HERE = Path(__file__).resolve().parents[1]
OTHER = ["--seed", "7", "--learning-rate", "0.0005"]


def timed(source: Path, cache: str, run: Path, flags: list[str]) -> tuple[float, float]:
    """Seconds by the clock and of the processor."""
    environment = os.environ | {"PYTHONPATH": str(source / "src"), "ISOBATCH_COMPILE_CACHE": cache}
    command = [sys.executable, "-m", "isobatch", "train", "--total-timesteps", "2048", "--run-dir", str(run), *flags]
    before, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    seconds, after = time.perf_counter() - clock, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", help="a commit to compare with")
    parser.add_argument("--env", default="CartPole-v1")
    args = parser.parse_args()
    taken: dict[str, list[tuple[float, float]]] = {}
    print(f"load {os.getloadavg()[0]:.1f}, {len(os.sched_getaffinity(0))} cores, {args.rounds} rounds", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        earlier = checkout(args.before, folder / "earlier") if args.before else None
        for number in range(args.rounds):
            cache = str(folder / f"cache{number}")
            starts = {
                "first": (HERE, cache, []),
                "again": (HERE, cache, []),
                "another seed and learning rate": (HERE, cache, OTHER),
                "without a cache": (HERE, "0", []),
            }
            if earlier is not None:
                starts[f"at {args.before}"] = (earlier, "0", [])
            for name, (source, where, flags) in starts.items():
                run = folder / f"{number}-{name}".replace(" ", "-")
                taken.setdefault(name, []).append(timed(source, where, run, ["--env", args.env, *flags]))
    print("| start | seconds | of which CPU, all threads |\n|---|---|---|")
    for name, pairs in taken.items():
        wall, cpu = (statistics.median(values) for values in zip(*pairs, strict=True))
        print(f"| {name} | {wall:.1f} | {cpu:.1f} |")


if __name__ == "__main__":
    main()
