"""What an environment written in JAX provides. One environment, no batch axis: the rollout vmaps it.

`step` does not reset: the rollout does, in one place, so that the true next observation is never lost.
"""

from __future__ import annotations

import abc
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from jaxtyping import Array, Bool, Float, Key, PyTree

from isobatch.envs.spaces import Space
from isobatch.errors import UsageError

State: TypeAlias = PyTree


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


class JaxEnvironment(abc.ABC):
    """The class to derive an environment of one's own from, written in JAX. One environment: training vmaps it.

    `reset` and `step` are pure functions that JAX can trace, on a state that is any pytree of arrays, of the same
    shapes and types after every step. `step` does not reset. An object must be hashable, as objects of plain classes
    and frozen dataclasses are; attributes that change are not seen by what is compiled already.

    | attribute      | what it says                                                                     |
    |----------------|----------------------------------------------------------------------------------|
    | `obs_shape`    | of one observation                                                               |
    | `obs_dtype`    | float32, or bool or uint8, which are stored as they are                          |
    | `action_space` | `Discrete`, `MultiDiscrete`, `MultiBinary` or `Box`                              |
    | `max_steps`    | steps of the longest episode; `step` itself says `truncated` when it is reached  |

    Example:
        >>> import isobatch as ib, jax, jax.numpy as jnp
        >>> class Guess(ib.JaxEnvironment):
        ...     obs_shape, action_space, max_steps = (1,), ib.Discrete(2), 1
        ...     def reset(self, key):
        ...         bit = jax.random.bernoulli(key).astype(jnp.float32)
        ...         return bit, bit[None]
        ...     def step(self, key, state, action):
        ...         reward = jnp.where(action == state, 1.0, 0.0)
        ...         return ib.Step(state, state[None], reward, jnp.array(True), jnp.array(False))
        >>> ib.register_env("Guess", Guess())
        'Guess'
    """

    obs_shape: tuple[int, ...]
    obs_dtype: str = "float32"
    action_space: Space
    max_steps: int

    @abc.abstractmethod
    def reset(self, key: Key[Array, ""]) -> tuple[State, Array]:
        """The first state of an episode and its observation [*obs_shape]."""

    @abc.abstractmethod
    def step(self, key: Key[Array, ""], state: State, action: Array) -> Step:
        """Where an action leads; actions of a `Box` are within its bounds."""

    def at_time(self, state: State, time: Array) -> State:
        """The same state with its episode's clock set to `time`; only `staggered_resets` asks for it."""
        raise UsageError(
            f"staggered_resets=True sets the clock of an environment, and {type(self).__name__} has no at_time(state, "
            "time): write it, or drop the setting."
        )
