"""One running environment that can be looked at, and the frames of episodes in it.

`Scene` is all that video, terminal and window know of environments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import jax
import numpy as np

from isobatch.agent import Agent
from isobatch.config import Config
from isobatch.envs import make_env
from isobatch.envs.interface import Environment
from isobatch.errors import UsageError
from isobatch.rendering import classic_control, minatar
from isobatch.rendering.canvas import Colour, Size

Legend = tuple[tuple[str, Colour], ...]


class Scene(Protocol):
    @property
    def fps(self) -> float:
        """Steps per second at which it is watched."""
        ...

    @property
    def legend(self) -> Legend:
        """What the colours mean, if that needs saying."""
        ...

    def reset(self, seed: int) -> np.ndarray:
        """Begin the episode of this seed; its first observation."""
        ...

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        """Observation, reward, and whether the episode is over."""
        ...

    def draw(self, size: Size) -> np.ndarray:
        """What it looks like now, [height, width, 3] in bytes, as large as fits."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Frame:
    """A moment of an episode. It can be drawn until the next one is asked for."""

    scene: Scene
    episode: int  # from 1
    step: int
    episode_return: float
    over: bool

    @property
    def facts(self) -> tuple[str, str, str]:
        return f"episode {self.episode}", f"step {self.step}", f"return {self.episode_return:,.1f}"


def frames(scene: Scene, agent: Agent, episodes: int, deterministic: bool, seed: int) -> Iterator[Frame]:
    """The agent plays: one frame for each state, the first and the last one too."""
    agent.set_random_seed(seed)
    for episode in range(episodes):
        obs = scene.reset(int(np.random.SeedSequence((seed, episode)).generate_state(1)[0] >> 1))
        step, total, over = 0, 0.0, False
        yield Frame(scene, episode + 1, step, total, over)
        while not over:
            obs, reward, over = scene.step(agent.predict(obs, deterministic=deterministic)[0])
            step, total = step + 1, total + reward
            yield Frame(scene, episode + 1, step, total, over)


class JaxScene:
    """An environment written in JAX, one step at a time."""

    def __init__(self, env: Environment, paint: Callable[..., np.ndarray], fps: float, legend: Legend = ()) -> None:
        self.fps, self.legend = fps, legend
        self._paint = paint
        self._reset, self._step = jax.jit(env.reset), jax.jit(env.step)

    def reset(self, seed: int) -> np.ndarray:
        self._key, key = jax.random.split(jax.random.key(seed))
        self._state, obs = self._reset(key)
        self._obs = np.asarray(obs)
        return self._obs

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        self._key, key = jax.random.split(self._key)
        after = self._step(key, self._state, action)
        self._state, self._obs = after.state, np.asarray(after.obs)
        return self._obs, float(after.reward), bool(after.terminated | after.truncated)

    def draw(self, size: Size) -> np.ndarray:
        return self._paint(jax.device_get(self._state), self._obs, size)

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Painting:
    """How an environment written in JAX is drawn: from state, observation and size to a picture."""

    paint: Callable[[Any, np.ndarray, Size], np.ndarray]
    fps: float
    legend: Legend = ()


# Frame rates as in Gymnasium, where they are higher than those of the simulated time for acrobot and pendulum.
PAINTINGS = {
    "CartPole-v1": Painting(classic_control.cart_pole, 50),
    "Acrobot-v1": Painting(classic_control.acrobot, 15),
    "Pendulum-v1": Painting(classic_control.pendulum, 30),
    "MountainCar-v0": Painting(partial(classic_control.mountain_car, goal=0.5), 30),
    "MountainCarContinuous-v0": Painting(partial(classic_control.mountain_car, goal=0.45), 30),
} | {
    game: Painting(partial(minatar.board, game=game), 10, tuple((c.name, c.colour) for c in reversed(parts)))
    for game, parts in minatar.GAMES.items()
}


def open_scene(config: Config) -> Scene:
    """The environment of a run, to be looked at."""
    if config.env not in PAINTINGS:
        raise UsageError(f"env={config.env!r} cannot be drawn: use a run on {', '.join(PAINTINGS)}.")
    painting = PAINTINGS[config.env]
    return JaxScene(make_env(config.env), painting.paint, painting.fps, painting.legend)
