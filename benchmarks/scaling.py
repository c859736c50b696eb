"""One run on several devices and processes: are the numbers the same, what does it bring, and what does a kill cost?

    python benchmarks/scaling.py equal        1, 2 and 4 devices, and two processes, for three algorithms
    python benchmarks/scaling.py efficiency   two processes with a core each against one process with one core
    python benchmarks/scaling.py kills        SIGKILL of one of two processes, resumed, 20 times

Each writes its table into benchmarks/results/scaling-NAME.md. For speed the machine should do nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
ALGORITHMS = ("ppo", "ppo-ewma", "ppg-ewma")
SMALL = "--env CartPole-v1 --num-envs 16 --num-steps 64 --total-timesteps 20480 --log-interval 1 --lr-schedule constant"
PPG = "--policy-iterations-per-phase 5 --aux-minibatches 4"
LARGE = {
    "MLP 2 x 256, minibatches of 16,384 (CartPole)": "--env CartPole-v1 --num-envs 512 --num-steps 128 "
    "--num-minibatches 4 --update-epochs 4 --hidden-sizes 256,256 --total-timesteps 524288",
    "IMPALA on images, minibatches of 4,096 (Breakout-MinAtar)": "--env Breakout-MinAtar --encoder impala "
    "--channels 16,32,32 --hidden-sizes 256 --num-envs 256 --num-steps 64 --num-minibatches 4 --update-epochs 2 "
    "--total-timesteps 49152",
    "MLP 2 x 64, minibatches of 256 (CartPole, as preset)": "--env CartPole-v1 --total-timesteps 102400",
}


def isobatch(words: str, run: Path, cores: str | None = None, **environment: str) -> subprocess.Popen[bytes]:
    pinned = ["taskset", "-c", cores] if cores else []
    command = [*pinned, sys.executable, "-m", "isobatch", *words.split(), "--quiet", "--json"]
    command += [] if "--resume" in words else ["--run-dir", str(run)]
    return subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finished(words: str, run: Path, cores: str | None = None, **environment: str) -> dict:
    process = isobatch(words, run, cores, **environment)
    out, err = process.communicate(timeout=3600)
    if process.returncode:
        raise SystemExit(f"{words}: {err.decode()}")
    return json.loads(out) | {"remarks": err.decode().strip()}


def weights(run: Path) -> np.ndarray:
    from isobatch.training.checkpoint_file import read_checkpoint
    from isobatch.training.checkpoints import Checkpoints

    checkpoints = Checkpoints(run / "checkpoints")
    leaves = read_checkpoint(checkpoints.path(checkpoints.iterations()[-1]))[1]
    return np.concatenate([leaf.ravel() for name, leaf in leaves.items() if "/networks/" in name])


def curves(run: Path) -> np.ndarray:
    from isobatch.training.metrics import read_metrics

    table = read_metrics(run)
    return np.stack([table[name] for name in ("losses/value_loss", "losses/entropy")])


def equal(scratch: Path, args: argparse.Namespace) -> Iterator[str]:
    """Of 4 shards on 1, 2 and 4 devices and in two processes: weights after 20 iterations, and how long curves agree.

    With a step size as usual, and with CartPole's ten times larger one, which amplifies what rounding begins.
    """
    yield "| algorithm | step size | 2 devices | 4 devices | 2 processes | curves agree to 1e-4 |"
    yield "|---|---|---|---|---|---|"
    for rate in ("2.5e-4", "2.5e-3"):
        for algo in ALGORITHMS:
            words = f"{SMALL} --algo {algo} --learning-rate {rate} --num-shards 4 {PPG if 'ppg' in algo else ''}"
            runs = [scratch / f"{algo}-{rate}-{kind}" for kind in ("1", "2", "4", "processes")]
            for devices, run in zip((1, 2, 4), runs, strict=False):
                finished(f"train {words} --devices {devices}", run)
            finished(f"launch --num-processes 2 --process-timeout 300 -- train {words} --devices 2", runs[3])
            first, one = weights(runs[0]), curves(runs[0])
            off = [np.linalg.norm(weights(run) - first) / np.linalg.norm(first) for run in runs[1:]]
            apart = [np.abs(curves(run) - one) > 1e-4 * np.abs(one) for run in runs[1:]]
            same = [int(np.argmax(a.any(axis=0))) if a.any() else one.shape[1] for a in apart]
            agree = f"{min(same)} of {one.shape[1]} iterations"
            yield f"| {algo} | {rate} | {' | '.join(f'{x:.0e}' for x in off)} | {agree} |"


def efficiency(scratch: Path, args: argparse.Namespace) -> Iterator[str]:
    """By turns, so that both meet the same machine."""
    yield "| run | 1 process, 1 core | 2 processes, 1 core each | ratio (rounds) | what `train` says |"
    yield "|---|---|---|---|---|"
    for name, words in LARGE.items():
        ratios, speeds = [], []
        for turn in range(args.rounds):
            place = scratch / f"{len(words)}-{turn}"  # no two are equally long
            one = finished(f"train {words}", place / "one", cores="0")
            two = finished(f"launch --num-processes 2 --process-timeout 600 -- train {words}", place / "two")
            speeds.append((one["steps_per_second"], two["steps_per_second"]))
            ratios.append(speeds[-1][1] / speeds[-1][0])
        ours = [f"{statistics.median(column):,.0f} steps/s" for column in zip(*speeds, strict=True)]
        notes = [line for line in two["remarks"].splitlines() if line.startswith("note: 2 devices")]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        yield f"| {name} | {' | '.join(ours)} | {spread} | {' '.join(notes) or 'nothing'} |"


def kills(scratch: Path, args: argparse.Namespace) -> Iterator[str]:
    """Of one of the two, chosen at random, at a random time of a run that is then resumed until it is done."""
    luck = random.Random(args.seed)
    words = "--env CartPole-v1 --num-envs 8 --num-steps 32 --total-timesteps 65536 --num-shards 2 --hidden-sizes 16"
    options = "--checkpoint-interval 20 --log-interval 10"
    launch = "launch --num-processes 2 --process-timeout 60 -- train"
    undisturbed = scratch / "undisturbed"
    clock = time.monotonic()
    finished(f"{launch} {words} {options}", undisturbed)
    seconds = time.monotonic() - clock
    done, named, slowest, identical, runs = 0, 0, 0.0, 0, 0
    while done < args.kills:
        run = scratch / f"run{runs}"
        for _ in range(min(2, args.kills - done)):  # what is left of a run after more is soon over
            goes_on = f"--resume {run}" if (run / "config.yaml").exists() else words
            process = isobatch(f"{launch} {goes_on} {options}", run)
            time.sleep(luck.uniform(0.3, 0.8) * seconds)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            if len(children) < 2:
                process.communicate()
                break
            victim = luck.randrange(2)
            os.kill(int(children[victim]), signal.SIGKILL)
            clock = time.monotonic()
            _, err = process.communicate(timeout=300)
            slowest = max(slowest, time.monotonic() - clock)
            done += 1
            named += f"process {victim} of 2".encode() in err or victim == 0
        finished(f"{launch} --resume {run} {options}" if (run / "config.yaml").exists() else f"{launch} {words}", run)
        runs += 1
        same = (run / "metrics.csv").read_bytes() == (undisturbed / "metrics.csv").read_bytes()
        identical += same and np.array_equal(weights(run), weights(undisturbed))
        print(f"{done} of {args.kills} kills, {identical} of {runs} runs identical", file=sys.stderr, flush=True)
    yield f"{done} kills of one of two processes: the other had ended after at most {slowest:.1f} s, and where it was "
    yield f"left to speak it named the dead one in all but {done - named}; {identical} of {runs} runs identical."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("equal", "efficiency", "kills"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        lines = []
        for line in {"equal": equal, "efficiency": efficiency, "kills": kills}[args.part](Path(scratch), args):
            print(line, flush=True)
            lines.append(line)
    RESULTS.mkdir(exist_ok=True)
    command = f"`python benchmarks/scaling.py {args.part}`"
    (RESULTS / f"scaling-{args.part}.md").write_text(f"{command}\n\n" + "\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
