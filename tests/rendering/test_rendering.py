"""Pictures show what happens, videos hold every frame, and a policy can be watched at its own speed."""

import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from trained import Runs

import isobatch as ib
from isobatch.cli.main import main
from isobatch.envs import make_env
from isobatch.policies.evaluation import evaluate
from isobatch.rendering.canvas import CHALK, INK, NIGHT, PAPER, RED, WOOD, Canvas, captioned, fit, resized
from isobatch.rendering.jax_scenes import PAINTINGS
from isobatch.rendering.minatar import GAMES, GRID, board
from isobatch.rendering.open_scene import open_scene
from isobatch.rendering.playing import END_SECONDS, watch
from isobatch.rendering.scenes import Frame, frames
from isobatch.rendering.terminal import Blocks, terminal, view
from isobatch.rendering.video import find_ffmpeg
from isobatch.training.loading import load_run

pytestmark = pytest.mark.xdist_group("trained")


def where(image: np.ndarray, color: tuple[int, int, int], off: int = 0) -> np.ndarray:
    """Rows and columns of the pixels of a color, or of one not further `off`: thin lines are only nearly so."""
    return np.argwhere(np.abs(image.astype(int) - color).max(axis=2) <= off)


def still(fps: float = 10.0, legend: Any = ()) -> Any:
    """A scene in which nothing happens."""
    return SimpleNamespace(fps=fps, legend=legend, draw=lambda size: np.zeros((4, 6, 3), np.uint8))


@pytest.mark.parametrize("env_id", PAINTINGS)
def test_every_painting_changes_with_the_state(env_id: str) -> None:
    """As large as fits, in bytes, and not the same picture after some steps."""
    scene = open_scene(ib.preset("ppo", env_id))
    env = make_env(env_id)
    scene.reset(0)
    first = scene.draw((120, 80))
    action = np.zeros(env.action_space.shape, np.float32) if hasattr(env.action_space, "shape") else np.int64(0)
    for _ in range(25):
        scene.step(action)
    later = scene.draw((120, 80))
    assert first.dtype == np.uint8
    assert first.shape == later.shape
    assert first.shape[0] <= 80
    assert first.shape[1] <= 120
    assert first.shape[0] == 80 or first.shape[1] == 120
    assert not np.array_equal(first, later)
    assert scene.fps > 0


def test_cart_and_pole_stand_where_the_state_says() -> None:
    paint = PAINTINGS["CartPole-v1"].paint
    left, right = (
        paint(SimpleNamespace(x=x, theta=theta), np.zeros(4), (560, 220)) for x, theta in ((-1.0, 0.0), (1.0, 0.2))
    )
    # 5.6 units of the world are 560 pixels, so x = -1 is column 180 and x = 1 column 380.
    assert abs(where(left, WOOD)[:, 1].mean() - 180) < 1
    assert where(right, WOOD)[:, 1].min() > 370
    assert where(right, WOOD)[:10, 1].mean() > 395  # it leans to the right: sin 0.2 x 1.1 units


def test_acrobot_hangs_and_stands() -> None:
    paint = PAINTINGS["Acrobot-v1"].paint
    hanging, standing = (
        paint(SimpleNamespace(joint_angle1=np.float32(a), joint_angle2=np.float32(0)), np.zeros(6), (230, 230))
        for a in (0.0, np.pi)
    )
    line = where(hanging, RED, 40)[:, 0].mean()
    assert where(hanging, WOOD)[:, 0].min() > line
    assert where(standing, WOOD)[:, 0].min() < line


def test_boards_have_the_colours_of_their_channels() -> None:
    for game, channels in GAMES.items():
        obs = np.zeros((10, 10, make_env(game).obs_shape[2]), bool)
        for row, channel in enumerate(channels):
            obs[row, 3, channel.index] = True
        image = board(None, obs, (70, 70), game)
        assert image.shape == (70, 70, 3)
        for row, channel in enumerate(channels):
            assert (image[7 * row : 7 * row + 7, 21:28] == channel.color).all()
        assert (image[:, :21] == GRID).all()
    assert (board(None, obs, (400, 300), game)[::30] == NIGHT).all()  # lines between large cells


def test_a_canvas_is_as_large_as_fits() -> None:
    assert fit((100, 100), 2, 1) == (100, 50)
    assert fit((100, 20), 2, 1) == (40, 20)
    canvas = Canvas((100, 100), 0, 0, 10, 5)
    canvas.polygon([(0, 0), (5, 0), (5, 5), (0, 5)], INK)
    image = canvas.image()
    assert image.shape == (50, 100, 3)
    assert (image[:, :49] == INK).all()
    assert (image[:, 51:] == PAPER).all()
    assert resized(image, (20, 20)).shape == (10, 20, 3)
    assert (resized(image, (400, 400))[:, :196] == INK).all()


def test_captions_stand_under_the_picture() -> None:
    image = np.full((60, 240, 3), 7, np.uint8)
    plain = captioned(image, "Env", ("episode 1", "step 2", "return 3.0"))
    longer = captioned(image, "Env", ("episode 1", "step 2", "return 3.0"), [(f"thing {i}", RED) for i in range(9)])
    assert np.array_equal(plain[:60], image)
    assert len(where(plain, CHALK, 40)) > 20
    assert where(plain, CHALK, 40)[:, 0].min() > 60
    assert longer.shape[0] > plain.shape[0] + 30  # several lines
    assert plain.shape[0] % 2 == longer.shape[0] % 2 == 0
    assert len(where(longer, RED)) > 9 * 20
    cut = captioned(image, "gymnasium/MountainCarContinuous-v0", ("", "", ""))
    assert where(cut, CHALK, 40)[:, 1].max() < 0.42 * 240  # where the facts begin


def test_frames_are_whole_episodes(runs: Runs) -> None:
    """Each from its first state to its last; the same seed shows the same; returns agree with the evaluation's."""
    path = runs("CartPole-v1")
    agent = ib.load_agent(path)
    scene = open_scene(agent.learned.config)
    shown = list(frames(scene, agent, 2, deterministic=False, seed=3))
    again = list(frames(scene, agent, 2, deterministic=False, seed=3))
    assert [f.facts for f in shown] == [f.facts for f in again]
    assert [f.facts for f in shown] != [f.facts for f in frames(scene, agent, 2, deterministic=False, seed=4)]
    ends = [f for f in shown if f.over]
    assert [f.episode for f in ends] == [1, 2]
    assert len(shown) == sum(f.step for f in ends) + 2
    assert all(f.episode_return == f.step for f in shown)  # one for each step
    loaded = load_run(path)
    returns, _ = evaluate(loaded.config, loaded.states, 30, True, 0)
    played = [f.episode_return for f in frames(scene, agent, 3, deterministic=True, seed=0) if f.over]
    assert returns[0].min() <= np.mean(played) <= returns[0].max()


def test_gif(runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "new" / "episode.gif"
    assert (
        main(["eval", str(runs("CartPole-v1")), "--episodes", "2", "--video", str(out), "--video-episodes", "2"]) == 0
    )
    said = capsys.readouterr().out
    first, second = (float(v) for v in re.search(r"filmed: .* \(seed 0, return ([\d.]+), ([\d.]+)\)", said).groups())
    with Image.open(out) as gif:
        assert gif.n_frames == first + second + 2  # the pauses are longer frames
        assert gif.size[0] == 600
        assert gif.info["duration"] == 20
    assert [path.name for path in out.parent.iterdir()] == ["episode.gif"]


def test_mp4(runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    try:
        ffmpeg = find_ffmpeg()
    except ib.UsageError as missing:
        pytest.skip(str(missing))
    out = tmp_path / "episode.mp4"
    words = ["--episodes", "2", "--video", str(out), "--policy-seed", "1", "--json"]
    assert main(["eval", str(runs("CartPole-v1")), *words]) == 0
    found = json.loads(capsys.readouterr().out)["video"]
    assert found["policy_seed"] == 1
    # Every frame again, as bytes.
    command = [ffmpeg, "-i", str(out), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    read = subprocess.run(command, capture_output=True, check=True)
    assert b"h264" in read.stderr
    assert b"50 fps" in read.stderr
    width, height = (int(n) for n in re.search(rb", (\d+)x(\d+)", read.stderr).groups())
    count = found["returns"][0] + 1 + 50 * END_SECONDS
    assert len(read.stdout) == width * height * 3 * count
    assert [path.name for path in tmp_path.iterdir()] == ["episode.mp4"]


def test_watching_keeps_the_pace() -> None:
    """On time, frames are a tenth of a second apart; a slow display leaves some out, but never the last one."""
    now, times = [0.0], []

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def show(cost: float) -> Any:
        def shown(frame: Frame) -> None:
            times.append((frame.step, now[0]))
            now[0] += cost

        return shown

    episode = [Frame(still(), 1, step, float(step), step == 9) for step in range(10)]
    assert watch(episode, show(0.02), 1.0, lambda: now[0], sleep) == [9.0]
    assert [t for _, t in times] == pytest.approx(np.arange(10) / 10)
    assert now[0] == pytest.approx(1.0 + END_SECONDS)
    now[0], times[:] = 0.0, []
    assert watch(episode, show(0.24), 1.0, lambda: now[0], sleep) == [9.0]
    assert 4 <= len(times) <= 6
    assert times[-1][0] == 9
    assert now[0] == pytest.approx(1.0 + END_SECONDS, abs=0.25)
    now[0], times[:] = 0.0, []
    watch(episode, show(0.0), 4.0, lambda: now[0], sleep)
    assert now[0] == pytest.approx(0.25 + END_SECONDS)


def test_an_interrupt_ends_watching() -> None:
    def show(frame: Frame) -> None:
        if frame.episode == 2:
            raise KeyboardInterrupt

    episodes = [Frame(still(), episode, 0, 5.0, True) for episode in (1, 2, 3)]
    assert watch(episodes, show, 1.0, lambda: 0.0, lambda seconds: None) == [5.0]


def test_blocks_are_two_pixels_a_character() -> None:
    image = np.zeros((3, 4, 3), np.uint8)
    image[0, :2], image[1, 2:], image[2] = (255, 0, 0), (0, 0, 255), (0, 255, 0)
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=20)
    console.print(Blocks(image))
    first, second = console.file.getvalue().splitlines()[:2]
    assert first == "\x1b[38;2;255;0;0;48;2;0;0;0m▀▀\x1b[0m\x1b[38;2;0;0;0;48;2;0;0;255m▀▀\x1b[0m"
    assert second == "\x1b[38;2;0;255;0;48;2;0;255;0m▀▀▀▀\x1b[0m"


def test_a_view_fits_the_screen() -> None:
    legend = tuple((f"thing number {i}", RED) for i in range(8))
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=40, height=20)
    scene = still(legend=legend)
    scene.draw = lambda size: np.zeros((size[1], size[0], 3), np.uint8)
    console.print(view(Frame(scene, 1, 0, 0.0, False), "Env", (40, 20)))
    lines = console.file.getvalue().splitlines()
    assert 17 <= len(lines) <= 20
    assert sum("▀" in line for line in lines) >= 12
    assert any("thing\u00a0number\u00a07" in line for line in lines)


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
        ("play RUN --speed 0", "speed=0 is out of range: use a number above 0."),
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


def test_terminals_that_are_too_small_or_grey() -> None:
    for console, complaint in (
        (Console(file=io.StringIO(), force_terminal=True, width=10, height=5), "10 x 5 characters is too small"),
        (Console(file=io.StringIO(), force_terminal=True, no_color=True, color_system=None), "colors, and this"),
    ):
        with pytest.raises(ib.UsageError, match=complaint), terminal(console, "Env"):
            pass
