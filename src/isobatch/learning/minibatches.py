"""How [rows, steps] of samples are cut into minibatches. Every epoch uses every sample exactly once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from isobatch.settings.config import MinibatchScheme


def minibatch_indices(
    key: Key[Array, ""], rows: int, steps: int, count: int, scheme: MinibatchScheme
) -> Int[Array, "M B"]:
    """One epoch: for each of `count` minibatches, which samples it holds.

    A sample is numbered as in an array [steps, rows] read line by line: step x rows + row. `shuffle` and `stratified`
    are the same here: it is each shard of a run that calls this for its own rows, and what shards put into their
    minibatches number i is one minibatch of the run, with the same number of samples from each. Unlike one permutation
    of everything, no minibatch then holds more of a shard's samples than another; means over it vary a little less.
    """
    if scheme != "envs":
        return permutation(key, rows * steps).reshape(count, -1)
    # Whole rows, as in the reference code; with fewer rows than minibatches each row is cut into chunks of
    # its time, in order.
    samples = jnp.arange(rows * steps).reshape(steps, rows)
    return samples.T[permutation(key, rows)].reshape(count, -1)


def permutation(key: Key[Array, ""], n: int) -> Int[Array, "n"]:
    """A random order of 0 .. n-1.

    One sort of numbers whose high bits are random and whose low bits are 0 .. n-1, three to eight times faster than
    sorting pairs. Random parts that happen to be equal keep their order: with at least 16 random bits that
    shifts the odds of two samples' order by less than 1e-5.
    """
    bits = max(n - 1, 1).bit_length()
    if bits > 16:
        return jax.random.permutation(key, n)
    low = jnp.uint32(2**bits - 1)
    order = jnp.sort((jax.random.bits(key, (n,), jnp.uint32) & ~low) | jnp.arange(n, dtype=jnp.uint32), stable=False)
    return (order & low).astype(jnp.int32)
