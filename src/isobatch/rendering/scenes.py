"""One running environment that can be looked at, the frames of episodes in it, and watching them as they are played.

`Scene` is all that video, terminal and window know of environments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import jax
import numpy as np

from isobatch.envs.host_spaces import Action, Observation
from isobatch.errors import RunError
from isobatch.policies.agent import Agent
from isobatch.rendering.canvas import Color, Size
from isobatch.rollouts.evaluation import endless
from isobatch.settings.options import LONGEST_EPISODE

END_SECONDS = 0.8  # seconds that the end of an episode stays
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

    def reset(self, seed: int) -> Observation:
        """Begin the episode of this seed; its first observation."""
        ...

    def step(self, action: Action) -> tuple[Observation, float, bool]:
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


def frames(
    scene: Scene, agent: Agent, episodes: int, deterministic: bool, seed: int, longest: int = LONGEST_EPISODE
) -> Iterator[Frame]:
    """The agent plays: one frame for each state, the first and the last one too.

    RunError if the environment shows a number that is not finite, or an episode has not ended after `longest` steps.
    """
    agent.set_random_seed(seed)
    env = agent.learned.config.env
    for episode in range(episodes):
        obs = scene.reset(int(np.random.SeedSequence((seed, episode)).generate_state(1)[0] >> 1))
        step, total, over = 0, 0.0, False
        check_numbers(env, "an observation", obs, step)
        yield Frame(scene, episode + 1, step, total, over)
        while not over:
            if step >= longest:
                raise endless(env, longest)
            obs, reward, over = scene.step(agent.predict(obs, deterministic=deterministic)[0])
            check_numbers(env, "an observation", obs, step)
            check_numbers(env, "a reward", reward, step)
            step, total = step + 1, total + reward
            yield Frame(scene, episode + 1, step, total, over)


def check_numbers(env: str, what: str, shown: Observation, step: int) -> None:
    for part in jax.tree.leaves(shown):
        array = np.asarray(part)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise RunError(f"an environment ({env}) showed {what} that is not a finite number, at its step {step:,}.")


def watch(
    frames: Iterable[Frame],
    show: Callable[[Frame], None],
    speed: float = 1.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[float]:
    """Show each frame when its time has come, and leave out those that are late; the returns of whole episodes.

    Ctrl-C ends it, as does a window that is closed, which counts as that.
    """
    returns: list[float] = []
    try:
        due = clock()
        for frame in frames:
            frame_time = 1 / (frame.scene.fps * speed)
            late = clock() - due
            if late < frame_time or frame.over or frame.step == 0:
                show(frame)
            if late > 1:  # a compilation, or a stopped process: go on from here rather than hurry after it
                due = clock()
            if frame.over:
                returns.append(frame.episode_return)
                due += END_SECONDS
            due += frame_time
            sleep(max(0.0, due - clock()))
    except KeyboardInterrupt:
        pass
    return returns
