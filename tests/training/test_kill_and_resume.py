"""A run that is killed at any moment and resumed ends with the same bits as one that was left alone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny import flags, tiny

from isobatch.training.metrics import METRICS
from isobatch.training.verification import first_difference

CONFIG = tiny("ppg-ewma", staleness=1, stale_objective="decoupled", total_timesteps=32 * 601, normalize_rewards=True)
OPTIONS = ["--checkpoint-interval", "60", "--log-interval", "7", "--num-seeds", "2", "--quiet", "--json"]


def start(run_dir: Path, *more: str) -> subprocess.Popen:
    words = [sys.executable, "-m", "isobatch", "train", *flags(CONFIG), *OPTIONS, "--run-dir", str(run_dir), *more]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for(condition, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.002)


def checkpoints(run_dir: Path) -> list[str]:
    folder = run_dir / "checkpoints"
    return sorted(p.stem for p in folder.iterdir() if p.suffix == ".checkpoint") if folder.is_dir() else []


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("undisturbed") / "run"
    assert start(run_dir).wait(240) == 0
    return run_dir


@pytest.mark.xdist_group("kill")
def test_killed_twice_and_resumed(undisturbed: Path, tmp_path: Path) -> None:
    """Killed as soon as a checkpoint exists, again after the next one, and as if while it wrote a line."""
    run_dir = tmp_path / "run"
    for kill in range(2):
        old = {*checkpoints(run_dir), "000000000"}
        process = start(run_dir, *(["--resume"] if kill else []))
        wait_for(lambda old=old: set(checkpoints(run_dir)) - old)
        time.sleep(0.03 * kill)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with (run_dir / METRICS).open("a") as file:
        file.write("601,19232,0,0.5")  # a line that a kill cut short
    assert start(run_dir, "--resume").wait(240) == 0
    assert first_difference(undisturbed, run_dir) is None


@pytest.mark.xdist_group("kill")
def test_interrupted_run_leaves_a_checkpoint(undisturbed: Path, tmp_path: Path) -> None:
    """Ctrl-C: exit code 130, state kept where it stopped, and resume goes on from there."""
    run_dir = tmp_path / "run"
    process = start(run_dir)
    wait_for(lambda: (run_dir / METRICS).exists() and (run_dir / METRICS).stat().st_size > 0)
    process.send_signal(signal.SIGINT)
    code = process.wait(120)
    assert code in (0, 130)  # 0 if it was done before the signal came
    assert start(run_dir, "--resume").wait(240) == 0
    assert first_difference(undisturbed, run_dir) is None
