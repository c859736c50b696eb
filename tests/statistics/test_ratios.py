"""Ratios of sums: by hand, and how often the interval holds the truth."""

import math

import numpy as np
import pytest

from isobatch.statistics.bootstrap import Estimate
from isobatch.statistics.ratios import Z, ratio_of_sums


def normal(value: float, error: float) -> Estimate:
    return Estimate(value, value - Z * error, value + Z * error)


def test_without_error_it_is_the_ratio() -> None:
    """(3 + 5) / (1 + 3) = 2."""
    found = ratio_of_sums([normal(3, 0), normal(5, 0)], [normal(1, 0), normal(3, 0)])
    assert (found.value, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))


def test_an_exact_denominator_scales_the_interval() -> None:
    """10 with error 1 over 2: 5 with error 1/2."""
    found = ratio_of_sums([normal(10, 1)], [normal(2, 0)])
    assert (found.value, found.low, found.high) == pytest.approx((5.0, 5 - Z / 2, 5 + Z / 2))


def test_an_exact_numerator_inverts_the_interval() -> None:
    """10 over 4 with error 1: ends 10 / (4 +- Z)."""
    found = ratio_of_sums([normal(10, 0)], [normal(4, 1)])
    assert (found.low, found.high) == pytest.approx((10 / (4 + Z), 10 / (4 - Z)))


@pytest.mark.parametrize("denominator", [0.5, 0.0, -0.5])
def test_a_denominator_that_may_be_0_leaves_a_lower_end(denominator: float) -> None:
    """10 over d with error 1: the largest d that is possible is d + Z."""
    found = ratio_of_sums([normal(10, 0)], [normal(denominator, 1)])
    assert found.high == math.inf
    assert found.low == pytest.approx(10 / (denominator + Z))
    assert found.value == (20 if denominator > 0 else math.inf)


@pytest.mark.parametrize("truth", [20.0, 3.0, 1.0])
def test_the_interval_holds_the_truth_as_often_as_it_says(truth: float) -> None:
    """Numerator 10 with error 2, denominator 10 / truth with error 1: of 4,000, within 4 errors of 95 %."""
    random = np.random.default_rng(0)
    held = 0
    for n, d in zip(random.normal(10, 2, 4000), random.normal(10 / truth, 1, 4000), strict=True):
        found = ratio_of_sums([normal(n, 2)], [normal(d, 1)])
        held += found.low <= truth <= found.high
    assert abs(held / 4000 - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 4000)
