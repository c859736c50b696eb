"""Scores of several environments and seeds in a few numbers with intervals (Agarwal et al. 2021).

Scores x_es of environment e and seed s are a mapping from environments to seeds' scores, or an array [E, S]; the
number of seeds may differ. Seeds are independent, environments are given: intervals speak of new seeds on the same
environments. Means have Student's interval, since a bootstrap of n seeds is too narrow by sqrt((n - 1)/n) and knows
no fat tails, which matters for the 2 to 5 seeds of most studies. Other statistics have the percentile interval of the
stratified bootstrap, which redraws seeds within each environment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb, prod

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from isobatch.errors import UsageError
from isobatch.statistics.bootstrap import (
    LEAST_FOR_INTERVAL,
    LEVEL,
    Estimate,
    Statistic,
    check_units,
    percentile_interval,
)

Scores = Mapping[str, ArrayLike] | Sequence[ArrayLike] | np.ndarray
Groups = Sequence[np.ndarray]  # one array [..., seeds] for each environment
FEWEST_SEEDS = 2
ROUNDING = 1e-12  # of a mean: a deviation as small as that is none
FEWEST_RESAMPLES = comb(2 * LEAST_FOR_INTERVAL - 1, LEAST_FOR_INTERVAL)  # different ones, for an interval


@dataclass(frozen=True)
class Aggregate:
    """Two aggregates of all environments."""

    mean: Estimate
    interquartile_mean: Estimate


def score_table(scores: Scores) -> dict[str, np.ndarray]:
    """Environment -> scores [seeds]; the rows of an array are called "0", "1", ..."""
    named = scores if isinstance(scores, Mapping) else {str(e): row for e, row in enumerate(scores)}
    if not named:
        raise UsageError("scores is empty: give the scores of at least one environment")
    table = {env: np.asarray(values, dtype=np.float64) for env, values in named.items()}
    for env, values in table.items():
        if values.ndim != 1 or len(values) < FEWEST_SEEDS:
            raise UsageError(
                f"scores of {env!r} has shape {values.shape}: give one score for each of at least {FEWEST_SEEDS} seeds"
            )
        if not np.all(np.isfinite(values)):
            raise UsageError(
                f"scores of {env!r} holds {values}: give a run without a return, or diverged, a number too"
            )
    return table


def aggregate(scores: Scores, resamples: int = 1000, seed: int = 0) -> Aggregate:
    """The mean, and the interquartile mean of Agarwal et al. (2021)."""
    table = score_table(scores)
    mean, _ = contrast([(1 / len(table), x) for x in table.values()])
    return Aggregate(mean, interquartile_mean(table, resamples, seed))


def interquartile_mean(scores: Scores, resamples: int = 1000, seed: int = 0) -> Estimate:
    """Mean of the middle half of all runs pooled: of n runs, floor(n/4) are left out at either end."""
    return stratified(middle_half, list(score_table(scores).values()), resamples, seed)


def middle_half(groups: Groups) -> np.ndarray:
    return stats.trim_mean(np.concatenate(groups, axis=-1), 0.25, axis=-1)


def contrast(terms: Sequence[tuple[float, np.ndarray]]) -> tuple[Estimate, float]:
    """sum_k a_k mean(x_k) of independent samples x_k [n_k] with its standard error sqrt(V) and Student's interval.

    V = sum_k v_k with v_k = a_k^2 s_k^2 / n_k, s_k^2 the variance of x_k; degrees of freedom
    V^2 / sum_k v_k^2/(n_k - 1) (Satterthwaite 1946; Welch 1947). Terms are pairs (a_k, x_k).
    """
    value = float(sum(a * np.mean(x) for a, x in terms))
    parts = np.array([a**2 * np.var(x, ddof=1) / len(x) for a, x in terms])
    variance = float(np.sum(parts))
    if variance == 0:
        return Estimate(value, value, value), 0.0
    freedom = 1 / np.sum((parts / variance) ** 2 / [len(x) - 1 for _, x in terms])
    error = variance**0.5
    half = float(stats.t.ppf((1 + LEVEL) / 2, freedom)) * error
    return Estimate(value, value - half, value + half), error


def skewed_mean(x: np.ndarray) -> Estimate:
    """The mean of x [n] with an interval that allows for skewness (Hall 1992, "On the removal
    of skewness by transformation", J. R. Statist. Soc. B 54, 221-228).

    T = (mean - truth)/(s/sqrt(n)) is skewed where x is: with a = skewness/sqrt(n), T + a T^2/3 + a^2 T^3/27 + a/6 is
    not, to first order, and has Student's quantiles q. Its inverse is (3/a) (cbrt(1 + a (q - a/6)) - 1).
    """
    mean, n, deviation = float(np.mean(x)), len(x), float(np.std(x))
    if deviation <= ROUNDING * abs(mean):
        return Estimate(mean, mean, mean)
    a = float(np.mean(((x - mean) / deviation) ** 3)) / n**0.5
    q = float(stats.t.ppf((1 + LEVEL) / 2, n - 1))
    t = np.array([q, -q])
    if abs(a) > ROUNDING**0.5:
        t = 3 / a * (np.cbrt(1 + a * (t - a / 6)) - 1)
    low, high = mean - t * deviation / (n - 1) ** 0.5
    return Estimate(mean, float(low), float(high))


def jackknifed(statistic: Statistic, units: int, distinct: int = 2, what: str = "units") -> Estimate:
    """The statistic of all units, with the interval of `skewed_mean` of its pseudo-values
    n S - (n - 1) S_(-i) (Tukey 1958).

    For a U-statistic of order two, such as a variance, these are one number for each unit whose mean is S. Where they
    are skewed, as squared lengths are, the interval holds the truth more often than a percentile bootstrap's does.
    """
    check_units(units, distinct, what, interval=True)
    value = float(statistic(np.ones(units)))
    interval = skewed_mean(units * value - (units - 1) * statistic(1.0 - np.eye(units)))
    return Estimate(value, interval.low, interval.high)


def stratified(statistic: Callable[[Groups], np.ndarray], groups: Groups, resamples: int, seed: int) -> Estimate:
    """A statistic of groups [seeds] and its percentile interval; the value alone where there are too few resamples."""
    value = float(statistic(groups))
    different = prod(comb(2 * len(x) - 1, len(x)) for x in groups)
    if not resamples or different < FEWEST_RESAMPLES:
        return Estimate(value)
    return percentile_interval(value, statistic(redraw(groups, resamples, seed)))


def redraw(groups: Groups, resamples: int, seed: int) -> list[np.ndarray]:
    """Each group [n] redrawn with replacement by itself: [resamples, n]."""
    rng = np.random.default_rng(seed)
    return [x[rng.integers(len(x), size=(resamples, len(x)))] for x in groups]
