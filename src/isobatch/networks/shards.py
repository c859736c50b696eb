"""Sums and means over the shards of a run: groups of its environments, which may lie on different devices.

A sharded computation is written for one shard. Several shards on one device are an axis of `jax.vmap`, and devices are
an axis of `jax.shard_map`; a sum over both is a sum over all shards, wherever they are. A run of one shard has no axes,
and every function here is then the identity: its program does not change.
"""

from __future__ import annotations

from typing import TypeVar

import jax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, Key, PyTree

Axes = tuple[str, ...]
Tree = TypeVar("Tree", bound=PyTree)

HERE, DEVICES = "shards_here", "shards"  # names of the axes: shards of a device, and devices
SHARDED: Axes = (DEVICES, HERE)
WHOLE: Axes = ()


def axes_of(num_shards: int) -> Axes:
    """What a run of so many shards has to be reduced over."""
    return SHARDED if num_shards > 1 else WHOLE


def total(value: Tree, across: Axes) -> Tree:
    """The sum of a tree over all shards."""
    return jax.lax.psum(value, across) if across else value


def mean(tree: Tree, across: Axes) -> Tree:
    """The mean of a tree over all shards, in one message: many small ones cost more than their contents."""
    if not across:
        return tree
    flat, restore = ravel_pytree(tree)
    return restore(jax.lax.pmean(flat, across))


def gathered(value: Float[Array, "..."]) -> Float[Array, "S ..."]:
    """The values of all shards along a new axis, in the order of the shards."""
    both = jax.lax.all_gather(jax.lax.all_gather(value, HERE), DEVICES)
    return both.reshape(-1, *value.shape)


def index() -> Int[Array, ""]:
    """The number of this shard, where there are several."""
    return jax.lax.axis_index(DEVICES) * jax.lax.axis_size(HERE) + jax.lax.axis_index(HERE)


def own_key(key: Key[Array, ""], across: Axes) -> Key[Array, ""]:
    """Randomness that this shard has for itself."""
    return jax.random.fold_in(key, index()) if across else key
