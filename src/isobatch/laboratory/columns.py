"""Steps of many environments, each from a time of its own on, without the rows that are no steps.

Environments outside JAX run side by side; where some reset in a step of their own, their rows fall out of step. Here
each environment is a column of real steps, one after another.
"""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int, PyTree

from isobatch.rollouts.host_rollout import replaced
from isobatch.rollouts.segment import Segment

T = TypeVar("T")
AFTERWARDS = ("reward", "terminated", "truncated", "next_value")


class Columns:
    """`kept` steps of each environment, and what returns need of the steps after them, up to `most` in all.

    An environment is not needed any longer when it has as many, or when an episode has ended at step `least` or later.
    """

    def __init__(self, passed: Int[np.ndarray, " C"], kept: int, most: int, least: int) -> None:
        self.passed, self.kept, self.most, self.least = passed, kept, most, least
        self.count: np.ndarray = np.zeros(len(passed), int)
        self._ended: np.ndarray = np.zeros(len(passed), bool)
        self._segment: Segment | None = None  # made when the shapes are known
        self._after: tuple[np.ndarray, ...] = ()

    def store(self, first: int, segment: Segment, part: slice) -> None:
        """Rows `first`, `first` + 1, ... of the environments `part`."""
        segment = jax.tree.map(np.asarray, segment)
        if self._segment is None:
            self._segment = self._room(replaced(segment, valid=None), self.kept)
            self._after = self._room(tuple(getattr(segment, name) for name in AFTERWARDS), self.most)
        real = np.ones(segment.reward.shape, bool) if segment.valid is None else segment.valid
        time = first + np.arange(len(real))[:, None]
        real = real & (time >= self.passed[part])
        place = self.count[part] + np.cumsum(real, axis=0) - 1  # of each real row in its column
        done = segment.terminated | segment.truncated
        self._write(self._segment, replaced(segment, valid=None), real & (place < self.kept), place, part)
        after = tuple(getattr(segment, name) for name in AFTERWARDS)
        self._write(self._after, after, real & (place < self.most), place, part)
        self._ended[part] |= (real & done & (place >= self.least)).any(axis=0)
        self.count[part] += real.sum(axis=0)

    def missing(self, part: slice) -> Bool[np.ndarray, " N"]:
        """Which of the environments `part` are still needed."""
        return ~(self._ended[part] | (self.count[part] >= self.most))

    @property
    def segment(self) -> Segment:
        """[L, C]: the steps that are kept, up to the last one that any environment has."""
        longest = min(int(self.count.max()), self.kept)
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[:longest]), self._segment)

    @property
    def after(self) -> tuple[np.ndarray, ...]:
        """AFTERWARDS [most - kept, C]: of the steps after those that are kept."""
        return tuple(leaf[self.kept :] for leaf in self._after)

    def _room(self, tree: T, rows: int) -> T:
        return jax.tree.map(lambda leaf: np.zeros((rows, len(self.passed), *leaf.shape[2:]), leaf.dtype), tree)

    def _write(
        self, room: PyTree, tree: PyTree, which: Bool[np.ndarray, "T N"], place: Int[np.ndarray, "T N"], part: slice
    ) -> None:
        rows, columns = np.nonzero(which)
        for into, leaf in zip(jax.tree.leaves(room), jax.tree.leaves(tree), strict=True):
            into[place[rows, columns], part.start + columns] = leaf[rows, columns]
