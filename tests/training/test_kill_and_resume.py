"""A run that is killed at any moment and resumed ends with the same bits as one that was left alone."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import pytest
from needs import one_more_case
from tiny import flags, tiny

from isobatch.training.metrics import METRICS
from isobatch.training.trainer import train
from isobatch.training.verification import first_difference

pytestmark = pytest.mark.xdist_group("kill")
LIMIT = 600  # seconds for anything, also on a busy machine
CONFIG = tiny("ppg-ewma", staleness=1, stale_objective="decoupled", total_timesteps=32 * 601, normalize_rewards=True)
OPTIONS = dict(checkpoint_interval=60, log_interval=7, num_seeds=2, eval_interval=28, eval_episodes=2)


def start(run_dir: Path, *more: str) -> subprocess.Popen:
    """On as many devices as tests have, of which bits depend."""
    options = [word for name, value in OPTIONS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    words = [*flags(CONFIG), *options, "--quiet", "--json", "--run-dir", str(run_dir), *more]
    return subprocess.Popen(
        [sys.executable, "-m", "isobatch", "train", *words],
        env=os.environ | {"JAX_NUM_CPU_DEVICES": str(jax.device_count())},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def checkpoints(run_dir: Path) -> list[str]:
    folder = run_dir / "checkpoints"
    return sorted(p.stem for p in folder.iterdir() if p.suffix == ".checkpoint") if folder.is_dir() else []


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("undisturbed") / "run"
    train(CONFIG, run_dir=run_dir, **OPTIONS)
    return run_dir


@pytest.mark.parametrize(
    "stops",
    [
        [signal.SIGKILL],
        pytest.param([signal.SIGKILL, signal.SIGINT], marks=one_more_case),
        pytest.param([signal.SIGKILL, signal.SIGKILL], marks=one_more_case),
    ],
)
def test_killed_and_stopped_and_resumed(stops: list[signal.Signals], undisturbed: Path, tmp_path: Path) -> None:
    """Killed as soon as a checkpoint exists; stopped by Ctrl-C or killed after the next one; a line cut short."""
    run_dir = tmp_path / "run"
    for stop in stops:
        old = {*checkpoints(run_dir), "000000000"}
        process = start(run_dir, *(["--resume"] if len(old) > 1 else []))
        wait_for(lambda old=old: bool(set(checkpoints(run_dir)) - old))
        process.send_signal(stop)
        code = process.wait(LIMIT)
        assert code in ((0, 130) if stop == signal.SIGINT else (-stop,))  # 0 if it was done before the signal came
    with (run_dir / METRICS).open("a") as file:
        file.write("601,19232,0,0.5")  # a line that a kill cut short
    assert start(run_dir, "--resume").wait(LIMIT) == 0
    assert first_difference(undisturbed, run_dir) is None
