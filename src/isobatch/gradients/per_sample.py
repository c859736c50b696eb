"""Per-sample gradients, one row each, for any network.

Convention: the gradient of a sample is that of its own loss, unscaled, so that the mean over a batch is the gradient of
the batch's mean loss.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from isobatch.gradients.layers import Losses, num_samples


def per_sample_gradients(losses: Losses, network: Any, samples: Any, microbatch: int = 256) -> Float[Array, "n P"]:
    """g_n = d loss_n / d parameters, [n, P]; `microbatch` of them are computed at a time."""

    def gradient(sample: Any) -> Float[Array, " P"]:
        alone = jax.tree.map(lambda leaf: leaf[None], sample)
        return ravel_pytree(jax.grad(lambda net: losses(net, alone)[0])(network))[0]

    return jax.lax.map(gradient, samples, batch_size=min(microbatch, num_samples(samples)))


def mean_gradient(losses: Losses, network: Any, samples: Any) -> Float[Array, " P"]:
    """The gradient of the mean loss, [P]."""
    return ravel_pytree(jax.grad(lambda net: jnp.mean(losses(net, samples)))(network))[0]
