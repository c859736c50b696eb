"""The environment that stands apart, by hand."""

import math

import numpy as np
import pytest

from isobatch.statistics.outliers import farthest


def test_the_modified_z_score_by_hand() -> None:
    """Median .02; distances .03, .01, 0, .01, .48; their median .01. M of e = .6745 x .48 / .01 = 32.4."""
    found = farthest({"a": -0.01, "b": 0.01, "c": 0.02, "d": 0.03, "e": 0.5})
    assert found is not None
    assert (found.env, found.score) == ("e", pytest.approx(32.376))
    assert found.is_outlier
    even = farthest({"a": 0.0, "b": 0.1, "c": 0.2, "d": 0.3})
    assert even is not None
    assert not even.is_outlier


def test_normal_differences_seldom_have_one() -> None:
    """Of 16 environments without one, in 1,000 draws; where one is ten standard deviations away it is always found."""
    rng, games = np.random.default_rng(0), [f"game {i}" for i in range(16)]
    found = [farthest(dict(zip(games, rng.normal(size=16), strict=True))) for _ in range(1000)]
    assert np.mean([each is not None and each.is_outlier for each in found]) < 0.15
    apart = np.where(np.arange(16) == 11, 10.0, 0.0)
    found = [farthest(dict(zip(games, rng.normal(size=16) + apart, strict=True))) for _ in range(100)]
    assert {each.env for each in found if each is not None and each.is_outlier} == {"game 11"}


def test_too_few_and_equal_ones() -> None:
    assert farthest({"a": 0.0, "b": 0.1, "c": 9.0}) is None
    assert farthest(dict.fromkeys("abcd", 0.1)) is None
    alone = farthest({"a": 0.0, "b": 0.0, "c": 0.0, "d": -1.0})
    assert alone is not None
    assert alone.score == -math.inf
