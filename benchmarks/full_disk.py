"""Does a full disk cost more than one sentence?

    sudo python benchmarks/full_disk.py [run] [study] [search] [plan] [--times 10] [--seed 0]

A run, a study and a search are kept on a small disk in memory (a tmpfs, which only root can mount). At a random moment
it is filled to the last page, and kept full until the command has ended: with exit code 1 and one sentence, or it does
not count, because nothing was left to write. Then there is room again, and the same command goes on; up to four times.
In the end the results are compared, bit by bit, with those that were left alone. A plan is made of measured seconds:
of it, the measurements of the run that was planned and the picture have to be there.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import kills

TESTS = str(Path(__file__).resolve().parent.parent / "tests")
FILLER, PAGE = "filler", 4096
TIMES_EACH = 4  # that a run or a study meets a full disk
RESULTS = ("rows.csv", "curves.csv.gz", "study.json")
SEARCH = "--total-timesteps 2048 --search learning_rate=1e-4:1e-1 --num-seeds 2 --group 4 --lanes 4 --confirm-seeds 2 "
SEARCH += "--budget 40000 --sampler random"
FOUND = ("tune.json", "trials.csv", "best.yaml")
PICTURE, DISK = "plan.png", "disk"


def with_small_study(words: list[str]) -> int:
    """The command line with a study that tests have."""
    sys.path.append(TESTS)
    import fake_study

    from isobatch.studies.claims import STUDIES

    STUDIES["fake"] = fake_study.STUDY
    return kills.isobatch(words)


def start_study(path: Path) -> BaseProcess:
    return kills.launch(["study", "run", "fake", "--out", str(path), "--quiet"], with_small_study)


def study_difference(one: Path, other: Path) -> str | None:
    return next((name for name in RESULTS if (one / name).read_bytes() != (other / name).read_bytes()), None)


def start_search(path: Path) -> BaseProcess:
    return kills.launch(["tune", *kills.SHARED.split(), *SEARCH.split(), "--out", str(path), "--quiet"])


def search_difference(one: Path, other: Path) -> str | None:
    names = [*FOUND, *(str(each.relative_to(one)) for each in one.glob("groups/*.asked.json"))]
    return next((name for name in names if (one / name).read_bytes() != (other / name).read_bytes()), None)


def start_plan(path: Path) -> BaseProcess:
    """Of a run that does not know its noise scale: it is measured, and kept in the directory of the run."""
    if not path.exists():
        learned = path.parents[1 if path.parent.name == DISK else 0] / "learned"
        if not learned.exists():
            kills.finish(kills.launch(["train", *kills.SHARED.split(), "--run-dir", str(learned), "--quiet"]))
        shutil.copytree(learned, path)
    return kills.launch(["plan", str(path), "--out", str(path / PICTURE), "--quiet"])


def plan_difference(one: Path, other: Path) -> str | None:
    made = [PICTURE, *(str(each.relative_to(one)) for each in one.glob("diagnosis/*.json"))]
    return next((f"{name} is missing" for name in made if not (other / name).is_file()), None)


KINDS = {
    "run": (kills.start, kills.difference),
    "study": (start_study, study_difference),
    "search": (start_search, search_difference),
    "plan": (start_plan, plan_difference),
}


def fill(disk: Path) -> None:
    with (disk / FILLER).open("ab", buffering=0) as file:
        for size in (256 * PAGE, PAGE):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))


def meets_full_disk(process: BaseProcess, disk: Path, wait: float) -> bool:
    """Whether it ended for want of room, as it should; False if it was done."""
    process.join(wait)
    while process.is_alive():
        fill(disk)  # also what was freed meanwhile
        time.sleep(0.002)
    (disk / FILLER).unlink(missing_ok=True)
    if process.exitcode == 0:
        return False
    said = kills.said()
    sentences = [line for line in said.splitlines() if line.startswith("isobatch: ")]
    full = len(sentences) == 1 and ("No space left" in sentences[0] or "disk is full" in sentences[0])
    if process.exitcode != 1 or not full or "Traceback" in said:
        raise SystemExit(f"isobatch {process.name} ended with code {process.exitcode}: {said}")
    print(f"    {sentences[0]}", flush=True)
    return True


def torment(
    start: Callable[[Path], BaseProcess], difference: Callable[[Path, Path], str | None], model: Path, seconds: float,
    disk: Path, times: int, luck: random.Random,
) -> tuple[int, int]:  # fmt: skip
    """How many were made, and how many of them are identical to the undisturbed one."""
    made = identical = met = 0
    while met < times:
        path = disk / f"{model.name} {made}"
        for _ in range(min(TIMES_EACH, times - met)):
            clock = time.monotonic()
            if not meets_full_disk(start(path), disk, luck.uniform(0, seconds)):
                seconds = min(seconds, time.monotonic() - clock)  # the machine has less else to do than before
                break
            met += 1
        kills.finish(start(path))
        found = difference(model, path)
        made, identical = made + 1, identical + (found is None)
        print(f"{path.name}: the disk was full {met} times, {found or 'identical'}", flush=True)
    return made, identical


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=[*KINDS, []], help="by default all")
    parser.add_argument("--times", type=int, default=10, help="that the disk is full, for each of them")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    luck, failed = random.Random(args.seed), 0
    with tempfile.TemporaryDirectory() as temporary:
        kills.prepare(temporary)
        disk = Path(temporary) / DISK
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", disk], check=False).returncode:
            raise SystemExit("a tmpfs cannot be mounted here: this needs root.")
        try:
            for what in args.what or KINDS:
                start, difference = KINDS[what]
                kills.finish(start(Path(temporary) / f"{what}, to compile"))
                model = Path(temporary) / what
                seconds = kills.finish(start(model))
                made, identical = torment(start, difference, model, seconds, disk, args.times, luck)
                print(f"{what}: {args.times} times full, {args.times} sentences; {identical} of {made} identical")
                failed += identical < made
        finally:
            subprocess.run(["umount", disk], check=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
