"""Environments outside JAX draw themselves, are watched and filmed like others, and are played on levels not seen."""

import itertools
import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from needs import needs_procgen
from tiny import tiny
from trained import Runs

import isobatch as ib
from isobatch.cli.main import main
from isobatch.envs.registry import environment_of
from isobatch.rendering.open_scene import open_scene
from isobatch.rendering.scenes import frames
from isobatch.rollouts.evaluation import held_out

pytestmark = pytest.mark.xdist_group("trained")
LEVELS = "{num_levels: 50, start_level: 7}"
PROCGEN = "envpool/FruitbotEasy-v0"  # whose episodes are short for who knows nothing
TINY = dict(encoder="impala", channels="2", activation="relu", arrangement="shared", env_kwargs=LEVELS)


class Drawn(gymnasium.Env):
    """Three steps; its picture gets brighter with each."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 12}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None, fails: str = "") -> None:
        self.render_mode, self.fails = render_mode, fails

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple:
        if self.fails == "step":
            raise ZeroDivisionError("no ground")
        self.time += 1
        return np.zeros(1, np.float32), 2.0, False, self.time == 3, {}

    def render(self) -> np.ndarray:
        if self.fails == "render":
            raise gymnasium.error.DependencyNotInstalled("pip install paint")
        return np.full((6, 8, 3), 50 * self.time, np.uint8)


gymnasium.register("Drawn-v0", Drawn)


def test_frames_of_gymnasium(runs: Runs) -> None:
    agent = ib.load_agent(runs("test_host_scenes:Drawn-v0"))
    scene = open_scene(agent.learned.config)
    assert scene.fps == 12
    seen = [(f.step, f.episode_return, f.over, scene.draw((32, 30))) for f in frames(scene, agent, 1, True, 0)]
    assert [f[:3] for f in seen] == [(0, 0.0, False), (1, 2.0, False), (2, 4.0, False), (3, 6.0, True)]
    for step, *_, image in seen:
        assert image.shape == (24, 32, 3)
        assert (image == 50 * step).all()
    scene.close()


def test_film_of_gymnasium(runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "film.gif"
    assert main(["eval", str(runs("test_host_scenes:Drawn-v0")), "--episodes", "2", "--video", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["video"]["returns"] == [6.0]
    assert out.stat().st_size > 100


@pytest.mark.parametrize(
    ("env", "kwargs", "code", "complaint"),
    [
        ("host_envs:Walk-v0", "{}", 2, "cannot be "),
        ("test_host_scenes:Drawn-v0", "{fails: render}", 2, "needs a package to be drawn: pip install paint"),
        ("test_host_scenes:Drawn-v0", "{fails: step}", 1, "raised ZeroDivisionError"),
    ],
)
def test_what_goes_wrong_is_said(
    env: str, kwargs: str, code: int, complaint: str, runs: Runs, capsys: pytest.CaptureFixture
) -> None:
    assert main(["eval", str(runs(env, env_kwargs=kwargs)), "--episodes", "1", "--video", "film.gif"]) == code
    assert complaint in capsys.readouterr().err


@needs_procgen
def test_frames_of_envpool(runs: Runs) -> None:
    """The same seed shows the same episode, another one another."""
    agent = ib.load_agent(runs(PROCGEN, **TINY))
    scene = open_scene(agent.learned.config)
    first, again, other = (
        [scene.draw((64, 64)).copy() for _ in itertools.islice(frames(scene, agent, 1, False, seed), 10)]
        for seed in (0, 0, 1)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first[0], first[-1])
    assert first[0].shape == (64, 64, 3)
    scene.close()


@needs_procgen
def test_held_out_levels_are_all_levels(runs: Runs, capsys: pytest.CaptureFixture) -> None:
    config = tiny(env=PROCGEN, **TINY)
    others = held_out(config)
    assert environment_of(others).kwargs == {"num_levels": 0, "start_level": 0}
    assert environment_of(config).kwargs["num_levels"] == 50
    run_dir = str(runs(PROCGEN, **TINY))
    assert main(["eval", run_dir, "--episodes", "3", "--held-out", "--sampled"]) == 0
    out = capsys.readouterr().out
    assert "training levels" in out
    assert "all levels" in out
    assert main(["eval", run_dir, "--episodes", "3", "--held-out", "--sampled", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    other = found["held_out"]
    for i in range(2):
        assert other["gap"][i] == pytest.approx(found["return_mean"][i] - other["return_mean"][i])
        assert other["gap_error"][i] == pytest.approx(
            ((found["return_std"][i] ** 2 + other["return_std"][i] ** 2) / 3) ** 0.5
        )


def test_held_out_needs_levels(runs: Runs, capsys: pytest.CaptureFixture) -> None:
    assert main(["eval", str(runs("CartPole-v1")), "--held-out"]) == 2
    assert "--held-out needs a run trained on some levels, and env_kwargs={}" in capsys.readouterr().err
