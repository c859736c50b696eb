"""Step sizes that answer to the KL: a rate that follows it, and gradient steps that end when it is too large.

The KL is that of a minibatch, between the behavior policy and the current one before its gradient step, by the estimate
r - 1 - log r (`losses/approx_kl`); rsl_rl and skrl take the same quantity, for Gaussians in closed form.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

FACTOR = 1.5  # by which the rate changes
SLOWEST, FASTEST = 1e-5, 1e-2  # rates
TOLERANCE = 1.5  # times target_kl is where gradient steps end

Scalar = Float[Array, ""] | float


def adapted(rate: Float[Array, ""], kl: Float[Array, ""], desired: Scalar) -> Float[Array, ""]:
    """The rate divided by 1.5 where the KL is above twice the desired one, times 1.5 where it is below half of it.

    As in rsl_rl (`schedule="adaptive"`), between 1e-5 and 1e-2. Before the first step of an iteration the KL is 0, and
    nothing changes. https://github.com/leggedrobotics/rsl_rl
    """
    slower = jnp.maximum(rate / FACTOR, SLOWEST)
    faster = jnp.minimum(rate * FACTOR, FASTEST)
    is_small = (kl < desired / 2) & (kl > 0)
    return jnp.where(kl > 2 * desired, slower, jnp.where(is_small, faster, rate)).astype(rate.dtype)


def is_too_far(kl: Float[Array, ""], target: Scalar) -> Bool[Array, ""]:
    """Whether gradient steps end here: as in Stable-Baselines3, at 1.5 times the target, before the step."""
    return kl > TOLERANCE * target
