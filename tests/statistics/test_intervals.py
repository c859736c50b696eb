"""What holds of all statistics of scores: intervals cover, seeds repeat, and scores without sense are refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats
from some_scores import OTHER, UNEQUAL

from isobatch.errors import UsageError
from isobatch.statistics.aggregates import (
    aggregate,
    contrast,
    interquartile_mean,
)
from isobatch.statistics.bootstrap import Estimate
from isobatch.statistics.comparisons import difference, gap, probability_of_improvement, van_elteren


def covered(interval: Callable[[np.random.Generator], Estimate], truth: float, seed: int = 4) -> float:
    """How often the interval of 200 simulations holds the truth."""
    rng = np.random.default_rng(seed)
    found = [interval(rng) for _ in range(200)]
    return float(np.mean([estimate.low <= truth <= estimate.high for estimate in found]))


def test_intervals_cover() -> None:
    centers = np.array([[-1.0], [0.0], [0.0], [1.0]])
    means = {"1": 0.0, "4": 0.5, "16": 1.0}

    def normals(rng: np.random.Generator, seeds: int = 8, shift: float = 0.0) -> np.ndarray:
        return rng.normal(centers + shift, 1, (4, seeds))

    def sizes(rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {name: rng.normal(mean, 0.2, (2, 8)) for name, mean in means.items()}

    cases: list[tuple[Callable[[np.random.Generator], Estimate], float]] = [
        (lambda rng: interquartile_mean(normals(rng), 300), 0.0),
        (lambda rng: aggregate(normals(rng), 0).mean, 0.0),
        (lambda rng: aggregate(normals(rng, 3)[:1], 0).mean, -1.0),
        (lambda rng: difference(normals(rng, 3, 2.0), normals(rng, 4))[1].value, 2.0),
        (lambda rng: probability_of_improvement(normals(rng, 8, 0.5), normals(rng), 300), stats.norm.cdf(0.5**1.5)),
        (lambda rng: gap(sizes(rng), 300, 1).value, 1.0),
    ]
    for number, (interval, truth) in enumerate(cases):
        assert 0.85 <= covered(interval, truth) <= 1.0, f"case {number}"


def test_same_seed_same_numbers() -> None:
    sizes = {"1": UNEQUAL, "4": OTHER}
    assert aggregate(UNEQUAL, seed=1) == aggregate(UNEQUAL, seed=1)
    assert aggregate(UNEQUAL, seed=1) != aggregate(UNEQUAL, seed=2)
    assert probability_of_improvement(UNEQUAL, OTHER, seed=1) == probability_of_improvement(UNEQUAL, OTHER, seed=1)
    assert gap(sizes, seed=1) == gap(sizes, seed=1)
    assert gap(sizes, seed=1) != gap(sizes, seed=2)


def test_no_interval_from_too_few_seeds() -> None:
    """2 seeds redraw in 3 ways, 4 in C(7,4) = 35, which is enough."""
    assert np.isnan(interquartile_mean({"a": [1, 2]}).low)
    assert np.isfinite(interquartile_mean({"a": [1, 2, 3, 4]}).low)
    assert np.isnan(interquartile_mean({"a": [1, 2, 3, 4]}, resamples=0).low)


def test_equal_scores_need_no_care() -> None:
    nothing = contrast([(0.5, np.full(3, 0.1)), (0.5, np.full(3, 0.1))])[0]
    assert nothing.high - nothing.low == pytest.approx(0, abs=1e-15)
    perfect = {"a": np.full(4, 500.0), "b": np.full(4, 500.0)}
    assert aggregate(perfect).interquartile_mean == Estimate(500, 500, 500)
    assert gap({"1": perfect, "4": perfect}).p == 1


def test_refused_scores() -> None:
    with pytest.raises(UsageError, match="scores is empty"):
        aggregate({})
    for scores in ({"a": [1.0]}, {"a": []}, np.zeros((2, 1)), np.zeros(3), {"a": np.zeros((2, 2))}):
        with pytest.raises(UsageError, match="each of at least 2 seeds"):
            interquartile_mean(scores)
    with pytest.raises(UsageError, match=r"'a' holds .*diverged"):
        aggregate({"a": [1.0, float("nan")]})
    with pytest.raises(UsageError, match=r"y differs in the environments \['b', 'c'\]"):
        van_elteren({"a": [1, 2], "b": [1, 2]}, {"a": [1, 2], "c": [1, 2]})
    with pytest.raises(UsageError, match=r"sizes\['4'\] differs in the environments \['b'\]"):
        gap({"1": {"a": [1, 2]}, "4": {"a": [1, 2], "b": [1, 2]}})
    with pytest.raises(UsageError, match="at least 2 of them"):
        gap({"1": {"a": [1, 2]}})
    with pytest.raises(UsageError, match="permutations = 0"):
        gap({"1": {"a": [1, 2]}, "4": {"a": [1, 2]}}, permutations=0)
