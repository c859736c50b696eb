"""One Gymnasium environment, watched: whatever it does wrong is said in one sentence.

Worker processes import this module and nothing that imports JAX.
"""

from __future__ import annotations

import copy
import multiprocessing
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import NamedTuple, SupportsFloat, TypedDict, Unpack

import gymnasium
import numpy as np
import numpy.typing as npt

from isobatch.errors import RunError
from isobatch.executors.signals import ENDING


class GuardError(RunError):
    """What an environment did wrong, in fault_text."""


class Recipe(NamedTuple):
    """How an environment is made, and what the first one that was made promised."""

    constructor: Callable[[], gymnasium.Env]
    observation_space: gymnasium.Space
    action_space: gymnasium.Space

    def make(self) -> gymnasium.Env:
        with silent_logger():  # what there is to warn of was said of the first one
            return self.constructor()


class ResetArguments(TypedDict, total=False):
    """What `reset` is called with."""

    seed: int | None
    options: dict[str, object] | None


class Guard(gymnasium.Env[object, object]):
    """Raises `GuardError` where the environment raises, or shows something else than it promised.

    The environment is made at the first reset, not before: then it is known which one fails, hangs or dies over it.
    """

    def __init__(self, recipe: Recipe, place: int, running: list[int]) -> None:
        self.observation_space, self.action_space = recipe.observation_space, recipe.action_space
        self.metadata = {}  # of its own: a vector writes into it
        self.place, self.running = place, running
        self._recipe = recipe
        self._env: gymnasium.Env | None = None
        space = recipe.observation_space
        self._shape = space.shape if isinstance(space, gymnasium.spaces.Box) else None

    def reset(self, **kwargs: Unpack[ResetArguments]) -> tuple[object, dict]:
        self.running[0] = self.place
        call = "make"
        try:
            self._env = self._env or self._recipe.make()
            call = "reset"
            obs, info = self._env.reset(**kwargs)
        except Exception as error:
            raise GuardError(fault_text(call, self.place, error)) from error
        self._check(obs)
        return obs, info

    def step(self, action: object) -> tuple[object, SupportsFloat, bool, bool, dict]:
        self.running[0] = self.place
        try:
            assert self._env is not None  # since the first reset
            obs, reward, terminated, truncated, info = self._env.step(action)
        except Exception as error:
            raise GuardError(fault_text("step", self.place, error)) from error
        self._check(obs)
        if terminated or truncated:  # some show the same array again and again, and a reset would overwrite it
            obs = copy.deepcopy(obs)
        return obs, reward, terminated, truncated, info

    def close(self) -> None:
        if self._env is not None:
            self._env.close()

    def _check(self, obs: npt.ArrayLike) -> None:
        if self._shape is not None:
            if np.shape(obs) != self._shape:
                raise GuardError(
                    f"{self.place}|showed an observation of shape {np.shape(obs)}, having promised {self._shape}"
                )
        elif not self.observation_space.contains(obs):
            raise GuardError(f"{self.place}|showed an observation that is not in the space it promised")


def fault_text(call: str, place: int, error: Exception) -> str:
    text = str(error).splitlines()
    return f"{place}|raised {type(error).__name__} in {call}()" + (f": {text[0]}" if text else "")


@contextmanager
def silent_logger() -> Iterator[None]:
    """Without the warnings of Gymnasium, among them the tracebacks of its workers."""
    level = gymnasium.logger.min_level
    gymnasium.logger.min_level = gymnasium.logger.ERROR + 10
    try:
        yield
    finally:
        gymnasium.logger.min_level = level


def guarded(recipe: Recipe, place: int, running: list[int]) -> Guard:
    """The environment at this place of its vector; `running` is told whose turn it is."""
    is_worker = multiprocessing.parent_process() is not None and current_thread() is main_thread()
    if is_worker:  # not a thread that collects in a process with a job of a grid, which is deaf to them already
        for number in ENDING:  # which all processes may get, for the one that trains
            signal.signal(number, signal.SIG_IGN)
    return Guard(recipe, place, running)
