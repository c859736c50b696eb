"""Arrays and sentences as bytes, for processes that need not trust each other's code: nothing here is executed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypedDict, Unpack

import jax
import numpy as np
from jaxtyping import ArrayLike, PyTree


class Header(TypedDict, total=False):
    """What a message says besides its arrays."""

    number: int  # of the rollout
    version: int  # of the policy
    groups: int  # of environments, each with a key
    sentences: list[str]  # to be shown
    fault: str  # in place of an answer


def to_bytes(arrays: Sequence[ArrayLike], **header: Unpack[Header]) -> bytes:
    """A line of JSON, and the arrays."""
    plain = [np.ascontiguousarray(array) for array in arrays]
    kinds = [(array.shape, array.dtype.str) for array in plain]
    head = json.dumps({"arrays": kinds, "header": header}).encode()
    return b"".join([len(head).to_bytes(4, "little"), head, *(array.tobytes() for array in plain)])


def from_bytes(message: bytes) -> tuple[list[np.ndarray], Header]:
    """The arrays, which share the memory of the message, and its header."""
    start = 4 + int.from_bytes(message[:4], "little")
    head, arrays = json.loads(message[4:start]), []
    for shape, kind in head["arrays"]:
        dtype = np.dtype(kind)
        size = dtype.itemsize * int(np.prod(shape, dtype=int))
        arrays.append(np.frombuffer(message, dtype, offset=start, count=size // dtype.itemsize).reshape(shape))
        start += size
    return arrays, head["header"]


def packed_tree(tree: PyTree) -> np.ndarray:
    """All leaves of a tree of arrays as one array of bytes."""
    return np.frombuffer(b"".join(np.ascontiguousarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)), np.uint8)


def unpacked_tree(packed: np.ndarray, shapes: PyTree) -> PyTree:
    """The tree whose leaves have these shapes and types."""
    leaves, structure = jax.tree.flatten(shapes)
    ends = np.cumsum([np.dtype(leaf.dtype).itemsize * leaf.size for leaf in leaves])
    parts = zip(leaves, np.split(packed, ends[:-1]), strict=True)
    return jax.tree.unflatten(structure, [part.view(leaf.dtype).reshape(leaf.shape) for leaf, part in parts])
