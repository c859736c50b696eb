"""Probe environments: each can be solved on paper and isolates one ability of an algorithm.

They follow Andy Jones' probe ladder and add one about time limits. With discount gamma:

| id                   | what happens                                              | known value              |
|----------------------|-----------------------------------------------------------|--------------------------|
| Probe-Constant       | one step, reward 1                                        | V = 1                    |
| Probe-Observation    | one step, obs is -1 or 1, reward = obs                    | V(obs) = obs             |
| Probe-Delay          | two steps, obs 0 then 1, reward 1 at the end              | V(0) = gamma, V(1) = 1   |
| Probe-Action         | one step, reward 1 for action 1, else -1                  | V = 1 for the best policy |
| Probe-ActionObserved | one step, obs 0 or 1, reward 1 if action = obs, else -1   | V = 1 for the best policy |
| Probe-Truncation     | reward 1 each step, cut off after 5 steps, never ends     | V = 1/(1 - gamma)        |
| Probe-Target         | one step, action a real number, reward -(a - 0.5)^2       | V = 0 for the best policy |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from isobatch.envs.interface import Step
from isobatch.envs.spaces import Box, Discrete, Space


class Clock(NamedTuple):
    time: Int[Array, ""]
    sign: Float[Array, ""]  # -1 or 1, drawn at reset


@dataclass(frozen=True)
class Probe:
    """A probe is its observation and its reward, both functions of the state."""

    action_space: Space
    length: int
    observe: Callable[[Clock], Array]
    reward: Callable[[Clock, Array], Array]
    truncates: bool = False

    obs_shape = (1,)
    obs_dtype = "float32"

    @property
    def max_steps(self) -> int:
        return self.length

    def reset(self, key: Key[Array, ""]) -> tuple[Clock, Array]:
        state = Clock(jnp.zeros((), jnp.int32), jax.random.rademacher(key, (), jnp.result_type(float)))
        return state, self.observe(state)[None]

    def step(self, key: Key[Array, ""], state: Clock, action: Array) -> Step:
        after = Clock(state.time + 1, state.sign)
        over = after.time >= self.length
        never = jnp.zeros((), bool)
        reward = jnp.asarray(self.reward(state, action), jnp.result_type(float)).reshape(())
        ended, cut = (never, over) if self.truncates else (over, never)
        return Step(after, self.observe(after)[None], reward, ended, cut)

    def at_time(self, state: Clock, time: Array) -> Clock:
        return state._replace(time=jnp.asarray(time, state.time.dtype))


def _zero(state: Clock) -> Array:
    return jnp.zeros_like(state.sign)


def _one(state: Clock, action: Array) -> Array:
    return jnp.ones_like(state.sign)


def _bit(state: Clock) -> Array:
    return (state.sign + 1) / 2


PROBES: dict[str, Probe] = {
    "Probe-Constant": Probe(Discrete(2), 1, _zero, _one),
    "Probe-Observation": Probe(Discrete(2), 1, lambda s: s.sign, lambda s, a: s.sign),
    "Probe-Delay": Probe(
        Discrete(2), 2, lambda s: s.time.astype(s.sign.dtype), lambda s, a: jnp.where(s.time == 1, 1.0, 0.0)
    ),
    "Probe-Action": Probe(Discrete(2), 1, _zero, lambda s, a: jnp.where(a == 1, 1.0, -1.0)),
    "Probe-ActionObserved": Probe(Discrete(2), 1, _bit, lambda s, a: jnp.where(a == _bit(s), 1.0, -1.0)),
    "Probe-Truncation": Probe(Discrete(2), 5, _zero, _one, truncates=True),
    "Probe-Target": Probe(Box((1,), (-1.0,), (1.0,)), 1, _zero, lambda s, a: -((a - 0.5) ** 2)),
}
