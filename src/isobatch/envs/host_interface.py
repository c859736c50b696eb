"""What environments outside JAX provide: a description, and vectors of running copies that step together in NumPy."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from jaxtyping import Array

from isobatch.envs.interface import Environment
from isobatch.envs.spaces import Space
from isobatch.errors import RunError

if TYPE_CHECKING:
    from isobatch.envs.host_spaces import Actions, Observations


class VectorStep(NamedTuple):
    """Where one step led M environments."""

    obs: np.ndarray  # [M, ...], to act on next
    reward: np.ndarray  # [M]
    terminated: np.ndarray
    truncated: np.ndarray
    final: dict[int, np.ndarray]  # the observation an episode ended with, where `obs` is already that of the next one


class XlaStep(NamedTuple):
    """Where one step led M environments, inside a compiled program."""

    obs: Array  # [M, ...]
    reward: Array  # [M]
    terminated: Array
    truncated: Array


class XlaStepper(NamedTuple):
    """How to step M environments from inside a compiled program."""

    handle: np.ndarray  # which both functions take and give back, so that one happens after the other
    send: Callable[[Array, Array], Array]  # handle, actions [M, ...] -> handle
    receive: Callable[[Array], tuple[Array, XlaStep]]  # handle -> handle, where the actions led


class Vector(Protocol):
    """M running environments. A step is sent and its outcome received, so that the caller can work in between."""

    def reset(self, seeds: list[int], which: np.ndarray) -> np.ndarray:
        """Begin new episodes in some of them; observations of all [M, ...]."""
        ...

    def send(self, actions: np.ndarray) -> None: ...

    def receive(self) -> VectorStep: ...

    def xla_stepper(self) -> XlaStepper | None:
        """How to step them from inside a compiled program, if that can be."""
        ...

    def suspects(self) -> list[int]:
        """Places of the environments that have not answered."""
        ...

    def close(self) -> None: ...

    def abandon(self) -> None:
        """Instead of `close`, when an environment does not answer: wait for nothing."""
        ...


class HostEnvironment(abc.ABC):
    """An environment that steps outside the compiled program."""

    obs_shape: tuple[int, ...]
    obs_dtype: str  # how observations are stored: float32, or uint8 where that loses nothing
    action_space: Space
    max_steps: int  # the time limit of an episode; 0: none is known
    observations: Observations  # from what it shows to one array
    actions: Actions  # from actions of a policy to those it takes
    # disabled: we reset; same-step: `VectorStep.final` holds the last observation; next-step: the step after the end of
    # an episode is none, its action is not used, and it leads to the first observation of the next one.
    autoreset: str
    replays: bool  # whether an episode can be had again from its seed and its actions
    in_parallel: bool  # whether environments step while Python does something else
    in_processes: bool  # whether each environment has a process of its own

    @abc.abstractmethod
    def open(self, seeds: list[int]) -> Vector:
        """Running environments, one for each seed."""


AnyEnvironment = Environment | HostEnvironment


class FaultError(RunError):
    """An environment that did what it must not; `place` is where it stands in its vector, if that is known."""

    def __init__(self, what: str, place: int | None = None) -> None:
        super().__init__(what)
        self.what, self.place = what, place


def episode_seed(run_seed: int, env: int, episode: int) -> int:
    """Every episode of every environment of every run has a seed of its own."""
    return int(np.random.SeedSequence((run_seed, env, episode)).generate_state(1)[0] >> 1)  # 31 bits, as EnvPool takes
