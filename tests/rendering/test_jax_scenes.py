"""Pictures of environments written in JAX show their states."""

from types import SimpleNamespace

import numpy as np
import pytest
from pictures import where

import isobatch as ib
from isobatch.envs.registry import make_env
from isobatch.rendering.canvas import NIGHT, RED, WOOD
from isobatch.rendering.jax_scenes import PAINTINGS
from isobatch.rendering.minatar import GAMES, GRID, board
from isobatch.rendering.open_scene import open_scene


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


def test_boards_have_the_colors_of_their_channels() -> None:
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
