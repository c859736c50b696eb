"""`eval`, `play` and films end with a sentence where an environment hangs, never ends or shows what is no number."""

import io
import time
from pathlib import Path

import pytest
from rich.console import Console
from tiny import tiny
from trained import Runs

from isobatch.cli import console
from isobatch.cli.main import main
from isobatch.training.trainer import train

pytestmark = pytest.mark.xdist_group("trained")
ENV = "stubborn_envs:Stubborn-v0"
LIMITS = ["--env-timeout", "1.5", "--max-episode-steps", "50"]
SAYS = {
    "hang": "did not answer within 1.5 seconds (env_timeout)",
    "inf-reward": "showed a reward that is not a finite number, at its step 2.",
    "nan-observation": "showed an observation that is not a finite number, at its step 2.",
    "endless": "has not ended after 50 steps (max_episode_steps): allow more, or give the environment a time limit.",
}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isobatch.envs.watchdog.CLOSE_SECONDS", 0.2)


@pytest.mark.parametrize("deed", SAYS)
def test_eval(deed: str, runs: Runs, capsys: pytest.CaptureFixture) -> None:
    assert main(["eval", str(runs(ENV, env_kwargs=f"{{deed: {deed or None}}}")), "--episodes", "2", *LIMITS]) == 1
    assert SAYS[deed] in capsys.readouterr().err


@pytest.mark.parametrize("deed", [*SAYS, "hang-picture"])
def test_play(deed: str, runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=60, height=24)
    monkeypatch.setattr(console, "out", screen)
    run = runs(ENV, env_kwargs=f"{{deed: {deed or None}}}")
    assert main(["play", str(run), "--episodes", "1", "--speed", "1000", *LIMITS]) == 1
    assert SAYS.get(deed, SAYS["hang"]) in capsys.readouterr().err


@pytest.mark.parametrize("deed", ["hang-picture", "hang-close", "raise-close", ""])
def test_film(deed: str, runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """A picture that hangs ends it and leaves no file; a close that hangs or raises does not matter."""
    words = ["--episodes", "2", "--video", str(tmp_path / "[film] %d.gif"), *LIMITS]
    code = main(["eval", str(runs(ENV, env_kwargs=f"{{deed: {deed or None}}}")), *words])
    assert code == (1 if deed == "hang-picture" else 0)
    assert len(list(tmp_path.iterdir())) == (0 if code else 1)


@pytest.mark.parametrize("vectorization", ["sync", "async"])
@pytest.mark.parametrize("deed", ["hang-close", "raise-close"])
def test_training_ends_whatever_closing_does(deed: str, vectorization: str) -> None:
    config = tiny(env=ENV, env_kwargs={"deed": deed}, vectorization=vectorization, total_timesteps=32)
    clock = time.monotonic()
    assert not train(config).interrupted
    assert time.monotonic() - clock < 60


def test_a_constructor_that_hangs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """Of the first environment, which is only looked at; it leaves no run directory behind."""
    monkeypatch.setattr("isobatch.envs.gymnasium_backend.START_SECONDS", 0.3)
    assert main(["train", "--env", ENV, "--env-kwargs", "{deed: hang-make}"]) == 1
    said = capsys.readouterr().err
    assert said.endswith(" was not made within 0.3 seconds: see what its constructor waits for.\n")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--env-timeout 0", "env_timeout=0 is out of range"),
        ("--max-episode-steps 0", "max_episode_steps=0 must be"),
        ("--seed 2147483648", "seed=2147483648 must be at most 2147483647."),
    ],
)
def test_bad_limits(words: str, complaint: str, runs: Runs, capsys: pytest.CaptureFixture) -> None:
    for command in ("eval", "play"):
        assert main([command, str(runs("CartPole-v1")), *words.split()]) == 2
        assert complaint in capsys.readouterr().err
