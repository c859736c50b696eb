"""What does a Ray cluster cost? The same grid in this process and on a cluster of one node with the same cores.

    python benchmarks/ray_overhead.py [--parts 4] [--steps 3000000] [--rounds 2] [--out benchmarks/results/ray.md]

Each command trains a study of some parts of CartPole, every one a program of its own, from an empty directory without
kept programs, and local and Ray take turns. *Whole* is the time of the command from shell to prompt, *parts* the sum of
what timing.csv says. The difference of the two is what it takes to start, to hand over and to end. Rows must be equal.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from isobatch.settings.presets import preset
from isobatch.studies.claims import STUDIES
from isobatch.studies.grid import Cell, Grid, Row, Study

HERE = Path(__file__).resolve().parents[1]
NAME = "overhead"


def study(parts: int, steps: int) -> Study:
    """Parts of 8 seeds; a different rollout length makes each a program of its own."""

    def grid(scale: str) -> Grid:
        base = preset("ppo", "CartPole-v1", total_timesteps=steps)
        lengths = [128 + 16 * part for part in range(parts)]
        return Grid([Cell(base.replace(num_steps=length), {"num_steps": length}) for length in lengths], 8)

    def verdict(rows: list[Row]) -> list[str]:
        return [f"{len(rows)} rows."]

    return Study(NAME, "Clusters cost little.", grid, verdict)


def command(parts: int, steps: int, words: list[str]) -> int:
    """The command line of isobatch, with this study in its list."""
    from isobatch.cli.main import main

    STUDIES[NAME] = study(parts, steps)
    return main(words)


def timed(args: argparse.Namespace, out: Path, where: str) -> tuple[float, list[float], str]:
    """Seconds of the command, seconds of its parts, and the rows."""
    grid = ["--parts", str(args.parts), "--steps", str(args.steps)]
    words = [sys.executable, __file__, *grid, "--command", "study", "run", NAME, "--quiet", "--json"]
    environment = os.environ | {"ISOBATCH_COMPILE_CACHE": "0"}
    clock = time.perf_counter()
    subprocess.run([*words, "--out", str(out), "--on", where], env=environment, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - clock
    with (out / "timing.csv").open(newline="") as file:
        parts = [float(row["seconds"]) for row in csv.DictReader(file)]
    return seconds, parts, (out / "rows.csv").read_text()


def report(args: argparse.Namespace, taken: dict[str, list[tuple[float, list[float]]]], same: bool) -> str:
    whole = {where: statistics.median(seconds for seconds, _ in runs) for where, runs in taken.items()}
    parts = {where: statistics.median(sum(each) for _, each in runs) for where, runs in taken.items()}
    shortest = min(min(each) for _, each in taken["local"])
    lines = [
        "# A Ray cluster of one node against this process",
        "",
        f"`python benchmarks/ray_overhead.py --parts {args.parts} --steps {args.steps} --rounds {args.rounds}`, "
        f"Python {platform.python_version()}, {len(os.sched_getaffinity(0))} cores, load {args.load:.1f} before and "
        f"{os.getloadavg()[0]:.1f} after; medians of {args.rounds} rounds in turns. Parts of {shortest:.0f} s or "
        f"longer. Rows are {'the same' if same else 'NOT THE SAME'}.",
        "",
        "| | whole command, s | sum of its parts, s | the rest, s |",
        "|---|---:|---:|---:|",
        *(
            f"| {where} | {whole[where]:.1f} | {parts[where]:.1f} | {whole[where] - parts[where]:.1f} |"
            for where in whole
        ),
        "",
        f"Ray takes {100 * (whole['ray'] / whole['local'] - 1):.1f} % longer in all, of which its parts "
        f"{100 * (parts['ray'] - parts['local']) / whole['local']:.1f} %. By round, in all: "
        + ", ".join(
            f"{100 * (ray / local - 1):.1f} %"
            for (ray, _), (local, _) in zip(taken["ray"], taken["local"], strict=True)
        )
        + ".",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--steps", type=int, default=1_500_000, help="of each of the 8 seeds of a part")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE / "benchmarks" / "results" / "ray.md")
    parser.add_argument("--command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.command is not None:
        return command(args.parts, args.steps, args.command)
    args.load = os.getloadavg()[0]
    taken: dict[str, list[tuple[float, list[float]]]] = {"local": [], "ray": []}
    rows = set()
    with tempfile.TemporaryDirectory() as temporary:
        for number in range(args.rounds):
            for where, runs in taken.items():
                seconds, parts, text = timed(args, Path(temporary) / f"{where}{number}", where)
                runs.append((seconds, parts))
                rows.add(text)
                print(f"{where}: {seconds:.1f} s, parts {parts}, load {os.getloadavg()[0]:.1f}", flush=True)
    text = report(args, taken, len(rows) == 1)
    args.out.write_text(text)
    print(text)
    return int(len(rows) != 1)


if __name__ == "__main__":
    sys.exit(main())
