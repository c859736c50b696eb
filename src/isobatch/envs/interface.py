"""What an environment written in JAX provides. One environment, no batch axis: the rollout vmaps it.

`step` does not reset: the rollout does, in one place, so that the true next observation is never lost.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Float, Key

from isobatch.envs.spaces import Space

State = Any


class Settings(NamedTuple):
    """How an environment is made, besides its id; all but the last are for environments outside JAX."""

    kwargs: str = "{}"  # JSON
    vectorization: str = "sync"
    autoreset: str = "disabled"
    rescale_actions: bool = False


class Step(NamedTuple):
    """Where one action led. `obs` is the true next observation, also at the end of an episode."""

    state: State
    obs: Array
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]  # the episode ended by itself: nothing follows
    truncated: Bool[Array, ""]  # it was cut off by a time limit: its future has a value


class Described(Protocol):
    """What networks and buffers need to know of an environment, wherever it steps."""

    @property
    def obs_shape(self) -> tuple[int, ...]: ...

    @property
    def obs_dtype(self) -> str:
        """How observations are stored: float32, or smaller where that loses nothing (bool, uint8)."""
        ...

    @property
    def action_space(self) -> Space: ...

    @property
    def max_steps(self) -> int:
        """The time limit of an episode; 0: none is known, which only environments outside JAX may say."""
        ...


@runtime_checkable
class Environment(Described, Protocol):
    """An environment that is part of the compiled program."""

    def reset(self, key: Key[Array, ""]) -> tuple[State, Array]: ...

    def step(self, key: Key[Array, ""], state: State, action: Array) -> Step: ...

    def at_time(self, state: State, time: Array) -> State:
        """The same state with its episode's clock set to `time`."""
        ...
