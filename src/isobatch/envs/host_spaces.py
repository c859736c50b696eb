"""Spaces of Gymnasium: observations as one array of numbers, actions as this package has them.

| observation                  | what the network sees                                                       |
|------------------------------|-----------------------------------------------------------------------------|
| Box                          | as it is; bytes stay bytes, other numbers become float32                    |
| Discrete                     | one-hot                                                                     |
| MultiDiscrete, MultiBinary   | one-hot after one-hot; zeros and ones                                       |
| Dict, Tuple, also nested     | all parts flattened, one after another: a Dict by sorted keys, a Tuple in order |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias, TypeVar

import numpy as np
from gymnasium import spaces as gym
from jaxtyping import Array, PyTree

from isobatch.envs.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space
from isobatch.errors import UsageError

A = TypeVar("A", np.ndarray, Array)
Observation: TypeAlias = PyTree  # an array, a number, or a dictionary or tuple of them
Action = np.ndarray | np.integer  # of one environment; a single choice is a number
Convert = Callable[[Observation], np.ndarray]


class Observations:
    """From batched observations of a space to one array [M, *shape]."""

    def __init__(self, env_id: str, space: gym.Space) -> None:
        self.space = space
        self.shape: tuple[int, ...]
        self.dtype = "float32"
        if isinstance(space, gym.Box):
            self.shape = tuple(space.shape)
            self.dtype = "uint8" if space.dtype == np.uint8 else "float32"
            if len(self.shape) > 3 or not self.shape:
                raise refusal(env_id, "observations", space, "a Box of one to three axes")
            self.convert: Convert = lambda obs: obs
            return
        parts = _parts(env_id, space, space)
        self.shape = (sum(size for size, _ in parts),)
        self.convert = lambda obs: np.concatenate([flat(obs) for _, flat in parts], axis=1, dtype=np.float32)

    @property
    def is_box(self) -> bool:
        """Whether it is one array as it comes."""
        return isinstance(self.space, gym.Box)

    def is_single(self, obs: Observation) -> bool:
        """Whether this is one observation, not a batch of them."""
        space = self.space
        while isinstance(space, gym.Dict | gym.Tuple):  # any part of it will tell
            parts = dict(space.spaces) if isinstance(space, gym.Dict) else dict(enumerate(space.spaces))
            first, space = next(iter(parts.items()))
            obs = obs[first]
        return np.ndim(obs) == len(space.shape or ())


def batched(obs: Observation) -> Observation:
    """One observation as a batch of one."""
    if isinstance(obs, dict):
        return {key: batched(part) for key, part in obs.items()}
    if isinstance(obs, tuple):
        return tuple(batched(part) for part in obs)
    return np.asarray(obs)[None]


def _parts(env_id: str, space: gym.Space, whole: gym.Space) -> list[tuple[int, Convert]]:
    """Size of each part, and how to get it [M, size] from the batched observation."""
    match space:
        case gym.Dict():
            named = [(key, _parts(env_id, part, whole)) for key, part in sorted(space.spaces.items())]
            return [(n, _within(key, flat)) for key, parts in named for n, flat in parts]
        case gym.Tuple():
            numbered = [(i, _parts(env_id, part, whole)) for i, part in enumerate(space.spaces)]
            return [(n, _within(i, flat)) for i, parts in numbered for n, flat in parts]
        case gym.Discrete():
            table, start = np.eye(int(space.n), dtype=np.float32), int(space.start)
            return [(int(space.n), lambda obs: table[np.asarray(obs).reshape(-1) - start])]
        case gym.MultiDiscrete():
            sizes, starts = space.nvec.ravel(), space.start.ravel()
            return [
                (int(n), _one_hot(i, int(n), int(first)))
                for i, (n, first) in enumerate(zip(sizes, starts, strict=True))
            ]
        case gym.Box() | gym.MultiBinary():
            if len(space.shape) == 3 and space.dtype == np.uint8:
                raise refusal(env_id, "observations", whole, "images alone, without other parts")
            return [(math.prod(space.shape), lambda obs: np.asarray(obs).reshape(len(obs), -1))]
    raise refusal(
        env_id, "observations", whole, "Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these"
    )


def _within(key: str | int, flat: Convert) -> Convert:
    return lambda obs: flat(obs[key])


def _one_hot(place: int, size: int, start: int) -> Convert:
    table = np.eye(size, dtype=np.float32)
    return lambda obs: table[np.asarray(obs).reshape(len(obs), -1)[:, place] - start]


class Actions:
    """The action space, and from actions [M, ...] of a policy to those that the environment takes."""

    def __init__(self, env_id: str, space: gym.Space, rescaled: bool) -> None:
        self.dtype = space.dtype
        self.offset: int | np.ndarray = 0
        self.space: Space
        match space:
            case gym.Discrete():
                self.space, self.offset = Discrete(int(space.n)), int(space.start)
            case gym.MultiDiscrete() if space.nvec.ndim == 1:
                self.space, self.offset = MultiDiscrete(tuple(int(n) for n in space.nvec)), space.start
            case gym.MultiBinary() if len(space.shape) == 1:
                self.space = MultiBinary(int(space.shape[0]))
            case gym.Box() if np.issubdtype(space.dtype, np.floating):
                low, high = (tuple(float(v) for v in bound.ravel()) for bound in (space.low, space.high))
                if rescaled and not np.all(np.isfinite([low, high])):
                    raise UsageError(
                        f"rescale_actions=True needs finite bounds, and the actions of {env_id} are {space}: drop it."
                    )
                self.space = Box(tuple(space.shape), low, high, rescaled)
            case _:
                raise refusal(env_id, "actions", space, "Box, Discrete, MultiDiscrete or MultiBinary")
        self._is_shifted = bool(np.any(self.offset))

    def shifted(self, actions: A) -> A:
        """In the numbers of the environment; also of arrays inside a compiled program."""
        return actions + self.offset if self._is_shifted else actions

    def convert(self, actions: np.ndarray) -> np.ndarray:
        return self.shifted(actions).astype(self.dtype, copy=False)


def refusal(env_id: str, what: str, space: gym.Space, instead: str) -> UsageError:
    return UsageError(f"env={env_id!r} has {what} of the kind {space}, which cannot be learned here: {instead} can.")
