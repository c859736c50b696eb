"""What is kept of a base's return: a ratio of means, with an interval for both."""

import numpy as np
import pytest
from scipy import stats

from isobatch.errors import UsageError
from isobatch.statistics.retention import kept, learned


def test_by_hand() -> None:
    """X = 1, 3 and B = 4, 4: half is kept. B does not vary, so the interval is that of X over 4.

    Standard error of X: s / sqrt(n) = sqrt(2) / sqrt(2) = 1, one degree of freedom.
    """
    each, overall = kept({"a": [1, 3]}, {"a": [4, 4]})
    half = stats.t.ppf(0.975, 1) / 4
    assert each["a"].value == overall.value == 0.5
    np.testing.assert_allclose([overall.low, overall.high], [0.5 - half, 0.5 + half])


def test_a_base_that_varies_widens_the_interval_as_the_ratio_has_it() -> None:
    """X = 2 always, B = 3, 5: r = 1/2, and to first order its error is r / mean(B) times that of B: 1/2 / 4 x 1."""
    (estimate,) = kept({"a": [2, 2]}, {"a": [3, 5]})[0].values()
    half = stats.t.ppf(0.975, 1) * 0.5 / 4
    np.testing.assert_allclose([estimate.value, estimate.low, estimate.high], [0.5, 0.5 - half, 0.5 + half])


def test_tasks_count_alike_whatever_their_scale() -> None:
    x, base = {"a": [1.0, 1.0], "b": [300.0, 300.0]}, {"a": [2.0, 2.0], "b": [200.0, 200.0]}
    assert kept(x, base)[1].value == (0.5 + 1.5) / 2
    scaled = kept({"a": [10.0, 10.0], "b": [3.0, 3.0]}, {"a": [20.0, 20.0], "b": [2.0, 2.0]})[1]
    assert scaled.value == (0.5 + 1.5) / 2


def test_the_interval_holds_what_it_says() -> None:
    """Of 2,000 experiments with 5 seeds and a true ratio of .8, about 95 % of the intervals hold it."""
    rng, hits = np.random.default_rng(0), 0
    for _ in range(2000):
        x, base = 0.8 + 0.1 * rng.normal(size=5), 1 + 0.1 * rng.normal(size=5)
        estimate = kept({"a": x}, {"a": base})[1]
        hits += estimate.low <= 0.8 <= estimate.high
    assert 0.93 < hits / 2000 < 0.975


def test_nothing_can_be_kept_of_nothing() -> None:
    with pytest.raises(UsageError, match=r"the base of 'a' has a mean score of -0\.5: nothing was learned"):
        kept({"a": [1, 1]}, {"a": [-1, 0]})
    assert learned(np.array([0.9, 1.0, 1.1]))
    assert not learned(np.array([0.0, 0.0, 1.0]))
    assert not learned(np.array([0.0, 0.0, 0.0]))
