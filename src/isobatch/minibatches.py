"""How [rows, steps] of samples are cut into minibatches. Every epoch uses every sample exactly once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from isobatch.config import MinibatchScheme


def minibatch_indices(
    key: Key[Array, ""], rows: int, steps: int, count: int, scheme: MinibatchScheme
) -> Int[Array, "M B"]:
    """One epoch: for each of `count` minibatches, which samples it holds.

    A sample is numbered as in an array [steps, rows] read line by line: step x rows + row.
    """
    if scheme == "shuffle":
        return permutation(key, rows * steps).reshape(count, -1)
    # Whole rows, as in the reference code; with fewer rows than minibatches each row is cut into chunks of
    # its time, in order.
    samples = jnp.arange(rows * steps).reshape(steps, rows)
    return samples.T[permutation(key, rows)].reshape(count, -1)


def permutation(key: Key[Array, ""], n: int) -> Int[Array, "n"]:
    """A random order of 0 .. n-1."""
    return jax.random.permutation(key, n)
