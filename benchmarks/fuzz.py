"""Does any command line, or any file, end in a traceback, a hang or a wrong result?

    python benchmarks/fuzz.py [--lines 10000] [--files 2000] [--kills 200] [--seed 0] [--jobs 2]

Command lines and files that are valid are mutated, and `isobatch` is called with them inside processes that are used
again, each case with a time limit. `train` is called up to the point where it would begin to train. What counts as a
failure: an error that nobody foresaw, a hang, an exit code other than 0, 1, 2 and 130, several lines of complaint,
`--json` that does not print one object, and a rescaling with a number that is not finite. Cases are functions of the
seed and their number: `--only line-123` repeats one. With --kills, `kills.py` follows.
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

KILLS = Path(__file__).resolve().with_name("kills.py")
SECONDS = 10.0  # of the processor that a case may take
PATIENCE = 60.0  # seconds of the clock, since others may use the processor too
GRACE = 30.0  # more of them until a process that does not answer a signal is ended
CODES = (0, 1, 2, 130)

LINES = [
    "train", "train --algo ppo-ewma --env CartPole-v1 --num-seeds 4 --json",
    "train --algo ppg --env Pendulum-v1 --num-envs 8 --num-steps 256 --total-timesteps 491520 --quiet",
    "train --algo reinforce --num-envs 4 --num-steps 500 --learning-rate 1e-3 --run-dir out",
    "train --algo a2c --env gymnasium/LunarLander-v3 --env-kwargs {gravity:-3} --num-envs 16",
    "train --config settings.yaml --gamma 0.9 --hidden-sizes 64,64 --seed 7",
    "train --preset atari-ppo --env Pong-misc",
    "train --staleness 4 --stale-objective decoupled --noise-scale --normalize-rewards true", "train --resume run",
    "train --resume --run-dir run --total-timesteps 1e6", "train --init-from run", "rescale --to-num-envs 4",
    "rescale --algo ppo-ewma --num-envs 64 --num-steps 256 --to-num-envs 1 --json",
    "rescale --algo ppg-ewma --factor 4 --without phase-batch --json", "rescale run --factor 2 --json",
    "rescale --to-devices 4 --devices 1 --use linear-adam", "rescale --to-optimization-batch 64 --critical-batch 500",
    "rescale --from-zoo zoo.yml --algo ppo --env Inherited-v0 --factor 2",
    "rescale --config settings.yaml --factor 2",
    "rescale --from-cleanrl '--num-envs 8 --num-steps 128 --learning-rate 2.5e-4' --to-num-envs 32 --json",
    "rescale --from-rllib rllib.yaml --factor 2 --as skrl", "rescale --from-skrl skrl.yaml --num-envs 8 --factor 2",
    "rescale --from-torchrl torchrl.yaml --factor 2 --out new.yaml", "rescale --to-num-steps 64 --out out/new.yaml",
    "advise", "advise --num-envs 64 --critical-batch 4000 --json", "advise run --json", "advise --algo a2c --cores 2",
    "advise --action-dim 6 --env-seconds 1e-4 --update-seconds 1e-3 --continuous", "envs", "envs lunar --json",
    "envs envpool/ atari", "study list --json", "study run adam-rule --scale paper", "study report nowhere",
    "eval run --episodes 5 --json", "export run --out policy.npz", "play run --speed 2",
    "plot run --metric losses/policy_loss --out curve.svg", "diagnose run --sections lags --chains 16",
    "verify --env CartPole-v1 --seed 1", "train --help --algo ppg", "rescale --help-all", "help train", "--version",
    "",
]  # fmt: skip
VALUES = [
 "", " ", "0",
    "-1", "1", "2", "3", "7", "1.5", "1e3", "1e17", "1e18", "1e19", "1e308", "1e309", "-1e400", "nan", "inf", "-inf",
    "9" * 30, "9" * 400, "9" * 5000, "0x10", "1_000", "\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT ONE}",
    "2147483647", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808", "true", "False", "on",
    "none", "None", "null", "[]", "[1,2", "1,2,x", "64,", ",", "{}", "{a: 1}", "{a: &a [*a]}", "[" * 1200, "{1: 2}",
    "a: b", "[/x]", "[bold]", ":smile:", "%s", "%(prog)s", "{0}", "--", "-", "---", "-x", "--=", "=", "$(id)", "`id`",
    "'", '"', "\\", "\n", "\t", "\r", "\x1b[2J", "\x07", "\udcff", "\N{GREEK SMALL LETTER PI}", "\N{PILE OF POO}",
    "a" * 10_000, "../..", ".", "..", "/dev/null/x", "/proc/nope/x", "run", "out", "settings.yaml", "missing.yaml",
    "a" * 300 + ".yaml", "*", "~", "CartPole-v1", "CartPole-v9", "Pendulum-v1", "gymnasium/", "envpool/",
    "envpool/Pong-v5", "ALE/Pong-v5", ":Id", "no_such_module:Id", "..:Id", "json:Id", "gymnasium/json:Id",
    "Probe-Delay", "MNISTBandit-bsuite", "ppo", "ppg-ewma", "reinforce", "atari-ppo", "clip", "kl", "envs", "shuffle",
    "decoupled", "sgd", "impala", "newest", "best", "all", "iteration-batch-only", "adam-sqrt", "zoo", "cleanrl",
    "rllib", "skrl", "torchrl",
]  # fmt: skip
NUMBER = re.compile(r"[-+.\de]+")
NUMBERS = [
    "0", "1", "2", "3", "4", "5", "7", "8", "16", "64", "96", "100", "128", "256", "1000", "1024", "4096", "65536",
    "1e6", "1e9", "1e12", "1e15", "1e17", "9223372036854775807", "0.5", "0.9", "0.99", "0.999", "0.9999999999999999",
    "1e-3", "1e-8", "1e-300", "5e-324", "1e300", "1.7e308", "inf", "2147483647",
]  # fmt: skip
PIECES = [
    "num_envs", "env", "algo", "env_kwargs", "hidden_sizes", "learning_rate", "preset", "stale_objective", "gamma",
    "seed", ": ", "\n", "- ", "? ", "[", "]", "{", "}", "&a ", "*a", "<<: *a", "!!int ", "!!float x", "!!timestamp x",
    "!!bool 3", "!!binary ==", "!!python/object/apply:os.getcwd []", "!!set", "|", ">", "#", "'", '"', "\0", "\x1b",
    "\t", "%YAML 9", "---", "...", "2020-13-45", "2020-01-01", "1:30:00", "0x" + "f" * 5000, "1e400", ".nan", "-.inf",
    "~", "=", "\ufeff", "[" * 1200, "{a: " * 600, "\udcff", "1" * 5000, "x" * 100_000, "lin_0.001",
    "!!python/tuple [1]", "dict(a=1)", "num_envs: 0", "env: 5", "self: 1", "iteration,seed,env_steps", ",,,", "nan",
    "inf", "-1", "1e18",
]  # fmt: skip
FILES = {
    "settings.yaml": "algo: ppo-ewma\nenv: CartPole-v1\nnum_envs: 8\nhidden_sizes: [64, 64]\n"
    "env_kwargs: {}\ngamma: 0.9\n",
    "zoo.yml": "defaults: &d\n  n_envs: 8\n  n_timesteps: !!float 1e5\n  policy: 'MlpPolicy'\n"
    "Inherited-v0:\n  <<: *d\n  n_steps: 32\n  batch_size: 256\n  learning_rate: lin_0.001\n  normalize: true\n",
    "rllib.yaml": "train_batch_size: 4000\nminibatch_size: 128\nnum_epochs: 30\nlr: 5.0e-5\nnum_env_runners: 2\n",
    "skrl.yaml": "rollouts: 16\nlearning_epochs: 8\nmini_batches: 2\nlearning_rate: 1.0e-3\ndiscount_factor: 0.99\n",
    "torchrl.yaml": "collector:\n  frames_per_batch: 2048\n  total_frames: 1000000\nloss:\n  mini_batch_size: 64\n"
    "  ppo_epochs: 10\noptim:\n  lr: 3.0e-4\n",
    "run/config.yaml": "algo: ppo\nenv: Probe-Delay\nnum_envs: 4\nnum_steps: 8\nnum_minibatches: 2\n"
    "total_timesteps: 384\n",
    "run/run.json": '{"seed": 0, "num_seeds": 1, "log_interval": 1, "versions": {}}\n',
    "run/metrics.csv": "iteration,seed,env_steps,charts/episodic_return,losses/policy_loss,losses/approx_kl\n"
    "1,0,32,1.0,0.1,0.01\n2,0,64,1.5,0.1,0.01\n",
}
READERS = {
    "settings.yaml": ["rescale --config settings.yaml --factor 2 --json", "advise --config settings.yaml",
                      "train --config settings.yaml"],
    "zoo.yml": ["rescale --from-zoo zoo.yml --algo ppo --env Inherited-v0 --factor 2 --json"],
    "rllib.yaml": ["rescale --from-rllib rllib.yaml --factor 2 --json", "rescale --from-rllib rllib.yaml --factor 2"],
    "skrl.yaml": ["rescale --from-skrl skrl.yaml --num-envs 8 --factor 2 --json"],
    "torchrl.yaml": ["rescale --from-torchrl torchrl.yaml --num-envs 8 --factor 2 --json"],
    "run/config.yaml": ["rescale run --factor 2 --json", "advise run", "train --resume run", "eval run"],
    "run/run.json": ["train --resume run", "eval run", "export run --out policy.npz"],
    "run/metrics.csv": ["advise run --json", "plot run --out curve.svg --json", "train --resume run",
                        "rescale --factor 2 --critical-batch run"],
}  # fmt: skip


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
    name = draw.choice([*setting_fields(), "seed", "num_seeds", "to_num_envs", "factor", "json"])
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
    from isobatch.training import devices, trainer

    def not_trained(*args: Any, **kwargs: Any) -> Any:
        from isobatch.errors import RunError

        raise RunError("not trained while fuzzing")

    trainer.train = verify._train = not_trained
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
        (folder / name).parent.mkdir(exist_ok=True)
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
