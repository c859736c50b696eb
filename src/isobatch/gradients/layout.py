"""Which batch, which trajectory and which time step each per-sample gradient comes from.

Everything in the laboratory is made of inner products, so n gradients of P parameters become a Gram matrix [n, n].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from isobatch.errors import UsageError


@dataclass(frozen=True, eq=False)
class Layout:
    """`batch`, `trajectory` and `time` of n samples, each an int array [n].

    Any labels will do: those of batches and trajectories are replaced by 0, 1, ... in sorted order.

    Example:
        >>> import isobatch as ib
        >>> layout = ib.gradients.Layout.of(trajectory=["a", "a", "b", "b"], batch=[0, 0, 0, 0])
        >>> layout.batches, layout.time.tolist(), layout.longest_lag
        (1, [0, 1, 0, 1], 1)
    """

    batch: np.ndarray
    trajectory: np.ndarray
    time: np.ndarray

    def __post_init__(self) -> None:
        sizes = {name: np.shape(getattr(self, name)) for name in ("batch", "trajectory", "time")}
        if len(set(sizes.values())) > 1 or len(sizes["time"]) != 1 or sizes["time"] == (0,):
            raise UsageError(f"batch, trajectory and time have shapes {sizes}: give one number per sample to each")
        object.__setattr__(self, "time", np.asarray(self.time, dtype=np.int64))
        for name in ("batch", "trajectory"):
            object.__setattr__(self, name, np.unique(np.asarray(getattr(self, name)), return_inverse=True)[1])
        self._check()

    def _check(self) -> None:
        first = np.unique(self.trajectory, return_index=True)[1]
        if np.any(self.batch != self.batch[first][self.trajectory]):
            raise UsageError("trajectory has a label that occurs in two batches: number them across all batches")
        if len(np.unique(np.stack([self.trajectory, self.time]), axis=1).T) < len(self.time):
            raise UsageError("time repeats within a trajectory: give each of its samples a time step of its own")

    @classmethod
    def of(cls, trajectory: ArrayLike, batch: ArrayLike | None = None, time: ArrayLike | None = None) -> Layout:
        """Without `batch` each trajectory is a batch; without `time` samples count up as their trajectory appears."""
        trajectory = np.asarray(trajectory)
        batch = trajectory if batch is None else np.asarray(batch)
        return cls(batch, trajectory, order_within(trajectory) if time is None else np.asarray(time))

    @property
    def batches(self) -> int:
        return int(self.batch.max()) + 1

    @property
    def batch_sizes(self) -> np.ndarray:
        return np.bincount(self.batch)

    @property
    def longest_lag(self) -> int:
        first = np.full(self.trajectory.max() + 1, np.iinfo(np.int64).max)
        np.minimum.at(first, self.trajectory, self.time)
        return int(np.max(self.time - first[self.trajectory]))

    def members(self) -> list[np.ndarray]:
        """The samples of each trajectory."""
        order = np.argsort(self.trajectory, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.trajectory))[:-1])

    def pairs_at(self, lag: int) -> tuple[np.ndarray, np.ndarray]:
        """All samples i and j of one trajectory with time_j - time_i = lag."""
        check_lag(lag, self.longest_lag)
        time = self.time - self.time.min()
        key = self.trajectory * (time.max() + lag + 1) + time  # room for the lag: a key never runs into the next one
        order = np.argsort(key)
        place = np.searchsorted(key[order], key + lag).clip(max=len(key) - 1)
        earlier = np.flatnonzero(key[order][place] == key + lag)
        return earlier, order[place[earlier]]


def check_lag(lag: int, longest: int) -> None:
    if not 1 <= lag <= longest:
        raise UsageError(f"lag = {lag}: trajectories here have lags from 1 to {longest}; choose one of them")


def order_within(trajectory: np.ndarray) -> np.ndarray:
    """0, 1, ... for the samples of each trajectory, in order of appearance."""
    order = np.argsort(trajectory, kind="stable")
    ordered = trajectory[order]
    time = np.empty(len(trajectory), dtype=np.int64)
    time[order] = np.arange(len(trajectory)) - np.searchsorted(ordered, ordered)
    return time


def gram_of(gradients: ArrayLike) -> np.ndarray:
    """Inner products g_i . g_j of gradients, in double precision.

    Args:
        gradients: per-sample gradients g_i [n, P], of any framework.

    Returns:
        The Gram matrix [n, n].

    Example:
        >>> import isobatch as ib
        >>> ib.gradients.gram_of([[1.0, 0.0], [1.0, 2.0]]).tolist()
        [[1.0, 1.0], [1.0, 5.0]]
    """
    gradients = np.asarray(gradients, dtype=np.float64)
    return gradients @ gradients.T


def square(gram: ArrayLike, size: int | None = None) -> np.ndarray:
    """A Gram matrix in double precision, refused unless it is [size, size]."""
    gram = np.asarray(gram, dtype=np.float64)
    size = len(gram) if size is None and gram.ndim else size
    if gram.shape != (size, size):
        raise UsageError(f"gram has shape {gram.shape}: it needs one row and one column for each of {size} gradients")
    return gram


def project(gram: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """g_i . G_k [n, K], where G_k is the mean gradient of group k."""
    member = np.equal.outer(groups, np.arange(groups.max() + 1))
    return gram @ (member / member.sum(axis=0))


def mean_gram(gram: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """G_k . G_l [K, K], the Gram matrix of the groups' mean gradients."""
    return project(project(gram, groups).T, groups).T
