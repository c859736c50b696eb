"""What is estimated at one N x T and lambda, and how sections write it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from isobatch.formatting import TO, number, with_interval
from isobatch.laboratory.landscape import Measured
from isobatch.statistics.bootstrap import Estimate, of_resamples, ratio

WORTH_SAYING = 0.2  # of a quantity: what makes less of a difference is not worth a sentence
COLUMNS = ("variance", "squared_bias", "error")
NO_LESS_THAN_0 = (*COLUMNS, "individual", "effective_samples", "critical_batch")


@dataclass(frozen=True, kw_only=True)
class Point:
    """`landscape.Measured` with intervals in place of resamples.

    Estimates without noise terms fall below 0 now and then where the truth is near it and cannot: that counts as 0, in
    the value and in the ends of its interval. Not so the signal, whose mean over several policies must stay unbiased.
    """

    num_envs: int
    num_steps: int
    gae_lambda: float
    variance: Estimate
    individual: Estimate
    within: Estimate
    across: Estimate
    squared_bias: Estimate
    signal: Estimate
    effective_samples: Estimate
    critical_batch: Estimate
    error: Estimate

    @property
    def name(self) -> str:
        return f"{self.num_envs}x{self.num_steps}"

    def cells(self, quantities: Iterable[str], unit: float) -> list[str]:
        """Some of the estimates for a table, in units of `unit`."""
        return [cell(getattr(self, quantity), unit) for quantity in quantities]


def point_fields(measured: Measured) -> dict[str, Any]:
    """The arguments of a `Point`."""
    settings = ("num_envs", "num_steps", "gae_lambda")
    samples = {f.name: getattr(measured, f.name) for f in dataclasses.fields(Point) if f.name not in settings}
    estimates = {
        name: positive_part(values) if name in NO_LESS_THAN_0 else of_resamples(values)
        for name, values in samples.items()
    }
    return {name: getattr(measured, name) for name in settings} | estimates


def positive_part(values: np.ndarray) -> Estimate:
    """Of a value with resamples that cannot truly be below 0."""
    return of_resamples(np.maximum(values, 0.0))


def ratio_of(numerator: np.ndarray, denominator: np.ndarray) -> Estimate:
    """Of two estimates with resamples, of what cannot truly be below 0."""
    return positive_part(ratio(numerator, denominator, otherwise=np.inf))


def cell(estimate: Estimate, unit: float = 1.0, digits: int = 2) -> str:
    """`value [low, high]` in units of `unit`."""
    return with_interval(estimate, lambda x: number(x / unit, digits))


def unit_of(points: Iterable[Point]) -> float:
    """The power of ten just below the smallest error."""
    positive = [point.error.value for point in points if point.error.value > 0]
    return 10.0 ** math.floor(math.log10(min(positive))) if positive else 1.0


def in_units(unit: float) -> str:
    return "" if unit == 1 else f"in units of {unit:.0e}, "


def times(ratio: Estimate) -> str:
    """A ratio of two errors in words."""
    low = 0.0 if math.isnan(ratio.low) else ratio.low
    if math.isnan(ratio.value):
        return f"at least {low:.1f} times"
    high = math.inf if math.isnan(ratio.high) else ratio.high
    return f"{ratio.value:.1f} times {TO.format(number(low), number(high))}"
