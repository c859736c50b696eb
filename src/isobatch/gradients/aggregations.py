"""The four aggregations of a loss side by side, on whole episodes of varying length.

With S_i the sum of the gradients of episode i and T_i its length, a batch of N episodes has the gradient
sum_i c_i S_i, where c_i is 1/sum T (timestep), 1/N (trajectory), 1/(N T_i) (trajectory-mean), 1/(N H) (constant).

`timestep` is `trajectory` times N/sum T, a random factor. As a ratio of two means it is biased at finite N:
to first order its bias is (E[S] Var(T)/E[T] - Cov(S, T)) / (N E[T]^2), which vanishes as N grows (Cochran 1977, 6.8).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from isobatch.errors import UsageError
from isobatch.gradients.layout import square
from isobatch.statistics.bootstrap import LEAST_FOR_INTERVAL, Estimate, estimate, pair_mean, ratio, unit_mean

KINDS = ("timestep", "trajectory", "trajectory-mean", "constant")


@dataclass(frozen=True)
class Comparison:
    """Statistics of the factor N/sum T over batches, and cosines between the aggregations' gradients.

    `cosines` are means over batches, by pair of names; `expected_cosine` is between E[sum_t g] (`trajectory`) and
    E[mean_t g] (`trajectory-mean`), free of noise: a ratio of unbiased pieces, so it may exceed 1 a little.
    """

    batches: int
    factor_mean: Estimate
    factor_deviation: Estimate
    factor_variation: Estimate  # deviation / mean
    cosines: Mapping[tuple[str, str], Estimate]
    expected_cosine: Estimate


def compare(
    episode_gram: ArrayLike, lengths: ArrayLike, episodes_per_batch: int, resamples: int = 1000, seed: int = 0
) -> Comparison:
    """The gradients sum_i c_i S_i of the four aggregations side by side: c_i = 1/sum T, 1/N, 1/(N T_i) or 1/(N H).

    S_i is the sum of the gradients of episode i and T_i its length. The question is that of
    https://stats.stackexchange.com/q/631002, and for language models that of Liu et al. 2025,
    https://arxiv.org/abs/2503.20783.

    Args:
        episode_gram: inner products of the S_i [E, E].
        lengths: T_i [E].
        episodes_per_batch: N: batches are N consecutive episodes each; with fewer than four there are no intervals.
        resamples: of the bootstrap over batches.
        seed: of the bootstrap.

    Returns:
        Mean and spread of the factor N/sum T, and `cosines` between the gradients by pair of aggregations.

    Example:
        >>> import isobatch as ib
        >>> result = ib.gradients.compare(ib.gradients.gram_of([[1.0], [2.0], [1.0], [2.0]]), [1, 3, 1, 3], 2)
        >>> result.factor_mean.value, result.cosines["timestep", "trajectory"].value
        (0.5, 1.0)
    """
    T, N = np.asarray(lengths, dtype=np.float64), episodes_per_batch
    gram = square(episode_gram, len(T))
    _check(T, N)
    batches = len(T) // N
    factor = N / T[: batches * N].reshape(batches, N).sum(axis=1)
    of = partial(estimate, resamples=resamples if batches >= LEAST_FOR_INTERVAL else 0, seed=seed, what="batches")
    return Comparison(
        batches=batches,
        factor_mean=of(lambda w: unit_mean(factor, w), batches),
        factor_deviation=of(lambda w: deviation(factor, w), batches),
        factor_variation=of(lambda w: deviation(factor, w) / unit_mean(factor, w), batches),
        cosines={
            pair: of(partial(unit_mean, batch_cosines(gram, T, N, *pair)), batches) for pair in combinations(KINDS, 2)
        },
        expected_cosine=of(partial(expected_cosine, gram, T), len(T), what="episodes"),
    )


def coefficients(kind: str, lengths: np.ndarray) -> np.ndarray:
    """c_i of one batch, up to the constant 1/H of `constant`, which no cosine sees."""
    N = len(lengths)
    match kind:
        case "timestep":
            return np.full(N, 1 / lengths.sum())
        case "trajectory-mean":
            return 1 / (N * lengths)
        case _:
            return np.full(N, 1 / N)


def batch_cosines(gram: np.ndarray, lengths: np.ndarray, size: int, first: str, second: str) -> np.ndarray:
    """The cosine between two aggregations of the same episodes, for each batch."""
    cosines = []
    for start in range(0, len(lengths) - size + 1, size):
        part = slice(start, start + size)
        a, b = (coefficients(kind, lengths[part]) for kind in (first, second))
        block = gram[part, part]
        cosines.append(ratio(a @ block @ b, np.sqrt((a @ block @ a) * (b @ block @ b)), otherwise=np.nan))
    return np.clip(cosines, -1.0, 1.0)


def expected_cosine(gram: np.ndarray, lengths: np.ndarray, w: np.ndarray) -> np.ndarray:
    """E[S] . E[S/T] / (|E[S]| |E[S/T]|), each inner product a mean over pairs of different episodes.

    Such a ratio may be beyond 1, where a cosine cannot be.
    """
    sums, means = pair_mean(gram, w), pair_mean(gram / np.outer(lengths, lengths), w)
    norms = np.sqrt(np.maximum(sums, 0) * np.maximum(means, 0))
    return np.clip(ratio(pair_mean(gram / lengths, w), norms, otherwise=np.nan), -1.0, 1.0)


def deviation(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Square root of the unbiased variance, mean_u x_u^2 - mean_{u != v} x_u x_v of the centered x."""
    x = x - x.mean()
    return np.sqrt(np.maximum(unit_mean(x**2, w) - pair_mean(np.outer(x, x), w), 0.0))


def _check(lengths: np.ndarray, size: int) -> None:
    if not len(lengths):
        raise UsageError("lengths is empty: no episode ended within the horizon of the data; raise it")
    if np.any(lengths < 1):
        raise UsageError(f"lengths holds {lengths.min():g}: an episode has at least 1 step; leave empty ones out")
    if size < 1 or len(lengths) // size < 2:
        raise UsageError(
            f"episodes_per_batch = {size}: {len(lengths)} episodes give fewer than 2 batches of that many; "
            f"choose 1 to {max(len(lengths) // 2, 1)}, or collect more"
        )
