"""The variance of a batch gradient, and which pairs of samples it comes from.

With per-sample gradients g_i of the loss, G_B = (1/B) sum_i g_i, mu = E[G_B] and d_i = g_i - mu, exactly and also
where E[g_i] depends on the time step of i:

    Var(G_B) = Tr Cov(G_B) = E|G_B - mu|^2 = (1/B^2) E[ sum_i |d_i|^2 + sum_{i != j} d_i . d_j ].

The first sum is the individual variance; pairs i != j are of one trajectory at some lag (`within`) or of two
trajectories of the batch (`across`). The batch is the independent unit: intervals resample it, or leave one out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from isobatch.gradients.layout import Layout, square
from isobatch.gradients.pairs import ACROSS, COVARIANCE, INDIVIDUAL, WITHIN, PairSums, pair_sums
from isobatch.statistics.aggregates import jackknifed
from isobatch.statistics.bootstrap import Estimate, Statistic, estimate, pair_mean, ratio, unit_mean


@dataclass(frozen=True)
class Decomposition:
    """total = individual + covariance, and covariance = within + across.

    `by_lag` splits `within`: (lag, the part of the total from pairs that far apart). `sample_variance` is
    E|g_i - mu|^2 of one sample; `effective_samples` = sample_variance / total is the number of independent
    samples whose mean would be as noisy as the batch's. Values are unbiased and may fall below 0 where a variance
    cannot; the ends of its interval do not.
    """

    total: Estimate
    individual: Estimate
    covariance: Estimate
    within: Estimate
    across: Estimate
    by_lag: tuple[tuple[int, Estimate], ...]
    sample_variance: Estimate
    effective_samples: Estimate


def decompose(
    gram: ArrayLike, layout: Layout, lags: Sequence[int] | None = None, resamples: int = 1000, seed: int = 0
) -> Decomposition:
    """Var(G_B) = (1/B^2) E[sum_i |d_i|^2 + sum_(i != j) d_i . d_j], by kinds of pairs; d_i = g_i - E[G_B].

    Bienaymé's identity, https://en.wikipedia.org/wiki/Bienaym%C3%A9%27s_identity. Unbiased: E[G_B] comes from other
    batches than the pair.

    Args:
        gram: inner products of the per-sample gradients [n, n], of three independent batches, four for intervals.
        layout: which batch, trajectory and time step each of the n samples comes from.
        lags: those whose parts are told apart; None for every lag.
        resamples: of the bootstrap over batches; 0 leaves intervals out.
        seed: of the bootstrap.

    Returns:
        `total`, `individual`, `covariance`, `within`, `across`, `by_lag`, `effective_samples`, each with an interval.

    Example:
        >>> import isobatch as ib, numpy as np
        >>> gradients = np.random.default_rng(0).normal(size=(64, 5))  # 8 batches of 2 trajectories of 4 steps
        >>> layout = ib.gradients.Layout.of(trajectory=np.arange(64) // 4, batch=np.arange(64) // 8)
        >>> parts = ib.gradients.decompose(ib.gradients.gram_of(gradients), layout)
        >>> bool(np.isclose(parts.total.value, parts.individual.value + parts.covariance.value))
        True
    """
    return decompose_sums(pair_sums(gram, layout), lags, resamples, seed)


def decompose_sums(
    sums: PairSums, lags: Sequence[int] | None = None, resamples: int = 1000, seed: int = 0
) -> Decomposition:
    """`decompose` for data too large for a Gram matrix.

    Args:
        sums: those of `pair_sums` or `pair_sums_of`.
        lags: those whose parts are told apart; None for every lag.
        resamples: of the bootstrap over batches; 0 leaves intervals out.
        seed: of the bootstrap.

    Returns:
        As `decompose`.

    Example:
        >>> import isobatch as ib, numpy as np
        >>> gradients = np.random.default_rng(0).normal(size=(64, 5))  # 8 batches of 2 trajectories of 4 steps
        >>> layout = ib.gradients.Layout.of(trajectory=np.arange(64) // 4, batch=np.arange(64) // 8)
        >>> parts = ib.gradients.decompose_sums(ib.gradients.pair_sums_of(gradients, layout), lags=[1, 3])
        >>> [lag for lag, part in parts.by_lag]
        [1, 3]
    """
    lags = range(1, sums.longest_lag + 1) if lags is None else lags
    total, sample = direct(sums.batch_gram), sums.centered(INDIVIDUAL, power=1)
    of = partial(estimate, units=sums.batches, resamples=resamples, seed=seed, distinct=3, what="batches")
    positive = partial(of, least=0.0)
    return Decomposition(
        total=positive(total),
        individual=positive(sums.centered(INDIVIDUAL)),
        covariance=of(sums.centered(COVARIANCE)),
        within=of(sums.centered(WITHIN)),
        across=of(sums.centered(ACROSS)),
        by_lag=tuple((lag, of(sums.centered(sums.at_lag(lag)))) for lag in lags),
        sample_variance=positive(sample),
        effective_samples=positive(lambda w: ratio(sample(w), total(w), otherwise=np.inf)),
    )


def direct(batch_gram: np.ndarray) -> Statistic:
    """mean_k |G_k|^2 - mean_{k != l} G_k . G_l: the sample variance of the G_k, summed over parameters."""
    return lambda w: unit_mean(np.diag(batch_gram), w) - pair_mean(batch_gram, w)


def direct_variance(batch_gram: ArrayLike, interval: bool = True) -> Estimate:
    """Var(G_B) = mean_k |G_k|^2 - mean_(k != l) G_k . G_l, from independent batches alone.

    The sample variance, summed over parameters, as in McCandlish et al. (2018), appendix A,
    https://arxiv.org/abs/1812.06162.

    Args:
        batch_gram: inner products of K independent batch gradients [K, K]: two for the value, four for its interval.
        interval: False leaves it out.

    Returns:
        An estimate with its interval, which allows for the skewness of squared lengths and does not go below 0. How
        often it holds the truth: `docs/gradients.md`.

    Example:
        >>> import isobatch as ib
        >>> ib.gradients.direct_variance(ib.gradients.gram_of([[1.0], [3.0]]), interval=False).value
        2.0
    """
    batch_gram = square(batch_gram)
    statistic, batches = direct(batch_gram), len(batch_gram)
    if not interval:
        return estimate(statistic, batches, resamples=0, what="batches")
    found = jackknifed(statistic, batches, what="batches")
    return Estimate(found.value, max(found.low, 0.0), max(found.high, 0.0))
