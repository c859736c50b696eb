"""Aggregates over environments and seeds by hand, and scores that are refused."""

from __future__ import annotations

import numpy as np
import pytest
from some_scores import RNG, UNEQUAL

from isobatch.statistics.aggregates import (
    aggregate,
    contrast,
    interquartile_mean,
    score_table,
    skewed_mean,
)
from isobatch.statistics.bootstrap import Estimate


def test_interquartile_mean_by_sorting() -> None:
    runs = sorted(x for values in UNEQUAL.values() for x in values)
    middle = runs[len(runs) // 4 : len(runs) - len(runs) // 4]
    assert len(middle) == 8
    assert interquartile_mean(UNEQUAL).value == pytest.approx(sum(middle) / len(middle))


def test_aggregates_by_hand() -> None:
    """Means 2, 4 and 9: their mean 5."""
    scores = {"a": [1, 3], "b": [4, 4], "c": [5, 9, 9, 13]}
    found = aggregate(scores)
    assert found.mean.value == pytest.approx(5)
    assert found.interquartile_mean.value == pytest.approx((4 + 4 + 5 + 9) / 4)
    error = contrast([(1 / 3, np.array(x, float)) for x in scores.values()])[1]
    assert error == pytest.approx((2 / 2 + 0 + (32 / 3) / 4) ** 0.5 / 3)


def test_means_by_hand() -> None:
    """1, 2, 6: mean 3, variance (4 + 1 + 9)/2 = 7; 97.5 % of Student's t with 2 degrees lie below 4.30265."""
    mean = aggregate({"a": [1, 2, 6]}).mean
    assert mean.value == 3
    assert (mean.high - mean.low) / 2 == pytest.approx(4.30265 * (7 / 3) ** 0.5, rel=1e-5)
    assert aggregate({"b": [5, 5]}).mean == Estimate(5, 5, 5)


def test_a_mean_of_skewed_numbers_by_hand() -> None:
    """0, 0, 0, 4: mean 1, variance 4, so an error of 1; skewness (3 (-1) + 27)/4 / 3^1.5 = 1.1547, halved: a = 0.57735.
    At both ends T + a T^2/3 + a^2 T^3/27 + a/6 is Student's quantile with 3 degrees of freedom, 3.18245 and its
    opposite. Symmetric numbers have Student's interval, and equal ones none."""
    skewed, a = skewed_mean(np.array([0.0, 0.0, 0.0, 4.0])), 3**-0.5
    for end, quantile in ((skewed.low, 3.18245), (skewed.high, -3.18245)):
        t = 1 - end
        assert t + a * t**2 / 3 + a**2 * t**3 / 27 + a / 6 == pytest.approx(quantile, rel=1e-5)
    assert 1 - skewed.low < 3.18 < skewed.high - 1  # the long tail is where numbers were not drawn yet
    symmetric = np.array([1.0, 2.0, 4.0, 5.0])
    by_student, plain = contrast([(1.0, symmetric)])[0], skewed_mean(symmetric)
    assert (plain.value, plain.low, plain.high) == pytest.approx((3, by_student.low, by_student.high))
    assert skewed_mean(np.full(4, 0.1)) == Estimate(0.1, 0.1, 0.1)


def test_arrays_are_environments_by_seeds() -> None:
    array = RNG.standard_normal((3, 4))
    named = {str(e): array[e] for e in range(3)}
    assert aggregate(array) == aggregate(named)
    assert list(score_table(array)) == ["0", "1", "2"]
