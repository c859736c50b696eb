"""Where sizes begin to lose: numbers by hand, and the decisions on made-up curves."""

import math

import numpy as np
import pytest
from scipy import stats

from isobatch.statistics.bootstrap import Estimate
from isobatch.statistics.lossless import critical_size

STUDENT = stats.t.ppf(0.975, 3)  # of four seeds: 3.182


def test_by_hand() -> None:
    """Differences of 4 from 1 are .1, -.1, 0, 0: mean 0, standard deviation sqrt(.02/3). Those of 16 from 1, the first
    of two equal means, are -5, -5, -4, -6: mean -5, standard deviation sqrt(2/3). Between 0 and -5, -1 is a fifth of
    the way from 4 to 16."""
    scores = np.array([[10.0, 10, 10, 10], [10.1, 9.9, 10, 10], [5.0, 5, 6, 4]])
    found = critical_size([1, 4, 16], scores, tolerance=1.0)
    four, sixteen = found.comparisons
    half = STUDENT * math.sqrt(0.02 / 3 / 4)
    assert (four.difference.low, four.difference.high) == pytest.approx((-half, half))
    assert (four.best_smaller, four.verdict) == (0, "loses nothing")
    half = STUDENT * math.sqrt(2 / 3 / 4)
    assert (sixteen.difference.low, sixteen.difference.high) == pytest.approx((-5 - half, -5 + half))
    assert (sixteen.best_smaller, sixteen.verdict) == (0, "loses")
    assert (found.size.value, found.size.low, found.size.high) == pytest.approx((4 * 4**0.2, 4, 16))


def test_the_best_of_the_smaller_ones_is_what_counts() -> None:
    """8 gets more than 2, so 32 loses against it though it gets as much as 2."""
    scores = np.array([[10.0] * 4, [20.0] * 4, [10.0] * 4])
    found = critical_size([2, 8, 32], scores, tolerance=5.0)
    assert [each.best_smaller for each in found.comparisons] == [0, 1]
    assert [each.verdict for each in found.comparisons] == ["loses nothing", "loses"]
    assert found.size == Estimate(pytest.approx(8 * 4 ** (15 / 20)), 8, 32)  # from +10 to -10, at -5


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ((10, 10, 10), Estimate(16, 16, math.inf)),  # nothing is lost at any size
        ((10, 2, 10), Estimate(4**0.125, 1, 4)),  # the first loss counts, at 1/8 of the way from 0 to -8
        ((10, 10, 2), Estimate(4 * 4**0.125, 4, 16)),
    ],
)
def test_curves_without_noise(means: tuple[float, ...], expected: Estimate) -> None:
    found = critical_size([1, 4, 16], np.repeat(np.array(means, float)[:, None], 4, axis=1), tolerance=1.0)
    assert (found.size.value, found.size.low, found.size.high) == pytest.approx(
        (expected.value, expected.low, expected.high)
    )


def test_in_doubt_the_interval_is_wide() -> None:
    """Seeds that differ much: the mean of 4 is below the tolerance, but nothing is shown."""
    scores = np.array([[10.0, 10, 10, 10], [0.0, 20, 0, 10], [10.0, 10, 10, 10]])
    found = critical_size([1, 4, 16], scores, tolerance=1.0)
    assert [each.verdict for each in found.comparisons] == ["cannot be told", "loses nothing"]
    assert (found.size.low, found.size.high) == (1, math.inf)
    assert 1 < found.size.value < 4
