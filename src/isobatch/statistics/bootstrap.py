"""Unbiased means over independent units, and percentile intervals that resample whole units (Efron 1979).

A statistic is a function of the units' weights w: 1 for each gives the value, multinomial counts give a resample.
Pairs and triples are taken of different units only, so copies of one unit never meet and products of two
independent units stay what they are (a U-statistic; Hoeffding 1948).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from isobatch.errors import UsageError
from isobatch.formatting import with_interval

Statistic = Callable[[np.ndarray], np.ndarray]
LEVEL = 0.95
LEAST_FOR_INTERVAL = 4  # with fewer units there are too few different resamples


@dataclass(frozen=True)
class Estimate:
    """A value with the ends of its 95 % interval: nan where no interval was asked for."""

    value: float
    low: float = float("nan")
    high: float = float("nan")

    def __str__(self) -> str:
        return with_interval(self, "{:.4g}".format)

    def overlaps(self, other: Estimate) -> bool:
        """Whether the two intervals have anything in common."""
        return self.low <= other.high and other.low <= self.high


def resample(units: int, resamples: int = 1000, seed: int = 0) -> np.ndarray:
    """How often each unit is drawn [resamples, units] when as many are drawn as there are, with replacement."""
    return np.random.default_rng(seed).multinomial(units, np.full(units, 1 / units), size=resamples)


def unit_mean(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """sum_u w_u x_u / sum_u w_u for x [units, ...] and w [units] or [resamples, units]."""
    total = np.tensordot(w, x, axes=(-1, 0))
    return total / np.sum(w, axis=-1).reshape(w.shape[:-1] + (1,) * (x.ndim - 1))


def pair_mean(m: np.ndarray, w: np.ndarray, which: np.ndarray | None = None) -> np.ndarray:
    """sum_{u != v} w_u w_v m_uv / sum_{u != v} w_u w_v for m [units, units]: the mean over ordered pairs.

    `which` [units, units] says which pairs count, if not all of them do; not a number where no such pair was drawn.
    """
    if which is None:
        return np.sum(w * (w @ off_diagonal(m)), axis=-1) / pairs(w)
    counted = off_diagonal(which.astype(float))
    return ratio(np.sum(w * (w @ (m * counted)), axis=-1), np.sum(w * (w @ counted), axis=-1), otherwise=np.nan)


def triple_mean(x: np.ndarray, m: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The mean of x_u m_vt over ordered triples of different units, weighted by w_u w_v w_t; m is symmetric.

    For each u: all pairs minus those that contain u.
    """
    meeting = w * (w @ off_diagonal(m))
    others = np.sum(meeting, axis=-1, keepdims=True) - 2 * meeting
    weights = pairs(w)[..., None] - 2 * w * (np.sum(w, axis=-1, keepdims=True) - w)
    return np.sum(w * x * others, axis=-1) / np.sum(w * weights, axis=-1)


def off_diagonal(m: np.ndarray) -> np.ndarray:
    return m * (1.0 - np.eye(len(m)))


def pairs(w: np.ndarray) -> np.ndarray:
    """sum_{u != v} w_u w_v."""
    return np.sum(w, axis=-1) ** 2 - np.sum(w**2, axis=-1)


def ratio(numerator: np.ndarray, denominator: np.ndarray, otherwise: float) -> np.ndarray:
    """numerator / denominator where the estimated denominator is positive, as its true value is."""
    positive = np.asarray(denominator > 0)
    return np.where(positive, numerator / np.where(positive, denominator, 1.0), otherwise)


def estimate(
    statistic: Statistic,
    units: int,
    resamples: int = 1000,
    seed: int = 0,
    distinct: int = 2,
    what: str = "units",
    least: float = -math.inf,
) -> Estimate:
    """The statistic of all units and its percentile interval; with `resamples` = 0 the value alone.

    `distinct` is how many different units the statistic needs: resamples with fewer are left out, as are those
    where it is not a number. `least` is the least that the true value can be: no end is below, while the value itself,
    where it is unbiased, may be.
    """
    check_units(units, distinct, what, interval=resamples > 0)
    value = float(statistic(np.ones(units)))
    if not resamples:
        return Estimate(value)
    w = resample(units, resamples, seed).astype(np.float64)
    return percentile_interval(value, np.maximum(statistic(w[np.count_nonzero(w, axis=1) >= distinct]), least))


def check_units(units: int, distinct: int, what: str, interval: bool) -> None:
    """Raise where there are fewer units than the statistic, or its interval, needs."""
    needed = max(distinct, LEAST_FOR_INTERVAL) if interval else distinct
    if units < needed:
        purpose = "an estimate with an interval" if interval else "this estimate"
        raise UsageError(f"{what} = {units}: {purpose} needs at least {needed} independent {what}; collect more")


def percentile_interval(value: float, resamples: np.ndarray) -> Estimate:
    """A value with the percentile interval of its resamples [R]; those that are not a number are left out."""
    ordered = np.sort(resamples[~np.isnan(resamples)])
    if not len(ordered):
        return Estimate(value)
    # Order statistics rather than np.quantile, which cannot interpolate between infinities.
    tail = (1 - LEVEL) / 2 * (len(ordered) - 1)
    return Estimate(value, float(ordered[int(tail)]), float(ordered[-1 - int(tail)]))


def of_resamples(values: np.ndarray) -> Estimate:
    """From a value followed by its resamples, [1 + R]."""
    return percentile_interval(float(values[0]), values[1:])
