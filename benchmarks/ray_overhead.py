"""What does a Ray cluster cost? The same grid in this process and on a cluster of one node with the same cores.

    python benchmarks/ray_overhead.py [--parts 4] [--steps 1500000] [--rounds 2] [--out benchmarks/results/ray.md]

Each command trains a study of some parts of CartPole, every one a program of its own, from an empty directory without
kept programs, and local and Ray take turns. *Whole* is the time of the command from shell to prompt, *parts* the sum of
what timing.csv says; the difference of the two is what it takes to start, to hand over and to end. *CPU* is the
processor time of the command and of all processes that come from it, Ray's own included: on a machine that others use,
compare that. Rows must be equal.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from isobatch.formatting import counted
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


@dataclasses.dataclass(frozen=True)
class Timed:
    """One command."""

    whole: float  # seconds
    parts: list[float]  # seconds of each
    cpu: float  # seconds of all processes


def timed(args: argparse.Namespace, out: Path, where: str) -> Timed:
    grid = ["--parts", str(args.parts), "--steps", str(args.steps)]
    words = [sys.executable, __file__, *grid, "--command", "study", "run", NAME, "--quiet", "--json"]
    environment = os.environ | {"ISOBATCH_COMPILE_CACHE": "0"}
    clock, cpu = time.perf_counter(), dict[int, float]()
    command = subprocess.Popen([*words, "--out", str(out), "--on", where], env=environment, stdout=subprocess.DEVNULL)
    while command.poll() is None:
        cpu |= processor_times(command.pid)
        time.sleep(0.2)
    seconds = time.perf_counter() - clock
    if command.returncode:
        raise SystemExit(f"{where} ended with code {command.returncode}")
    with (out / "timing.csv").open(newline="") as file:
        parts = [float(row["seconds"]) for row in csv.DictReader(file)]
    return Timed(seconds, parts, sum(cpu.values()))


def processor_times(root: int) -> dict[int, float]:
    """Processor seconds until now of a process and of all that come from it, by their ids."""
    parents, times = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(") ")[2].split()
            number = int(path.parent.name)
            parents[number], times[number] = int(fields[1]), sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    def comes_from(number: int) -> bool:
        return number == root or (number in parents and comes_from(parents[number]))

    return {number: seconds for number, seconds in times.items() if comes_from(number)}


def report(args: argparse.Namespace, taken: dict[str, list[Timed]], same: bool) -> str:
    whole = {where: statistics.median(run.whole for run in runs) for where, runs in taken.items()}
    parts = {where: statistics.median(sum(run.parts) for run in runs) for where, runs in taken.items()}
    cpu = {where: statistics.median(run.cpu for run in runs) for where, runs in taken.items()}
    shortest = min(min(run.parts) for run in taken["local"])
    lines = [
        "# A Ray cluster of one node against this process",
        "",
        f"`python benchmarks/ray_overhead.py --parts {args.parts} --steps {args.steps} --rounds {args.rounds}`, "
        f"Python {platform.python_version()}, {len(os.sched_getaffinity(0))} cores, load {args.load:.1f} before and "
        f"{os.getloadavg()[0]:.1f} after; medians of {counted(args.rounds, 'round')} in turns. Parts of "
        f"{shortest:.0f} s or longer. Rows are {'the same' if same else 'NOT THE SAME'}.",
        "",
        "| | whole command, s | sum of its parts, s | the rest, s | CPU of all processes, s |",
        "|---|---:|---:|---:|---:|",
        *(
            f"| {on} | {whole[on]:.1f} | {parts[on]:.1f} | {whole[on] - parts[on]:.1f} | {cpu[on]:.1f} |"
            for on in taken
        ),
        "",
        f"Ray takes {more(whole):.1f} % longer, and {more(cpu):.1f} % more of the processors.",
    ]
    return "\n".join(lines) + "\n"


def more(seconds: dict[str, float]) -> float:
    """Percent."""
    return 100 * (seconds["ray"] / seconds["local"] - 1)


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
    taken: dict[str, list[Timed]] = {"local": [], "ray": []}
    rows = set()
    with tempfile.TemporaryDirectory() as temporary:
        for number in range(args.rounds):
            for where, runs in taken.items():
                out = Path(temporary) / f"{where}{number}"
                runs.append(timed(args, out, where))
                rows.add((out / "rows.csv").read_text())
                print(where, runs[-1], f"load {os.getloadavg()[0]:.1f}", flush=True)
    text = report(args, taken, len(rows) == 1)
    args.out.write_text(text)
    print(text)
    return int(len(rows) != 1)


if __name__ == "__main__":
    sys.exit(main())
