"""How an iteration batch [T, N] is cut into minibatches. Every epoch uses every sample exactly once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from isobatch.config import MinibatchScheme
from isobatch.geometry import Geometry


def minibatch_indices(key: Key[Array, ""], geometry: Geometry, scheme: MinibatchScheme) -> Int[Array, "M B"]:
    """One epoch: for each minibatch, where its samples stand in the [T, N] batch read row by row."""
    shape = (geometry.num_minibatches, geometry.optimization_batch)
    if scheme == "shuffle":
        return permutation(key, geometry.iteration_batch).reshape(shape)
    # Whole environment rows, as in the reference code; with fewer rows than minibatches each row is cut
    # into chunks of its time, in order.
    samples = jnp.arange(geometry.iteration_batch).reshape(geometry.num_steps, geometry.num_envs)
    return samples.T[permutation(key, geometry.num_envs)].reshape(shape)


def permutation(key: Key[Array, ""], n: int) -> Int[Array, "n"]:
    """A random order of 0 .. n-1."""
    return jax.random.permutation(key, n)
