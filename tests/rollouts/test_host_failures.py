"""Environments that misbehave stop the run with one sentence and nothing is lost; runs that stopped are resumed."""

import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import host_envs  # registers its environments
import numpy as np
import pytest
from needs import one_more_case
from tiny import flags, tiny

import isobatch as ib
from isobatch.envs.host_interface import episode_seed
from isobatch.training.checkpoints import Checkpoints, flatten
from isobatch.training.host_program import HostProgram
from isobatch.training.loading import load_run
from isobatch.training.metrics import EVALUATION_COLUMNS, METRICS, evaluations_of, read_metrics
from isobatch.training.trainer import train
from isobatch.training.verification import first_difference, metrics_difference

pytestmark = pytest.mark.xdist_group("host failures")
ASYNC = "async"
LIMIT = 600  # seconds for a process, also on a busy machine


def evil(deed: str, once: Path, **settings: Any) -> ib.Config:
    """An environment misbehaves at its 30th step, in iteration 3 of 8 steps each, unless the file `once` is there."""
    kwargs = {"deed": deed, "once": str(once)}
    return tiny("ppo", "host_envs:Evil-v0", env_kwargs=kwargs, total_timesteps=32 * 6, **settings)


DEEDS = {
    "raise": "raised ZeroDivisionError in step(): the cart has left the universe, at its step 29.",
    "nan-observation": "showed an observation that is not a finite number, at its step 29.",
    "nan-at-the-end": "showed an observation that is not a finite number, at its step 29.",
    "inf-reward": "showed a reward that is not a finite number, at its step 29.",
    "nan-reward": "showed a reward that is not a finite number, at its step 29.",
    "shape": "showed an observation of shape (3,), having promised (2,), at its step 29.",
    "hang": "did not answer within 4 seconds (env_timeout), at its step 29.",
    "die": "died: its process ended with code 3, at its step 29.",
}
# What a process of its own tells as this one would, by the same check: one of them is enough.
ALIKE = ("nan-at-the-end", "inf-reward", "nan-reward", "shape")
# In this process a death is that of the run, which `killed_and_resumed` is about.
BOTH = [
    pytest.param(deed, how, marks=[one_more_case] * (how == ASYNC and deed in ALIKE))
    for deed in DEEDS
    for how in ("sync", ASYNC)
    if (deed, how) != ("die", "sync")
]


@pytest.mark.parametrize(("deed", "vectorization"), BOTH)
def test_what_an_environment_does_wrong_is_said_and_the_run_goes_on_from_there(
    deed: str, vectorization: str, undisturbed: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    """It happens once. What was completed before is kept, and the resumed run ends with the bits of one left alone."""
    config, run = evil(deed, tmp_path / "done", vectorization=vectorization), tmp_path / "run"
    with pytest.raises(ib.RunError) as caught:
        train(config, run_dir=run, env_timeout=4.0 if deed == "hang" else 60.0)
    place = "0" if vectorization == "sync" else r"\d"  # the first to meet it, or any
    said = rf"environment {place} \(host_envs:Evil-v0\) {re.escape(DEEDS[deed])} All before is kept: .*--resume"
    assert re.match(said, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)
    assert "Traceback" not in capfd.readouterr().err
    assert Checkpoints(run / "checkpoints").iterations()[-1] == 3
    assert (run / METRICS).read_text().splitlines()[-1].startswith("3,")
    train(config, run_dir=run, resume=True)
    assert load_run(run).iteration == 6
    assert metrics_difference(run, undisturbed[vectorization]) is None
    assert parameters(run) == parameters(undisturbed[vectorization])


def test_runs_with_evaluations_that_an_environment_stops(tmp_path: Path) -> None:
    """In training, or in the evaluation after iteration 3, which stays blank; all else is that of one left alone."""
    whole, trained, evaluated = (tmp_path / name for name in ("whole", "trained", "evaluated"))
    train(evil("nothing", tmp_path / "none"), run_dir=whole, eval_interval=5)
    for run, interval, says in ((trained, 5, "environment 0"), (evaluated, 3, "an evaluation failed: environment 0")):
        config = evil("raise", tmp_path / f"done {interval}")
        with pytest.raises(ib.RunError, match=rf"^{says} .* the cart has left .* All before is kept"):
            train(config, run_dir=run, eval_interval=interval)
        train(config, run_dir=run, resume=True)
    assert (trained / METRICS).read_bytes() == (whole / METRICS).read_bytes()
    tables = [read_metrics(run) for run in (evaluated, whole)]
    assert [evaluations_of(table)["iteration"].tolist() for table in tables] == [[6], [5, 6]]
    for name, values in tables[0].items():
        rows = tables[0]["iteration"] > 5 if name in EVALUATION_COLUMNS else slice(None)
        np.testing.assert_array_equal(values[rows], tables[1][name][rows], err_msg=name)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of the same environment that never misbehaves, by the way it is vectorized."""
    folder = tmp_path_factory.mktemp("undisturbed")
    for how in ("sync", ASYNC):
        train(evil("nothing", folder / "done", vectorization=how), run_dir=folder / how)
    return {how: folder / how for how in ("sync", ASYNC)}


def parameters(run: Path) -> dict[str, bytes]:
    return {name: leaf.tobytes() for name, leaf in flatten(load_run(run).states).items()}


@pytest.mark.parametrize("vectorization", ["sync", ASYNC])
@pytest.mark.parametrize("call", ["make", "reset"])
def test_an_environment_that_cannot_be_started_is_named(call: str, vectorization: str, tmp_path: Path) -> None:
    kwargs = {"deed": call, "once": str(tmp_path / "made"), "seed": episode_seed(0, 2, 0)}
    config = tiny("ppo", "host_envs:Evil-v0", env_kwargs=kwargs, total_timesteps=32 * 6, vectorization=vectorization)
    says = (
        rf"environment 2 \(host_envs:Evil-v0\) raised ConnectionError in {call}\(\): the port is taken, at its step 0"
    )
    with pytest.raises(ib.RunError, match=says):
        train(config)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("deed", ["die", pytest.param("hang", marks=one_more_case)])
def test_a_failure_costs_one_sentence_and_exit_code_1(deed: str, tmp_path: Path) -> None:
    config = evil(deed, tmp_path / "done", vectorization=ASYNC)
    process = start(tmp_path / "run", config, "--env-timeout", "4")
    said = process.communicate(timeout=LIMIT)[1].decode()
    assert process.returncode == 1
    assert "Traceback" not in said
    assert DEEDS[deed] in said.splitlines()[-1]


def test_a_line_of_metrics_that_a_fault_cut_short(tmp_path: Path) -> None:
    """With two iterations a line the third one is a line of its own, and so is the fourth."""
    config = evil("raise", tmp_path / "done")
    with pytest.raises(ib.RunError, match="raised"):
        train(config, run_dir=tmp_path / "run", log_interval=2)
    train(config, run_dir=tmp_path / "run", log_interval=2, resume=True)
    ends = [line.split(",")[0] for line in (tmp_path / "run" / METRICS).read_text().splitlines()[1:]]
    assert ends == ["2", "3", "4", "6"]


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM, signal.SIGTERM], [signal.SIGHUP]])
def test_a_stop_is_answered_after_an_iteration(
    signals: list[signal.Signals], undisturbed: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after a whole line, which can take many minutes; what is left is done when the run is resumed. SIGTERM may
    come twice, to the process and to its group."""
    config, run, said = evil("nothing", tmp_path / "done"), tmp_path / "run", []
    iterate = HostProgram.iterate

    def interrupted(self: HostProgram, states: Any, hypers: Any, iteration: int) -> Any:
        if iteration == 2:
            for number in signals:
                os.kill(os.getpid(), number)
                time.sleep(0.01)
        return iterate(self, states, hypers, iteration)

    monkeypatch.setattr(HostProgram, "iterate", interrupted)
    result = train(config, run_dir=run, log_interval=6, say=said.append)
    assert result.interrupted
    assert result.env_steps == 3 * 32
    assert [sentence for sentence in said if "Ctrl-C again stops at once" in sentence]
    monkeypatch.undo()
    train(config, run_dir=run, log_interval=6, resume=True)
    assert [line.split(",")[0] for line in (run / METRICS).read_text().splitlines()[1:]] == ["3", "6"]
    assert parameters(run) == parameters(undisturbed["sync"])


def test_environments_leave_signals_to_the_process_that_trains(
    undisturbed: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`timeout` and batch systems send SIGTERM to all processes, a terminal that is closed SIGHUP, and the run could
    not end an iteration without them."""
    config, run = evil("nothing", tmp_path / "done", vectorization=ASYNC), tmp_path / "run"
    iterate, asked = HostProgram.iterate, []

    def terminated(self: HostProgram, states: Any, hypers: Any, iteration: int) -> Any:
        if iteration == 2:
            asked.extend(child.pid for child in multiprocessing.active_children())
            for pid in asked:
                os.kill(pid, signal.SIGTERM)
                os.kill(pid, signal.SIGHUP)
        return iterate(self, states, hypers, iteration)

    monkeypatch.setattr(HostProgram, "iterate", terminated)
    train(config, run_dir=run)
    assert len(asked) == config.num_envs
    assert parameters(run) == parameters(undisturbed[ASYNC])
    assert not multiprocessing.active_children()


WALK = tiny("ppg-ewma", "host_envs:Walk-v0", staleness=1, stale_objective="decoupled", total_timesteps=32 * 121)
OPTIONS = dict(checkpoint_interval=20, log_interval=7, num_seeds=2)


def start(run_dir: Path, config: ib.Config, *more: str) -> subprocess.Popen:
    options = [word for name, value in OPTIONS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    words = [*flags(config), *options, "--quiet", "--json", "--run-dir", str(run_dir), *more]
    path = os.pathsep.join([str(Path(host_envs.__file__).parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", "isobatch", "train", *words],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def killed_and_resumed(run_dir: Path, config: ib.Config) -> str:
    """Standard error of the run that went on after a kill."""
    process = start(run_dir, config)
    end = time.monotonic() + LIMIT
    while not list(run_dir.glob("checkpoints/0000000[2-9]?.checkpoint")):
        assert process.poll() is None, process.communicate()[1].decode()
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    resumed = start(run_dir, config, "--resume")
    said = resumed.communicate(timeout=LIMIT)[1].decode()
    assert resumed.returncode == 0, said
    return said


@one_more_case
def test_killed_and_resumed_bit_for_bit(tmp_path: Path) -> None:
    """Episodes in progress are had again from their seeds and actions."""
    train(WALK, run_dir=tmp_path / "undisturbed", **OPTIONS)
    said = killed_and_resumed(tmp_path / "run", WALK)
    assert "new episodes" not in said
    assert first_difference(tmp_path / "undisturbed", tmp_path / "run") is None


def test_whole_episodes_are_resumed_bit_for_bit(tmp_path: Path) -> None:
    """Every iteration begins with a reset: there is nothing to play again, and the seeds go on where they were."""
    config = tiny("reinforce", "host_envs:Walk-v0", num_steps=40, total_timesteps=160 * 3)
    train(config, run_dir=tmp_path / "undisturbed", checkpoint_interval=1)
    shutil.copytree(tmp_path / "undisturbed", tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / "000000003.checkpoint").unlink()
    (tmp_path / "run" / "checkpoints" / "000000002.checkpoint").unlink()
    train(config, run_dir=tmp_path / "run", checkpoint_interval=1, resume=True)
    assert first_difference(tmp_path / "undisturbed", tmp_path / "run") is None
