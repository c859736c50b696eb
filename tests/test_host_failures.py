"""Environments that misbehave stop the run with one sentence and nothing is lost; runs that stopped are resumed."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import host_envs  # registers its environments
import pytest
from tiny import flags, tiny

import isobatch as ib
from isobatch.checkpoints import Checkpoints
from isobatch.loading import load_run
from isobatch.metrics import METRICS
from isobatch.trainer import train
from isobatch.verification import first_difference, state_difference

pytestmark = pytest.mark.xdist_group("host failures")
ASYNC = "async"


def evil(deed: str, only: Path | None = None, **settings) -> ib.Config:
    """All environments misbehave at their 30th step, in iteration 3 of 8 steps each; with `only` one does, once."""
    kwargs = {"deed": deed} | ({} if only is None else {"only": str(only)})
    return tiny("ppo", "host_envs:Evil-v0", env_kwargs=kwargs, total_timesteps=32 * 6, **settings)


@pytest.mark.parametrize(
    ("deed", "vectorization", "says"),
    [
        (
            "raise",
            "sync",
            r"environment 0 \(host_envs:Evil-v0\) raised ZeroDivisionError in step\(\): the cart has left",
        ),
        ("raise", ASYNC, r"raised ZeroDivisionError in step\(\): the cart has left the universe"),
        ("nan-observation", "sync", r"environment 0 .* showed an observation that is not a finite number"),
        ("inf-reward", "sync", r"environment 0 .* showed a reward that is not a finite number"),
        ("shape", "sync", r"environment 0 .* showed an observation of shape \(3,\), having promised \(2,\)"),
        ("shape", ASYNC, r"showed an observation of shape \(3,\), having promised \(2,\)"),
        ("hang", "sync", r"environment 0 .* did not answer within 4 seconds"),
        ("hang", ASYNC, r"environment \d .* did not answer within 4 seconds"),
        ("die", ASYNC, r"environment \d .* died: its process ended with code 3"),
    ],
)
def test_what_an_environment_does_wrong_is_said_and_all_before_is_kept(
    deed: str, vectorization: str, says: str, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    config = evil(deed, vectorization=vectorization)
    begin = time.monotonic()
    with pytest.raises(ib.RunError, match=says) as caught:
        train(config, run_dir=tmp_path / "run", env_timeout=4.0 if deed == "hang" else 60.0)
    assert "at its step 29." in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "Traceback" not in capfd.readouterr().err
    assert time.monotonic() - begin < 100
    assert Checkpoints(tmp_path / "run" / "checkpoints", read_only=True).iterations()[-1] == 3
    assert load_run(tmp_path / "run").iteration == 3
    assert (tmp_path / "run" / METRICS).read_text().splitlines()[-1].startswith("3,")


@pytest.mark.parametrize(
    ("deed", "vectorization", "says"),
    [
        ("die", ASYNC, "died: its process ended with code 3, at its step 29."),
        ("hang", ASYNC, "did not answer within 9 seconds (env_timeout), at its step 29."),
        ("hang", "sync", "did not answer within 9 seconds (env_timeout), at its step 29."),
    ],
)
def test_a_failure_costs_one_sentence_and_exit_code_1(deed: str, vectorization: str, says: str, tmp_path: Path) -> None:
    process = start(tmp_path / "run", evil(deed, vectorization=vectorization), "--env-timeout", "9")
    said = process.communicate(timeout=200)[1].decode()
    assert process.returncode == 1
    assert "Traceback" not in said
    assert says in said.splitlines()[-1]


def test_a_run_that_an_environment_stopped_is_resumed_bit_for_bit(tmp_path: Path) -> None:
    """The fault happens once. With two iterations a line the third one is a line of its own, and the fourth too."""
    done = tmp_path / "done"
    config = evil("raise", done)
    with pytest.raises(ib.RunError, match="raised"):
        train(config, run_dir=tmp_path / "run", log_interval=2)
    assert done.exists()
    train(config, run_dir=tmp_path / "run", log_interval=2, resume=True)
    train(config, run_dir=tmp_path / "undisturbed", log_interval=2)
    ends = [line.split(",")[0] for line in (tmp_path / "run" / METRICS).read_text().splitlines()[1:]]
    assert ends == ["2", "3", "4", "6"]
    assert state_difference(tmp_path / "run", tmp_path / "undisturbed") is None


WALK = tiny("ppg-ewma", "host_envs:Walk-v0", staleness=1, stale_objective="decoupled", total_timesteps=32 * 301)
OPTIONS = ["--checkpoint-interval", "20", "--log-interval", "7", "--num-seeds", "2", "--quiet", "--json"]


def start(run_dir: Path, config: ib.Config, *more: str) -> subprocess.Popen:
    words = [sys.executable, "-m", "isobatch", "train", *flags(config), *OPTIONS, "--run-dir", str(run_dir), *more]
    path = os.pathsep.join([str(Path(host_envs.__file__).parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        words, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def killed_and_resumed(run_dir: Path, config: ib.Config) -> str:
    """Standard error of the run that went on after a kill."""
    process = start(run_dir, config)
    end = time.monotonic() + 200
    while not list(run_dir.glob("checkpoints/0000000[2-9]?")):
        assert process.poll() is None, process.communicate()[1].decode()
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    resumed = start(run_dir, config, "--resume")
    said = resumed.communicate(timeout=300)[1].decode()
    assert resumed.returncode == 0, said
    return said


def test_killed_and_resumed_bit_for_bit(tmp_path: Path) -> None:
    """Episodes in progress are had again from their seeds and actions."""
    undisturbed = start(tmp_path / "undisturbed", WALK)
    assert "new episodes" not in undisturbed.communicate(timeout=300)[1].decode()
    said = killed_and_resumed(tmp_path / "run", WALK)
    assert "new episodes" not in said
    assert first_difference(tmp_path / "undisturbed", tmp_path / "run") is None


def test_where_episodes_cannot_be_had_again_it_is_said(tmp_path: Path) -> None:
    config = WALK.replace(env_kwargs={"noise": "wild"})
    said = killed_and_resumed(tmp_path / "run", config)
    assert "did not come back to where they stood and start new episodes" in said
    assert load_run(tmp_path / "run").iteration == 301


def test_whole_episodes_are_resumed_bit_for_bit(tmp_path: Path) -> None:
    """Every iteration begins with a reset: there is nothing to play again, and the seeds go on where they were."""
    config = tiny("reinforce", "host_envs:Walk-v0", num_steps=40, total_timesteps=160 * 3)
    train(config, run_dir=tmp_path / "undisturbed", checkpoint_interval=1)
    shutil.copytree(tmp_path / "undisturbed", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "000000003")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "000000002")
    train(config, run_dir=tmp_path / "run", checkpoint_interval=1, resume=True)
    assert first_difference(tmp_path / "undisturbed", tmp_path / "run") is None


def test_other_modes_say_at_start_what_resuming_means(tmp_path: Path) -> None:
    said: list[str] = []
    config = tiny("ppo", "host_envs:Walk-v0", autoreset="same-step", total_timesteps=32 * 2)
    train(config, run_dir=tmp_path / "run", say=said.append, checkpoint_interval=1)
    assert any("starts new episodes" in sentence for sentence in said)
