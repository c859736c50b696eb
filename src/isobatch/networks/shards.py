"""Sums and means over the shards of a run: groups of its environments, which may lie on different devices.

A sharded computation is written for one shard. Several shards on one device are an axis of `jax.vmap`, and devices are
an axis of `jax.shard_map`; a sum over both is a sum over all shards, wherever they are. A run of one shard has no axes,
and every function here is then the identity: its program does not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import jax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, Key, PyTree

Axes = tuple[str, ...]
Tree = TypeVar("Tree", bound=PyTree)

HERE, DEVICES = "shards_here", "shards"  # names of the axes: shards of a device, and devices
SHARDED: Axes = (DEVICES, HERE)
WHOLE: Axes = ()


_one_here: ContextVar[bool] = ContextVar("_one_here", default=False)


@contextmanager
def one_on_each_device() -> Iterator[None]:
    """While this is traced there is no axis of shards on a device, and the program of a shard is not one of a batch."""
    token = _one_here.set(True)
    try:
        yield
    finally:
        _one_here.reset(token)


def axes_of(num_shards: int) -> Axes:
    """What a run of so many shards has to be reduced over."""
    return WHOLE if num_shards == 1 else (DEVICES,) if _one_here.get() else SHARDED


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
    here = value if _one_here.get() else jax.lax.all_gather(value, HERE)
    return jax.lax.all_gather(here, DEVICES).reshape(-1, *value.shape)


def index() -> Int[Array, ""]:
    """The number of this shard, where there are several."""
    if _one_here.get():
        return jax.lax.axis_index(DEVICES)
    return jax.lax.axis_index(DEVICES) * jax.lax.axis_size(HERE) + jax.lax.axis_index(HERE)


def shard_key(key: Key[Array, ""], across: Axes) -> Key[Array, ""]:
    """Randomness that this shard has for itself."""
    return jax.random.fold_in(key, index()) if across else key
