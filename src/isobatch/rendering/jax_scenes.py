"""Environments written in JAX, one step at a time, and how each of them is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np

from isobatch.envs.host_spaces import Action
from isobatch.envs.interface import Environment, State
from isobatch.rendering.canvas import Size
from isobatch.rendering.classic_control import acrobot, cart_pole, mountain_car, pendulum
from isobatch.rendering.minatar import GAMES, board
from isobatch.rendering.scenes import Legend


@dataclass(frozen=True)
class Painting:
    """How an environment is drawn: from state, observation and size to a picture."""

    paint: Callable[[State, np.ndarray, Size], np.ndarray]
    fps: float
    legend: Legend = ()


# Frame rates as in Gymnasium, where they are higher than those of the simulated time for acrobot and pendulum.
PAINTINGS = {
    "CartPole-v1": Painting(cart_pole, 50),
    "Acrobot-v1": Painting(acrobot, 15),
    "Pendulum-v1": Painting(pendulum, 30),
    "MountainCar-v0": Painting(partial(mountain_car, goal=0.5), 30),
    "MountainCarContinuous-v0": Painting(partial(mountain_car, goal=0.45), 30),
} | {
    game: Painting(partial(board, game=game), 10, tuple((c.name, c.color) for c in reversed(parts)))
    for game, parts in GAMES.items()
}


class JaxScene:
    """One environment and how it is drawn."""

    def __init__(self, env: Environment, painting: Painting) -> None:
        self.fps, self.legend = painting.fps, painting.legend
        self._paint = painting.paint
        self._reset, self._step = jax.jit(env.reset), jax.jit(env.step)

    def reset(self, seed: int) -> np.ndarray:
        self._key, key = jax.random.split(jax.random.key(seed))
        self._state, obs = self._reset(key)
        self._obs = np.asarray(obs)
        return self._obs

    def step(self, action: Action) -> tuple[np.ndarray, float, bool]:
        self._key, key = jax.random.split(self._key)
        after = self._step(key, self._state, action)
        self._state, self._obs = after.state, np.asarray(after.obs)
        return self._obs, float(after.reward), bool(after.terminated | after.truncated)

    def draw(self, size: Size) -> np.ndarray:
        return self._paint(jax.device_get(self._state), self._obs, size)

    def close(self) -> None:
        pass
