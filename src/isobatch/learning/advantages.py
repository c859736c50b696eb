"""Generalized advantage estimation (Schulman 2015b)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Scalar = Float[Array, ""] | float


def gae(
    reward: Float[Array, "T N"],
    value: Float[Array, "T N"],
    next_value: Float[Array, "T N"],
    terminated: Bool[Array, "T N"],
    truncated: Bool[Array, "T N"],
    gamma: Scalar,
    lam: Scalar,
) -> Float[Array, "T N"]:
    """A_t = delta_t + gamma lambda (1 - done_t) A_{t+1},  delta_t = r_t + gamma (1 - terminated_t) V'_t - V_t.

    `next_value` V'_t is the value of the state the action led to, also where the episode was truncated:
    an episode that ran out of time still had a future, one that terminated had none.
    """
    delta = reward + gamma * jnp.where(terminated, 0.0, next_value) - value
    decay = gamma * lam * jnp.where(terminated | truncated, 0.0, 1.0)

    def backwards(advantage: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        delta_t, decay_t = step
        advantage = delta_t + decay_t * advantage
        return advantage, advantage

    last = jnp.zeros_like(delta[0])
    return jax.lax.scan(backwards, last, (delta, decay), reverse=True, unroll=8)[1]
