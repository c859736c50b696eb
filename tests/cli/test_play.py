"""The command `play`, in the terminal and in a window, and what it cannot show."""

import io
import re
import shutil
import sys
from pathlib import Path

import pytest
from rich.console import Console
from trained import Runs

from isobatch.cli.main import main

pytestmark = pytest.mark.xdist_group("trained")


def test_play(runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    from isobatch.cli import console

    screen = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=60, height=24)
    monkeypatch.setattr(console, "out", screen)
    assert main(["play", str(runs("CartPole-v1")), "--episodes", "1", "--speed", "50"]) == 0
    text = re.sub(r"\x1b\[[\d;]*m", "", screen.file.getvalue())
    assert "▀" in text
    assert "\x1b[?1049h" in text  # the whole screen, and back
    assert "\x1b[?1049l" in text
    assert re.search(r"episode +return", text)


def test_window(runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    words = ["play", str(runs("CartPole-v1")), "--episodes", "1", "--speed", "50", "--window"]
    assert main(words) == 2
    assert "--window needs a display, and there is none" in capsys.readouterr().err
    monkeypatch.setattr("isobatch.rendering.window.INVISIBLE_DRIVERS", ())
    assert main(words) == 0
    assert "ppo on CartPole-v1, seed 0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("play RUN", "play needs a terminal, and standard output is none: use --window, or isobatch eval"),
        ("play RUN --speed 0", "speed=0 is out of range: use a number above 0 and finite."),
        ("play RUN --speed fast", "speed='fast' is not valid: use a number."),
        ("play RUN --episodes 0", "episodes=0 must be at least 1."),
        ("play RUN --seed -1", "seed=-1 must be at least 0."),
        ("play RUN --policy-seed 4", "policy_seed=4 is not in this run: use 0 or 1."),
        ("eval RUN --video film.avi", "video='film.avi' has no video's ending: use .gif or .mp4."),
        ("eval RUN --video film.gif --video-episodes 0", "video_episodes=0 must be at least 1."),
        ("eval RUN --video film.gif --policy-seed 4", "policy_seed=4 is not in this run: use 0 or 1."),
        ("eval RUN --video /dev/null/film.gif --episodes 1", "video='/dev/null/film.gif' cannot be written"),
    ],
)
def test_bad_requests(words: str, complaint: str, runs: Runs, capsys: pytest.CaptureFixture) -> None:
    assert main(words.replace("RUN", str(runs("CartPole-v1"))).split()) == 2
    assert complaint in capsys.readouterr().err


def test_places_are_checked_before_anything_is_computed_for_them(
    runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "folder.gif").mkdir()
    (tmp_path / "file").touch()
    run = str(runs("CartPole-v1"))
    assert main(["eval", run, "--video", str(tmp_path / "folder.gif")]) == 2
    assert "folder.gif' is there and is not a file" in capsys.readouterr().err
    assert main(["diagnose", run, "--out", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.startswith(f"isobatch: out='{tmp_path / 'file'}' cannot be written (File exists)")


@pytest.mark.parametrize("command", ["play RUN", "eval RUN --video film.gif"])
def test_what_cannot_be_drawn(command: str, runs: Runs, capsys: pytest.CaptureFixture) -> None:
    assert main(command.replace("RUN", str(runs("Probe-Delay"))).split()) == 2
    assert "env='Probe-Delay' cannot be drawn: of those written in JAX, CartPole-v1, " in capsys.readouterr().err


def test_missing_packages_are_named(runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setitem(sys.modules, "pygame", None)
    assert main(["eval", str(runs("CartPole-v1")), "--video", "film.mp4"]) == 2
    assert "pip install 'isobatch[video]', or use .gif" in capsys.readouterr().err
    assert main(["play", str(runs("CartPole-v1")), "--window"]) == 2
    assert "pip install 'isobatch[window]', or leave it out" in capsys.readouterr().err
