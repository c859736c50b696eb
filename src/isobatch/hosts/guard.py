"""One Gymnasium environment, watched: whatever it does wrong is said in one sentence.

Worker processes import this module and nothing that imports JAX.
"""

from __future__ import annotations

import multiprocessing
import signal
from typing import Any

import gymnasium
import numpy as np

from isobatch.errors import RunError


class GuardError(RunError):
    """What an environment did wrong, in words."""


class Guard(gymnasium.Wrapper):
    """Raises `GuardError` where the environment raises, or shows something else than it promised."""

    def __init__(self, env: gymnasium.Env, place: int, running: list[int]) -> None:
        super().__init__(env)
        self.place, self.running = place, running
        space = env.observation_space
        self._shape = space.shape if isinstance(space, gymnasium.spaces.Box) else None

    def reset(self, **kwargs: Any) -> Any:
        self.running[0] = self.place
        try:
            obs, info = self.env.reset(**kwargs)
        except Exception as error:
            raise GuardError(words("reset", self.place, error)) from error
        self._check(obs)
        return obs, info

    def step(self, action: Any) -> Any:
        self.running[0] = self.place
        try:
            moved = self.env.step(action)
            obs, reward, terminated, truncated, info = moved
        except Exception as error:
            raise GuardError(words("step", self.place, error)) from error
        self._check(obs)
        return obs, reward, terminated, truncated, info

    def _check(self, obs: Any) -> None:
        if self._shape is not None:
            if np.shape(obs) != self._shape:
                raise GuardError(
                    f"{self.place}|showed an observation of shape {np.shape(obs)}, having promised {self._shape}"
                )
        elif not self.env.observation_space.contains(obs):
            raise GuardError(f"{self.place}|showed an observation that is not in the space it promised")


def words(call: str, place: int, error: Exception) -> str:
    text = str(error).splitlines()
    return f"{place}|raised {type(error).__name__} in {call}()" + (f": {text[0]}" if text else "")


def make_one(env_id: str, kwargs: dict[str, Any], place: int, running: list[int]) -> gymnasium.Env:
    """The environment at this place of its vector."""
    if multiprocessing.parent_process() is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that trains
    return Guard(gymnasium.make(env_id, disable_env_checker=True, **kwargs), place, running)
