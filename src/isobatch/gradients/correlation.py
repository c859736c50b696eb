"""How alike the gradients of two samples are: as a cosine, pair by pair, and as a covariance, on average."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from isobatch.errors import UsageError
from isobatch.gradients.layout import Layout, mean_gram, project, square
from isobatch.gradients.pairs import ACROSS, INDIVIDUAL, PairSums
from isobatch.statistics.bootstrap import Estimate, estimate, ratio

ROUNDING = 1e-12  # of a squared norm: what is left of a gradient that equals the mean


def cosine_pairs(gram: ArrayLike, layout: Layout, lag: int) -> np.ndarray:
    """Cosines of centered gradients for all pairs of one trajectory at a lag:

        (g_i - gbar) . (g_j - gbar) / (|g_i - gbar| |g_j - gbar|),  gbar the mean of their batch,

    as drawn in https://iclr-blogposts.github.io/2026/blog/2026/ppo-batch-size/. A pair with a gradient that equals
    the mean has no cosine and is left out.

    Args:
        gram: inner products of the per-sample gradients [n, n].
        layout: which batch, trajectory and time step each of the n samples comes from.
        lag: time steps between the two.

    Returns:
        Cosines [pairs].

    Example:
        >>> import isobatch as ib
        >>> gram = ib.gradients.gram_of([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])  # their mean is 0
        >>> ib.gradients.cosine_pairs(gram, ib.gradients.Layout.of(trajectory=[0, 0, 0, 0]), lag=2).tolist()
        [-1.0, -1.0]
    """
    return _centered_cosines(gram, layout, *layout.pairs_at(lag))


def cosine_across(gram: ArrayLike, layout: Layout, count: int = 10_000, seed: int = 0) -> np.ndarray:
    """`cosine_pairs` for random pairs of different trajectories of one batch, all such pairs equally likely.

    Args:
        gram: inner products of the per-sample gradients [n, n].
        layout: which batch, trajectory and time step each of the n samples comes from.
        count: how many pairs are drawn.
        seed: of the draws.

    Returns:
        Cosines [count], fewer where a gradient equals the mean.

    Example:
        >>> import isobatch as ib
        >>> gram = ib.gradients.gram_of([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])  # their mean is 0
        >>> layout = ib.gradients.Layout.of(trajectory=[0, 1, 0, 1], batch=[0, 0, 0, 0])
        >>> ib.gradients.cosine_across(gram, layout, count=3).tolist()
        [0.0, 0.0, 0.0]
    """
    rng = np.random.default_rng(seed)
    order = np.lexsort((layout.trajectory, layout.batch))
    batch, trajectory = layout.batch[order], layout.trajectory[order]
    # Sorted like this, a batch is a run of places and each of its trajectories a run within it.
    batch_start, start = np.searchsorted(batch, batch), np.unique(trajectory, return_index=True)[1][trajectory]
    length = np.bincount(trajectory)[trajectory]
    partners = layout.batch_sizes[batch] - length
    if not partners.any():
        raise UsageError("layout has one trajectory in each batch: pairs across need two; put more into a batch")
    first = rng.choice(len(order), size=count, p=partners / partners.sum())
    second = batch_start[first] + rng.integers(partners[first])
    second += np.where(second >= start[first], length[first], 0)
    return _centered_cosines(gram, layout, order[first], order[second])


def lag_correlation(
    sums: PairSums, lags: Sequence[int], resamples: int = 1000, seed: int = 0
) -> list[tuple[int, Estimate]]:
    """E[(g_i - mu) . (g_j - mu)] / E|g - mu|^2 over pairs of one trajectory at each lag, mu = E[G_B].

    A ratio of unbiased means, with mu from other batches than the pair; the measure that is compared with the cosines
    of https://iclr-blogposts.github.io/2026/blog/2026/ppo-batch-size/.

    Args:
        sums: those of `pair_sums` or `pair_sums_of`, of three or more batches.
        lags: time steps between the two.
        resamples: of the bootstrap over batches; 0 leaves intervals out.
        seed: of the bootstrap.

    Returns:
        (lag, estimate with its interval), one for each lag.

    Example:
        >>> import isobatch as ib, numpy as np
        >>> gradients = np.random.default_rng(0).normal(size=(64, 5))  # 8 batches of 2 trajectories of 4 steps
        >>> layout = ib.gradients.Layout.of(trajectory=np.arange(64) // 4, batch=np.arange(64) // 8)
        >>> sums = ib.gradients.pair_sums_of(gradients, layout)
        >>> [(lag, abs(each.value) < 0.3) for lag, each in ib.gradients.lag_correlation(sums, lags=[1, 2])]
        [(1, True), (2, True)]
    """
    return [(lag, _covariance_form(sums, sums.at_lag(lag), resamples, seed)) for lag in lags]


def across_correlation(sums: PairSums, resamples: int = 1000, seed: int = 0) -> Estimate:
    """`lag_correlation` over pairs of different trajectories of one batch.

    Args:
        sums: those of `pair_sums` or `pair_sums_of`, of three or more batches.
        resamples: of the bootstrap over batches; 0 leaves the interval out.
        seed: of the bootstrap.

    Returns:
        An estimate with its interval.

    Example:
        >>> import isobatch as ib, numpy as np
        >>> gradients = np.random.default_rng(0).normal(size=(64, 5))  # 8 batches of 2 trajectories of 4 steps
        >>> layout = ib.gradients.Layout.of(trajectory=np.arange(64) // 4, batch=np.arange(64) // 8)
        >>> abs(ib.gradients.across_correlation(ib.gradients.pair_sums_of(gradients, layout)).value) < 0.3
        True
    """
    if not sums.counts[ACROSS].any():
        raise UsageError("layout has one trajectory in each batch: pairs across need two; put more into a batch")
    return _covariance_form(sums, ACROSS, resamples, seed)


def cosine_matrix(gram: ArrayLike, layout: Layout) -> np.ndarray:
    """Cosines G_k . G_l / (|G_k| |G_l|) between the mean gradients of the batches.

    Args:
        gram: inner products of the per-sample gradients [n, n].
        layout: which batch each of the n samples comes from.

    Returns:
        Cosines [K, K]; nan where a mean gradient is 0.

    Example:
        >>> import isobatch as ib
        >>> gram = ib.gradients.gram_of([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])  # their mean is 0
        >>> ib.gradients.cosine_matrix(gram, ib.gradients.Layout.of(trajectory=[0, 0, 1, 1])).round(6).tolist()
        [[1.0, -1.0], [-1.0, 1.0]]
    """
    gram = mean_gram(square(gram, len(layout.time)), layout.batch)
    return _cosine(gram, np.diag(gram)[:, None], np.diag(gram)[None, :])


def cosine_with_mean(gram: ArrayLike, layout: Layout) -> np.ndarray:
    """The cosine of each sample's gradient, as it is, with the mean gradient of its batch.

    Args:
        gram: inner products of the per-sample gradients [n, n].
        layout: which batch each of the n samples comes from.

    Returns:
        Cosines [n]; nan where a gradient is 0.

    Example:
        >>> import isobatch as ib
        >>> gram = ib.gradients.gram_of([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])  # their mean is 0
        >>> ib.gradients.cosine_with_mean(gram, ib.gradients.Layout.of(trajectory=[0, 0, 1, 1])).round(3).tolist()
        [0.707, 0.707, 0.707, 0.707]
    """
    gram = square(gram, len(layout.time))
    with_mean, mean_squared = _own_mean(gram, layout)
    return _cosine(with_mean, np.diag(gram), mean_squared)


def _covariance_form(sums: PairSums, category: slice, resamples: int, seed: int) -> Estimate:
    covariance, pairs = sums.centered(category, power=0), sums.mean_count(category)
    variance, samples = sums.centered(INDIVIDUAL, power=0), sums.mean_count(INDIVIDUAL)

    def statistic(w: np.ndarray) -> np.ndarray:
        return ratio(covariance(w) * samples(w), variance(w) * pairs(w), otherwise=np.nan)

    return estimate(statistic, sums.batches, resamples, seed, distinct=3, what="batches")


def _own_mean(gram: np.ndarray, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """g_i . gbar and |gbar|^2 for the batch of each sample."""
    with_mean = project(gram, layout.batch)[np.arange(len(gram)), layout.batch]
    return with_mean, (np.bincount(layout.batch, weights=with_mean) / layout.batch_sizes)[layout.batch]


def _centered_cosines(gram: ArrayLike, layout: Layout, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    gram = square(gram, len(layout.time))
    with_mean, mean_squared = _own_mean(gram, layout)
    squared = np.diag(gram) - 2 * with_mean + mean_squared
    squared = np.where(squared > ROUNDING * np.diag(gram), squared, 0.0)
    product = gram[i, j] - with_mean[i] - with_mean[j] + mean_squared[i]
    cosines = _cosine(product, squared[i], squared[j])
    return cosines[~np.isnan(cosines)]


def _cosine(product: np.ndarray, first_squared: np.ndarray, second_squared: np.ndarray) -> np.ndarray:
    """nan where a gradient is zero; the rest within [-1, 1] whatever rounding says."""
    return np.clip(ratio(product, np.sqrt(first_squared * second_squared), otherwise=np.nan), -1.0, 1.0)
