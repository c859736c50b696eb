"""Is a run that is killed again and again the same, bit for bit, as one that was left alone?

    python benchmarks/kills.py --kills 200

Runs of `isobatch train` are killed with SIGKILL and resumed. Of six kills of a run the first comes when its directory
has just been made, the second while a checkpoint is being written, the others at any time from the start of the
process on. Then it is left to finish, and metrics.csv, every array of the last checkpoint and the list of checkpoints
are compared with those of an undisturbed run. One run in eight has everything that is kept between iterations (PPG's
phases, averaged weights, stale data, several seeds); the others are as small as can be. Each is a process of its own,
forked from one that has imported the package and does nothing else, and finds its programs compiled: so little time
goes where nothing can be lost.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

from isobatch.cli.main import main as isobatch
from isobatch.files import DRAFT
from isobatch.training.checkpoints import Checkpoints
from isobatch.training.run_directory import RunDirectory
from isobatch.training.verification import first_difference

MODULES = (
    "jax",
    "isobatch.training.trainer",
    "isobatch.envs.probes",
    "isobatch.studies.report",
    "isobatch.tuning.tune",
)  # they import all
AIMS = ("creation", "checkpoint", "anywhere", "anywhere", "anywhere", "anywhere")
SHARED = "--env Probe-ActionObserved --num-envs 4 --num-steps 8 --hidden-sizes 8 --total-timesteps 48128"
SETTINGS = {
    "small": "--algo a2c",
    "full": "--algo ppg-ewma --num-minibatches 2 --policy-iterations-per-phase 3 --aux-epochs 2 --aux-minibatches 2 "
    "--staleness 1 --stale-objective decoupled --normalize-rewards --num-seeds 2",
}
FULL_EVERY = 8  # runs
QUICK = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"  # to compile
FORKS = multiprocessing.get_context("forkserver")
Command = Callable[[list[str]], int]


def prepare(temporary: str) -> None:
    """Before the first process: what all of them inherit."""
    cache, said = Path(temporary) / "programs", Path(temporary) / "said"
    os.environ |= {"XLA_FLAGS": QUICK, "JAX_PLATFORMS": "cpu", "ISOBATCH_COMPILE_CACHE": str(cache), "SAID": str(said)}
    FORKS.set_forkserver_preload(["isobatch.cli.train", "isobatch.cli.study", *MODULES])


def start(run: Path, settings: str = "small") -> BaseProcess:
    """Begin the run, or go on with it."""
    flags = [*SHARED.split(), *SETTINGS[settings].split()]
    goes_on = ["--resume", str(run)] if RunDirectory.holds_run(run) else [*flags, "--run-dir", str(run)]
    return launch(["train", *goes_on, "--log-interval", "7", "--checkpoint-interval", "60", "--quiet"])


def launch(words: list[str], command: Command = isobatch) -> BaseProcess:
    process = FORKS.Process(target=_run, args=(command, words), name=" ".join(words))
    process.start()
    return process


def _run(command: Command, words: list[str]) -> None:
    for stream, path in ((1, os.devnull), (2, os.environ["SAID"])):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    sys.exit(command(words))


def said() -> str:
    """What the newest process wrote to its standard error."""
    return Path(os.environ["SAID"]).read_text()


def drafts(directory: Path) -> list[str]:
    try:
        return [name for name in os.listdir(directory) if name.endswith(DRAFT)]
    except FileNotFoundError:
        return []


def condition(aim: str, run: Path, luck: random.Random, seconds: float) -> Callable[[], bool]:
    """Whether the moment has come."""
    if aim == "creation":
        delay, seen = luck.uniform(0, 0.02), [0.0]

        def made() -> bool:
            seen[0] = seen[0] or (time.monotonic() if run.exists() else 0.0)
            return bool(seen[0]) and time.monotonic() - seen[0] >= delay

        return made
    if aim == "checkpoint":
        skip = luck.randrange(8)  # checkpoints that are let pass
        met: set[str] = set()

        def writing() -> bool:
            met.update(drafts(run / "checkpoints"))
            return len(met) > skip and bool(drafts(run / "checkpoints"))

        return writing
    end = time.monotonic() + luck.uniform(0, seconds)
    return lambda: time.monotonic() > end


def kill(process: BaseProcess, due: Callable[[], bool]) -> bool:
    """Kill it when its time has come; False if it was done before."""
    while not due():
        time.sleep(0.0005)
        if not process.is_alive():
            finish(process)
            return False
    process.kill()
    process.join()
    return True


def finish(process: BaseProcess) -> float:
    """Seconds that it took."""
    clock = time.monotonic()
    process.join()
    if process.exitcode:
        raise SystemExit(f"isobatch {process.name} ended with code {process.exitcode}: {said()}")
    return time.monotonic() - clock


def undisturbed(run: Path, settings: str = "small") -> float:
    """Make the run that others are compared with; seconds that it takes with compiled programs at hand."""
    first = run.with_name(f"{run.name}, to compile")
    finish(start(first, settings))
    seconds = finish(start(run, settings))
    if difference(first, run):
        raise SystemExit(f"undisturbed runs differ: {difference(first, run)}")
    return seconds


def difference(one: Path, other: Path) -> str | None:
    kept = [Checkpoints(run / "checkpoints").iterations() for run in (one, other)]
    return first_difference(one, other) or (None if kept[0] == kept[1] else f"checkpoints {kept[0]} and {kept[1]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    luck, kills, drafts_met, partial = random.Random(args.seed), collections.Counter[str](), 0, 0
    runs = identical = 0
    with tempfile.TemporaryDirectory() as temporary:
        prepare(temporary)
        models = {settings: Path(temporary) / settings for settings in SETTINGS}
        seconds = {settings: undisturbed(model, settings) for settings, model in models.items()}
        while kills.total() < args.kills:
            settings = "full" if runs % FULL_EVERY == 0 else "small"
            run = Path(temporary) / f"run {runs} [killed]"
            for aim in AIMS[: args.kills - kills.total()]:
                before, due = set(drafts(run / "checkpoints")), condition(aim, run, luck, seconds[settings])
                if not kill(start(run, settings), due):
                    break
                kills[aim] += 1
                drafts_met += bool(set(drafts(run / "checkpoints")) - before)
                partial += run.exists() and not RunDirectory.holds_run(run)
            finish(start(run, settings))
            found = difference(models[settings], run)
            runs, identical = runs + 1, identical + (found is None)
            print(f"run {runs}, {settings}: {kills.total()} kills, {found or 'identical'}", flush=True)
    aims = ", ".join(f"{count} {aim}" for aim, count in kills.items())
    print(
        f"{kills.total()} kills ({aims}); {partial} left a directory without a run in it, {drafts_met} half a "
        f"checkpoint; {identical} of {runs} runs identical"
    )
    return int(identical < runs)


if __name__ == "__main__":
    sys.exit(main())
