"""Is a run that is killed again and again the same, bit for bit, as one that was left alone?

    python benchmarks/kills.py --kills 200

Runs of `isobatch train` are killed with SIGKILL and resumed. Of six kills of a run the first comes when its directory
has just been made, the second while a checkpoint is being written, the others at any time from the start of the
process on. Then it is left to finish, and metrics.csv, every array of the last checkpoint and the list of checkpoints
are compared with those of an undisturbed run.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from isobatch.files import DRAFT
from isobatch.training.checkpoints import Checkpoints
from isobatch.training.run_directory import RunDirectory
from isobatch.training.verification import first_difference

AIMS = ("creation", "checkpoint", "anywhere", "anywhere", "anywhere", "anywhere")
SETTINGS = {
    "algo": "ppg-ewma", "env": "Probe-ActionObserved", "num-envs": 4, "num-steps": 8, "num-minibatches": 2,
    "hidden-sizes": 8, "policy-iterations-per-phase": 3, "aux-epochs": 2, "aux-minibatches": 2,
    "total-timesteps": 144128, "staleness": 1, "stale-objective": "decoupled", "normalize-rewards": True,
    "num-seeds": 2, "log-interval": 7,
}  # fmt: skip
FLAGS = [word for name, value in SETTINGS.items() for word in (f"--{name}", str(value))]
QUICK = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"  # to compile


def start(run: Path) -> subprocess.Popen[bytes]:
    goes_on = ["--resume", str(run)] if RunDirectory.holds_run(run) else [*FLAGS, "--run-dir", str(run)]
    command = [sys.executable, "-m", "isobatch", "train", *goes_on, "--checkpoint-interval", "60", "--quiet"]
    environment = os.environ | {"XLA_FLAGS": QUICK, "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


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


def kill(run: Path, aim: str, luck: random.Random, seconds: float) -> bool:
    """Start or resume the run and kill it; False if it was done before."""
    due, process = condition(aim, run, luck, seconds), start(run)
    while not due():
        time.sleep(0.0002)
        if process.poll() is not None:
            said = process.communicate()[1].decode()
            if process.returncode:
                raise SystemExit(f"{run} ended with code {process.returncode}: {said}")
            return False
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    return True


def finish(run: Path) -> float:
    """Seconds that it took."""
    clock, process = time.monotonic(), start(run)
    said = process.communicate()[1].decode()
    if process.returncode:
        raise SystemExit(f"{run} ended with code {process.returncode}: {said}")
    return time.monotonic() - clock


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
        undisturbed = Path(temporary) / "undisturbed"
        seconds = finish(undisturbed)
        while kills.total() < args.kills:
            run = Path(temporary) / f"run {runs} [killed]"
            for aim in AIMS[: args.kills - kills.total()]:
                before = set(drafts(run / "checkpoints"))
                if not kill(run, aim, luck, seconds):
                    break
                kills[aim] += 1
                drafts_met += bool(set(drafts(run / "checkpoints")) - before)
                partial += run.exists() and not RunDirectory.holds_run(run)
            finish(run)
            found = difference(undisturbed, run)
            runs, identical = runs + 1, identical + (found is None)
            print(f"run {runs}: {kills.total()} kills, {found or 'identical'}", flush=True)
    aims = ", ".join(f"{count} {aim}" for aim, count in kills.items())
    print(
        f"{kills.total()} kills ({aims}); {partial} left a directory without a run in it, {drafts_met} half a "
        f"checkpoint; {identical} of {runs} runs identical"
    )
    return int(identical < runs)


if __name__ == "__main__":
    sys.exit(main())
