"""What a policy says at a step, as one array of words.

Each array that leaves a compiled program costs about ten microseconds, as much as a small network itself.
"""

from __future__ import annotations

import math
from typing import Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

Tree = TypeVar("Tree")


def packed(tree: PyTree) -> Array:
    """The arrays [N, ...] of a tree as words [N, W], bit for bit."""
    words = [jax.lax.bitcast_convert_type(leaf, jnp.uint32) for leaf in jax.tree.leaves(tree)]
    return jnp.concatenate([leaf.reshape(leaf.shape[0], -1) for leaf in words], axis=1)


class Packing(Generic[Tree]):
    """How to get a tree back from its words."""

    def __init__(self, tree: Tree) -> None:
        """`tree` as it was packed, of which shapes [N, ...] and types count."""
        leaves, self._structure = jax.tree.flatten(tree)
        self._kinds = [(leaf.shape[1:], np.dtype(leaf.dtype)) for leaf in leaves]
        ends = np.cumsum([math.prod(shape) * kind.itemsize // 4 for shape, kind in self._kinds])
        self._ends = [int(end) for end in ends]

    @property
    def width(self) -> int:
        """W."""
        return self._ends[-1]

    def first(self, words: np.ndarray) -> np.ndarray:
        """The first array of the tree alone."""
        return self._array(0, words[..., : self._ends[0]])

    def unpacked(self, words: np.ndarray) -> Tree:
        """The tree of arrays [..., *shape] whose words are [..., W]."""
        parts = np.split(words, self._ends[:-1], axis=-1)
        return jax.tree.unflatten(self._structure, [self._array(i, part) for i, part in enumerate(parts)])

    def _array(self, place: int, words: np.ndarray) -> np.ndarray:
        shape, kind = self._kinds[place]
        return np.ascontiguousarray(words).view(kind).reshape(*words.shape[:-1], *shape)
