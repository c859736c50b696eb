"""Sums over the pairs of samples in a batch, by category: a sample with itself, lag h, different trajectories.

For a category C of ordered pairs (i, j) in batch k, with batch mean gradients G_l:

    S_kC = sum_C g_i . g_j,   R_kCl = sum_C g_i . G_l,   n_kC = number of pairs.

These are all that the variance and the correlations need, and far smaller than the Gram matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from isobatch.errors import UsageError
from isobatch.gradients.layout import Layout, check_lag, mean_gram, project, square
from isobatch.statistics.bootstrap import Statistic, pair_mean, triple_mean, unit_mean

INDIVIDUAL, WITHIN, ACROSS = slice(0, 1), slice(1, -1), slice(-1, None)
COVARIANCE = slice(1, None)


@dataclass(frozen=True, eq=False)
class PairSums:
    """Categories on axis 0 of the first three: 0 = individual, h = lag h of one trajectory, -1 = across."""

    products: np.ndarray  # S [C, K]
    crossed: np.ndarray  # R [C, K, K]
    counts: np.ndarray  # n [C, K]
    sizes: np.ndarray  # B_k [K]
    batch_gram: np.ndarray  # G_k . G_l [K, K]

    @property
    def batches(self) -> int:
        return len(self.sizes)

    @property
    def longest_lag(self) -> int:
        return len(self.products) - 2

    def at_lag(self, lag: int) -> slice:
        check_lag(lag, self.longest_lag)
        return slice(lag, lag + 1)

    def centered(self, category: slice, power: int = 2) -> Statistic:
        """E[ sum_C (g_i - mu) . (g_j - mu) / B^power ], mu = E[G_B], without bias from three or more batches:

            mean_k S_kC/B_k^p - 2 mean_{k != l} R_kCl/B_k^p + mean_{k, l, m distinct} n_kC G_l . G_m / B_k^p.

        mu comes from other batches than the pair, so no product holds a sample's own noise.
        """
        scale = self.sizes ** -float(power)
        products = self.products[category].sum(axis=0) * scale
        crossed = self.crossed[category].sum(axis=0) * scale[:, None]
        counts = self.counts[category].sum(axis=0) * scale
        return lambda w: unit_mean(products, w) - 2 * pair_mean(crossed, w) + triple_mean(counts, self.batch_gram, w)

    def mean_count(self, category: slice) -> Statistic:
        counts = self.counts[category].sum(axis=0)
        return lambda w: unit_mean(counts, w)


def pair_sums(gram: ArrayLike, layout: Layout) -> PairSums:
    """Sums of g_i . g_j over the pairs of samples of each batch, by lag: what variance and correlations are made of.

    Args:
        gram: inner products of the per-sample gradients [n, n].
        layout: which batch, trajectory and time step each of the n samples comes from.

    Returns:
        `products` [C, K] of C kinds of pairs (a sample with itself, lag 1, 2, ..., two trajectories) in K batches, and
        what centers them.

    Example:
        >>> import isobatch as ib
        >>> layout = ib.gradients.Layout.of(trajectory=[0, 0, 1], batch=[0, 0, 0])
        >>> sums = ib.gradients.pair_sums([[1, 2, 3], [2, 4, 5], [3, 5, 9]], layout)
        >>> sums.products.round(6).tolist()  # 1 + 4 + 9, 2 + 2, 3 + 3 + 5 + 5
        [[14.0], [4.0], [16.0]]
    """
    gram = square(gram, len(layout.time))
    projected = project(gram, layout.batch)
    return _collect(lambda i: (gram[np.ix_(i, i)], projected[i]), mean_gram(gram, layout.batch), layout)


def pair_sums_of(gradients: ArrayLike, layout: Layout) -> PairSums:
    """`pair_sums` from the gradients themselves, one trajectory at a time: for n too large for an [n, n] matrix.

    Args:
        gradients: per-sample gradients [n, P].
        layout: which batch, trajectory and time step each of the n samples comes from.

    Returns:
        As `pair_sums`.

    Example:
        >>> import isobatch as ib
        >>> layout = ib.gradients.Layout.of(trajectory=[0, 0, 1], batch=[0, 0, 0])
        >>> ib.gradients.pair_sums_of([[1.0], [2.0], [3.0]], layout).products.round(6).tolist()
        [[14.0], [4.0], [18.0]]
    """
    gradients = np.asarray(gradients)
    if gradients.ndim != 2 or len(gradients) != len(layout.time):
        raise UsageError(f"gradients have shape {gradients.shape}: give one row for each of {len(layout.time)} samples")
    means = np.stack([gradients[layout.batch == k].mean(axis=0, dtype=np.float64) for k in range(layout.batches)])

    def products(i: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = gradients[i].astype(np.float64)
        return rows @ rows.T, rows @ means.T

    return _collect(products, means @ means.T, layout)


def _collect(
    products_of: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], batch_gram: np.ndarray, layout: Layout
) -> PairSums:
    """Adds up by lag, trajectory for trajectory; `across` is what is left of the whole batch.

    `products_of` gives g_i . g_j and g_i . G_l for the samples of a trajectory.
    """
    categories, sizes = layout.longest_lag + 2, layout.batch_sizes.astype(np.float64)
    products, counts = np.zeros((2, categories, len(sizes)))
    crossed = np.zeros((categories, len(sizes), len(sizes)))
    for i in layout.members():
        k, time = layout.batch[i[0]], layout.time[i]
        lag = np.abs(np.subtract.outer(time, time))
        place = np.arange(len(i))[:, None] * categories + lag
        partners = np.bincount(place.ravel(), minlength=len(i) * categories).reshape(len(i), categories)
        gram, projected = products_of(i)
        products[:, k] += np.bincount(lag.ravel(), weights=gram.ravel(), minlength=categories)
        counts[:, k] += partners.sum(axis=0)
        crossed[:, k] += partners.T @ projected
    products[-1] = sizes**2 * np.diag(batch_gram) - products.sum(axis=0)
    counts[-1] = sizes**2 - counts.sum(axis=0)
    crossed[-1] = sizes[:, None] ** 2 * batch_gram - crossed.sum(axis=0)
    return PairSums(products, crossed, counts, sizes, batch_gram)
