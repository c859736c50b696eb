"""Generalized advantage estimation (Schulman et al. 2015, https://arxiv.org/abs/1506.02438)."""

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

    Schulman et al. 2015, equations 11 to 16, https://arxiv.org/abs/1506.02438; truncation as in Pardo et al. 2018,
    https://arxiv.org/abs/1712.00378.

    Args:
        reward, value, next_value: r_t, V_t and V'_t [T, N], of T steps in N environments.
        terminated, truncated: whether step t ended an episode, or a time limit cut it off [T, N].
        gamma: discount.
        lam: lambda; 0 is the one-step estimate, 1 the return minus the value.

    Returns:
        Advantages [T, N]. With the values added they are targets of the value function.

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> zeros, never = jnp.zeros((3, 1)), jnp.zeros((3, 1), bool)
        >>> ended = never.at[2].set(True)
        >>> ib.gae(jnp.ones((3, 1)), zeros, zeros, ended, never, gamma=0.5, lam=1.0).ravel().tolist()
        [1.75, 1.5, 1.0]
    """
    delta = reward + gamma * jnp.where(terminated, 0.0, next_value) - value
    decay = gamma * lam * jnp.where(terminated | truncated, 0.0, 1.0)

    def backwards(advantage: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        delta_t, decay_t = step
        advantage = delta_t + decay_t * advantage
        return advantage, advantage

    last = jnp.zeros_like(delta[0])
    return jax.lax.scan(backwards, last, (delta, decay), reverse=True, unroll=8)[1]
