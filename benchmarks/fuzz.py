"""Does any command line, or any file, end in a traceback, a hang or a wrong result?

    python benchmarks/fuzz.py [--lines 10000] [--files 2000] [--kills 200] [--seed 0] [--jobs 2]

Command lines and files that are valid are mutated, and `isobatch` is called with them inside processes that are used
again, each case with a time limit. `train`, `tune` and `plan` are called up to the point where they would begin to
train or to measure. What counts as a failure: an error that nobody foresaw, a hang, an exit code other than 0, 1, 2 and
130, several lines of complaint, `--json` that does not print one object, and a rescaling with a number that is not
finite. Cases are functions of the seed and their number: `--only line-123` repeats one. With --kills, `kills.py`
follows. What is mutated is in `fuzz_words.py`.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import typing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from fuzz_words import FILES, FLAGS, LINES, NUMBERS, PIECES, READERS, VALUES

KILLS = Path(__file__).resolve().with_name("kills.py")
SECONDS = 10.0  # of the processor that a case may take
PATIENCE = 60.0  # seconds of the clock, since others may use the processor too
GRACE = 30.0  # more of them until a process that does not answer a signal is ended
CODES = (0, 1, 2, 130)
NUMBER = re.compile(r"[-+.\de]+")


class Case(NamedTuple):
    """A command line in a directory with these files."""

    words: list[str]
    files: dict[str, bytes]
    encoding: str


class Outcome(NamedTuple):
    code: int | str
    out: str
    err: str
    seconds: float


def command_line(seed: int, number: int) -> Case:
    """A valid command line with one to four changes."""
    draw = random.Random(f"line {seed} {number}")
    words = _split(draw.choice(LINES))
    for _ in range(draw.choice((1, 1, 1, 2, 2, 3))):
        words = _changed_words(words, draw)
    words = [word.replace("\0", "") for word in words]  # which no command line can hold
    return Case(words, _valid_files(), draw.choice(("utf-8",) * 9 + ("ascii",)))


def hostile_file(seed: int, number: int) -> Case:
    """A valid file with one to four changes, and a command that reads it."""
    draw = random.Random(f"file {seed} {number}")
    name = draw.choice(list(FILES))
    content = FILES[name].encode()
    for _ in range(draw.choice((1, 1, 2, 3, 4))):
        content = _changed_bytes(content, draw)
    return Case(_split(draw.choice(READERS[name])), _valid_files() | {name: content}, "utf-8")


def _split(line: str) -> list[str]:
    return [word.strip("'") for word in re.findall(r"'[^']*'|\S+", line)]


def _valid_files() -> dict[str, bytes]:
    return {name: text.encode() for name, text in FILES.items()}


def _changed_words(words: list[str], draw: random.Random) -> list[str]:
    from isobatch.settings.config import setting_fields

    place = draw.randrange(len(words)) if words else 0
    place = max(place, min(1, len(words) - 1)) if draw.random() < 0.9 else place  # mostly not the command
    name = draw.choice([*setting_fields(), *FLAGS])
    flag, value = "--" + name.replace("_", "-"), draw.choice(VALUES)
    if draw.random() < 0.6 and name in setting_fields():
        value = _plausible(setting_fields()[name].kind, draw)
    change = draw.randrange(10)
    if not words or change <= 3:
        return [*words, flag, value]
    if change == 4:
        return [*words, f"{flag}={value}"]
    if change <= 6:  # another value, mostly of the same kind
        number = NUMBER.fullmatch(words[place]) and draw.random() < 0.7
        return [*words[:place], draw.choice(NUMBERS) if number else draw.choice(VALUES), *words[place + 1 :]]
    if change == 7:
        return words[:place] + words[place + 1 :]
    if change == 8:
        return [*words[:place], words[draw.randrange(len(words))], *words[place:]]
    word = words[place]
    at = draw.randrange(len(word) + 1)
    return [*words[:place], word[:at] + draw.choice(VALUES)[:50] + word[at + draw.randrange(2) :], *words[place + 1 :]]


def _plausible(kind: Any, draw: random.Random) -> str:
    """A value of the kind of a setting, if perhaps out of its range."""
    if typing.get_origin(kind) is typing.Literal:
        return draw.choice(typing.get_args(kind))
    if kind is bool:
        return draw.choice(("true", "false"))
    return draw.choice(NUMBERS)


def _changed_bytes(content: bytes, draw: random.Random) -> bytes:
    at, end = sorted(draw.randrange(len(content) + 1) for _ in range(2))
    piece = draw.choice(PIECES).encode(errors="surrogateescape")
    lines = content.split(b"\n")
    line = draw.randrange(len(lines))
    key, colon, _ = lines[line].partition(b": ")
    return [
        content[:at] + piece + content[at:],
        content[:at] + piece + content[end:],
        content[:at],
        content[:at] + bytes([draw.randrange(256)]) + content[at + 1 :],
        b"\n".join([*lines[:line], key + colon + piece, *lines[line + 1 :]]),
        b"\n".join([*lines[:line], key + colon + draw.choice(VALUES).encode(errors="replace"), *lines[line + 1 :]]),
        b"\n".join([*lines, lines[line]]),
    ][draw.randrange(7)]


def faults(case: Case, outcome: Outcome) -> Iterator[str]:
    """What is wrong with how a case ended."""
    if outcome.code == "hang":
        yield f"hang: no end after {outcome.seconds:.0f} s"
        return
    if outcome.code not in CODES:
        yield f"exit code {outcome.code}"
    if "a fault of isobatch" in outcome.err or "Exception " in outcome.err:  # the latter of a thread or a destructor
        yield "traceback: " + (outcome.err.strip().splitlines() or [""])[-1][:200]
    complaints = [line for line in outcome.err.splitlines() if line.startswith("isobatch: ")]
    if outcome.code == 2 and (len(complaints) != 1 or outcome.err.strip().splitlines()[-1:] != complaints):
        yield f"complaint: {outcome.err[-200:]!r} is not one line"
    helps = {"-h", "--help", "--help-all", "help", "-V", "--version"}
    if outcome.code == 0 and "--json" in case.words and not helps & set(case.words):
        yield from _wrong_results(outcome.out)


def _wrong_results(out: str) -> Iterator[str]:
    try:
        answer = json.loads(out)
    except ValueError:
        yield f"result: {out[:100]!r} is not one JSON object"
        return
    after = answer.get("after", {})
    for name, value in after.items():
        if value is None and answer["before"].get(name) is not None:
            yield f"result: {name} is not a finite number"


def serve(connection: Connection) -> None:
    """Run cases that come through a pipe."""
    from isobatch.cli import verify
    from isobatch.cli.main import main
    from isobatch.planning import plan
    from isobatch.studies import runner
    from isobatch.training import devices, stages, trainer
    from isobatch.tuning import tune

    def not_trained(*args: Any, **kwargs: Any) -> Any:
        from isobatch.errors import RunError

        raise RunError("not trained while fuzzing")

    trainer.train = stages.train = verify._train = tune.run = plan.Machine = runner.run_study = not_trained
    devices.use_cores = lambda *args, **kwargs: None
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    path = list(sys.path)
    while True:
        case = connection.recv()
        if case is None:
            return
        with tempfile.TemporaryDirectory(prefix="isobatch-fuzz-") as folder:
            connection.send(_run(main, case, Path(folder)))
        sys.path[:] = path


class Hang(BaseException):
    pass


TIMERS = ((signal.ITIMER_PROF, signal.SIGPROF, SECONDS), (signal.ITIMER_REAL, signal.SIGALRM, PATIENCE))


def _run(main: Any, case: Case, folder: Path) -> Outcome:
    hung = False

    def ring(*_: Any) -> None:
        nonlocal hung
        hung = True
        raise Hang

    for name, content in case.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    os.chdir(folder)
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=case.encoding, write_through=True) for _ in range(2)]
    begun = time.monotonic()
    for timer, sent, seconds in TIMERS:
        signal.signal(sent, ring)
        signal.setitimer(timer, seconds)
    code: int | str
    try:
        with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
            code = main(case.words)
    except BaseException as error:
        code = f"{type(error).__name__} left the command: {error}"
    finally:
        for timer, *_ in TIMERS:
            signal.setitimer(timer, 0)
        os.chdir("/")
    out, err = (stream.buffer.getvalue().decode(errors="replace") for stream in streams)  # type: ignore[attr-defined]
    return Outcome("hang" if hung else code, out, err, time.monotonic() - begun)


class Worker:
    """A process that runs cases, and is started again after one that it does not survive."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other,), daemon=True)
        self.process.start()
        other.close()
        self.case: tuple[str, Case] | None = None
        self.begun = 0.0

    def give(self, name: str, case: Case) -> None:
        self.case, self.begun = (name, case), time.monotonic()
        self.connection.send(case)

    def take(self, patience: float) -> Outcome | None:
        """How the case ended; None while it has not."""
        try:
            if self.connection.poll(0.01):
                return self.connection.recv()
        except EOFError:
            self.process.join()
            return Outcome(f"the process ended with {self.process.exitcode}", "", "", time.monotonic() - self.begun)
        if time.monotonic() - self.begun > patience:
            return Outcome("hang", "", "", time.monotonic() - self.begun)
        return None

    def end(self) -> None:
        self.process.kill()
        self.process.join()


def run_cases(cases: list[tuple[str, Case]], jobs: int) -> Iterator[tuple[str, Case, Outcome]]:
    """Every case and how it ended, in the order in which they end."""
    left, workers = list(reversed(cases)), [Worker() for _ in range(min(jobs, len(cases)))]
    patience = dict.fromkeys(map(id, workers), 120.0)  # the first case waits for imports
    try:
        while left or any(worker.case for worker in workers):
            for i, worker in enumerate(workers):
                if worker.case is None:
                    if left:
                        worker.give(*left.pop())
                    continue
                outcome = worker.take(patience[id(worker)])
                if outcome is None:
                    continue
                yield (*worker.case, outcome)
                worker.case = None
                patience[id(worker)] = PATIENCE + GRACE
                if not worker.process.is_alive() or outcome.seconds > PATIENCE + GRACE:
                    worker.end()
                    workers[i] = Worker()
                    patience[id(workers[i])] = 120.0
    finally:
        for worker in workers:
            worker.end()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--files", type=int, default=2_000)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=max(1, len(os.sched_getaffinity(0))))
    parser.add_argument("--only", metavar="line-N|file-N", help="repeat one case and show everything")
    args = parser.parse_args()
    os.environ["ISOBATCH_TRACEBACK"] = "1"
    with tempfile.TemporaryDirectory(prefix="isobatch-fuzz-state-") as state:
        os.environ["XDG_STATE_HOME"] = state
        cases = [(f"line-{n}", command_line(args.seed, n)) for n in range(args.lines)]
        cases += [(f"file-{n}", hostile_file(args.seed, n)) for n in range(args.files)]
        if args.only:
            cases = [(name, case) for name, case in cases if name == args.only]
        failed = _report(cases, args.jobs, bool(args.only))
    if args.kills:
        failed += subprocess.run([sys.executable, KILLS, "--kills", str(args.kills)], check=False).returncode != 0
    return 1 if failed else 0


def _report(cases: list[tuple[str, Case]], jobs: int, everything: bool) -> int:
    begun, codes, failed, slowest = time.monotonic(), collections.Counter[str](), 0, ("", 0.0)
    for name, case, outcome in run_cases(cases, jobs):
        codes[str(outcome.code)] += 1
        slowest = max(slowest, (name, outcome.seconds), key=lambda pair: pair[1])
        wrong = list(faults(case, outcome))
        failed += bool(wrong)
        for fault in wrong:
            print(f"{name}: {fault}\n    isobatch {' '.join(map(ascii, case.words))[:300]}", flush=True)
        if everything:
            for path, content in case.files.items():
                print(f"--- {path}\n{content.decode(errors='backslashreplace')[:2000]}")
            print(f"--- exit {outcome.code}\n{outcome.out[:3000]}\n--- standard error\n{outcome.err[-5000:]}")
    counts = ", ".join(f"{count:,} with {code}" for code, count in sorted(codes.items()))
    print(f"{len(cases):,} cases in {time.monotonic() - begun:.0f} s: {counts}.")
    print(f"{failed:,} failures. The slowest, {slowest[0]}, took {slowest[1]:.1f} s.")
    return failed


if __name__ == "__main__":
    sys.exit(main())
