"""Per-sample gradients, one row each, for any network.

Convention: the gradient of a sample is that of its own loss, unscaled, so that the mean over a batch is the gradient of
the batch's mean loss.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from isobatch.laboratory.layers import Losses, num_samples

MOST_SAMPLES = 8192  # that are differentiated at the same time: what a network keeps of each of them takes memory
MOST_NUMBERS = 2**21  # in them: a convolution keeps some hundred times as many as there are in its image


def per_sample_gradients(
    losses: Losses, network: PyTree, samples: PyTree, microbatch: int = 256
) -> Float[Array, "n P"]:
    """g_n = d loss_n / d parameters, [n, P]; `microbatch` of them are computed at a time."""

    def gradient(sample: PyTree) -> Float[Array, " P"]:
        alone = jax.tree.map(lambda leaf: leaf[None], sample)
        return ravel_pytree(jax.grad(lambda net: losses(net, alone)[0])(network))[0]

    return jax.lax.map(gradient, samples, batch_size=min(microbatch, num_samples(samples)))


def at_once(samples: PyTree) -> int:
    """Samples like these that are differentiated at the same time."""
    numbers = sum(math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(samples))
    return max(1, min(MOST_SAMPLES, MOST_NUMBERS // numbers))


def mean_gradient(losses: Losses, network: PyTree, samples: PyTree) -> Float[Array, " P"]:
    """The gradient of the mean loss, [P]; of many large samples piece by piece, to bound the memory."""
    count, most = num_samples(samples), at_once(samples)
    pieces = -(-count // most)
    if pieces == 1:
        return ravel_pytree(jax.grad(lambda net: jnp.mean(losses(net, samples)))(network))[0]
    size = -(-count // pieces)
    padding = pieces * size - count

    def cut(leaf: Array) -> Array:
        filled = jnp.concatenate([leaf, jnp.repeat(leaf[-1:], padding, axis=0)])
        return filled.reshape(pieces, size, *leaf.shape[1:])

    weight = jnp.concatenate([jnp.full(count, 1 / count), jnp.zeros(padding)]).reshape(pieces, size)

    def add(total: Array, piece: tuple[PyTree, Array]) -> tuple[Array, None]:
        return total + _gradient(losses, network, *piece), None

    nothing = jnp.zeros(sum(leaf.size for leaf in jax.tree.leaves(network)))
    return jax.lax.scan(add, nothing, (jax.tree.map(cut, samples), weight))[0]


def _gradient(losses: Losses, network: PyTree, samples: PyTree, weight: Float[Array, " n"]) -> Float[Array, " P"]:
    return ravel_pytree(jax.grad(lambda net: jnp.sum(weight * losses(net, samples)))(network))[0]
