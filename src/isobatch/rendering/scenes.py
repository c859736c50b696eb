"""One running environment that can be looked at, and the frames of episodes in it.

`Scene` is all that video, terminal and window know of environments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from isobatch.policies.agent import Agent
from isobatch.rendering.canvas import Color, Size

Legend = tuple[tuple[str, Color], ...]


class Scene(Protocol):
    @property
    def fps(self) -> float:
        """Steps per second at which it is watched."""
        ...

    @property
    def legend(self) -> Legend:
        """What the colors mean, if that needs saying."""
        ...

    def reset(self, seed: int) -> Any:
        """Begin the episode of this seed; its first observation."""
        ...

    def step(self, action: np.ndarray) -> tuple[Any, float, bool]:
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
