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
    """Cosines of centered gradients for all pairs of one trajectory at this lag:

        (g_i - gbar) . (g_j - gbar) / (|g_i - gbar| |g_j - gbar|),  gbar the mean of their batch.

    A pair with a gradient that equals the mean has no cosine and is left out.
    """
    return _centered_cosines(gram, layout, *layout.pairs_at(lag))


def cosine_across(gram: ArrayLike, layout: Layout, count: int = 10_000, seed: int = 0) -> np.ndarray:
    """The same for `count` random pairs of different trajectories of one batch, all such pairs equally likely."""
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
    """(h, E[(g_i - mu) . (g_j - mu)] / E|g - mu|^2) over pairs of one trajectory at lag h, mu = E[G_B].

    A ratio of unbiased means, with mu from other batches than the pair.
    """
    return [(lag, _covariance_form(sums, sums.at_lag(lag), resamples, seed)) for lag in lags]


def across_correlation(sums: PairSums, resamples: int = 1000, seed: int = 0) -> Estimate:
    """The same over pairs of different trajectories of one batch."""
    if not sums.counts[ACROSS].any():
        raise UsageError("layout has one trajectory in each batch: pairs across need two; put more into a batch")
    return _covariance_form(sums, ACROSS, resamples, seed)


def cosine_matrix(gram: ArrayLike, layout: Layout) -> np.ndarray:
    """Cosines [K, K] between the mean gradients of the batches."""
    gram = mean_gram(square(gram, len(layout.time)), layout.batch)
    return _cosine(gram, np.diag(gram)[:, None], np.diag(gram)[None, :])


def cosine_with_mean(gram: ArrayLike, layout: Layout) -> np.ndarray:
    """The cosine [n] of each sample's gradient, as it is, with the mean gradient of its batch."""
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
