"""Differences, probabilities of improvement and stratified tests, by hand, by enumeration and against SciPy."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats
from some_scores import OTHER, UNEQUAL

from isobatch.errors import UsageError
from isobatch.statistics.comparisons import bonferroni, difference, probability_of_improvement, van_elteren

TIED = {"a": np.array([1.0, 2, 2, 5]), "b": np.array([3.0, 3, 4])}


TIED_OTHER = {"a": np.array([2.0, 2, 0]), "b": np.array([3.0, 1, 4, 1])}


def test_differences_are_welchs() -> None:
    each, overall = difference(UNEQUAL, OTHER)
    for env, found in each.items():
        welch = stats.ttest_ind(UNEQUAL[env], OTHER[env], equal_var=False)
        low, high = welch.confidence_interval()
        np.testing.assert_allclose([found.value.low, found.value.high], [low, high])
        assert found.value.value / found.error == pytest.approx(welch.statistic)
    assert overall.value.value == pytest.approx(np.mean([found.value.value for found in each.values()]))
    assert overall.error == pytest.approx(np.sum([found.error**2 for found in each.values()]) ** 0.5 / 3)


def test_probability_of_improvement_by_loops() -> None:
    for x, y in ((UNEQUAL, OTHER), (TIED, TIED_OTHER)):
        shares = [np.mean([(a > b) + (a == b) / 2 for a in x[env] for b in y[env]]) for env in x]
        assert probability_of_improvement(x, y).value == pytest.approx(np.mean(shares))
        assert probability_of_improvement(y, x).value == pytest.approx(1 - np.mean(shares))


@pytest.mark.parametrize(("x", "y"), [(UNEQUAL, OTHER), (TIED, TIED_OTHER)], ids=["untied", "tied"])
def test_one_stratum_is_mann_whitney(x: dict, y: dict) -> None:
    for env in x:
        found = van_elteren({env: x[env]}, {env: y[env]})
        for alternative, p in (("greater", found.greater), ("less", found.less), ("two-sided", found.two_sided)):
            expected = stats.mannwhitneyu(
                x[env], y[env], use_continuity=False, alternative=alternative, method="asymptotic"
            )
            assert p == pytest.approx(expected.pvalue)


def test_van_elteren_by_hand() -> None:
    """a: U = 4 of mean 2 and variance 4/12 x 5 = 5/3, weight 1/5; b: U = 7 of mean 9/2 and variance 9/12 x 7 = 21/4,
    weight 1/7. z = (2/5 + 5/14) / sqrt(1/15 + 3/28). Of C(4,2) C(6,3) = 120 ways to choose X, one is the best.
    """
    found = van_elteren({"a": [3, 4], "b": [2, 5, 6]}, {"a": [1, 2], "b": [1, 3, 4]})
    assert found.z == pytest.approx((2 / 5 + 5 / 14) / (1 / 15 + 3 / 28) ** 0.5)
    assert found.z == pytest.approx(1.8161, abs=5e-5)
    assert found.greater == pytest.approx(0.0347, abs=5e-5)
    assert found.least == pytest.approx(1 / 120)


@pytest.mark.parametrize("tied", [False, True])
def test_van_elteren_by_enumeration(tied: bool) -> None:
    """Mean and variance over all ways to say which scores are X's are exact; the p-value is close (half the ties)."""
    rng = np.random.default_rng(1)
    strata = [rng.integers(4, size=n).astype(float) if tied else rng.standard_normal(n) for n in (4, 5, 6)]
    sizes = (2, 2, 3)
    possible = []
    for scores, n in zip(strata, sizes, strict=True):
        weighted = []
        for chosen in combinations(range(len(scores)), n):
            x, y = scores[list(chosen)], np.delete(scores, chosen)
            weighted.append(sum((a > b) + (a == b) / 2 for a in x for b in y) / (len(scores) + 1))
        possible.append(weighted)
    totals = np.array([sum(parts) for parts in product(*possible)])
    observed = sum(parts[0] for parts in possible)
    x, y = ([part(scores, n) for scores, n in zip(strata, sizes, strict=True)] for part in (first, rest))
    found = van_elteren(x, y)
    assert found.z == pytest.approx((observed - totals.mean()) / totals.std())
    exact = np.mean(totals > observed + 1e-9) + np.mean(np.abs(totals - observed) < 1e-9) / 2
    assert found.greater == pytest.approx(exact, abs=0.02)


def first(scores: np.ndarray, n: int) -> np.ndarray:
    return scores[:n]


def rest(scores: np.ndarray, n: int) -> np.ndarray:
    return scores[n:]


def test_van_elteren_is_symmetric_and_knows_no_difference() -> None:
    there, back = van_elteren(UNEQUAL, OTHER), van_elteren(OTHER, UNEQUAL)
    assert (there.z, there.greater, there.two_sided) == pytest.approx((-back.z, back.less, back.two_sided))
    assert there.greater + there.less == pytest.approx(1)
    shifted = {env: 10 * values + 3 for env, values in UNEQUAL.items()}
    assert van_elteren(shifted, {env: 10 * y + 3 for env, y in OTHER.items()}).z == pytest.approx(there.z)
    same = van_elteren({"a": [1, 1]}, {"a": [1, 1]})
    assert (same.z, same.greater, same.less, same.two_sided) == (0, 1, 1, 1)


def test_van_elteren_under_no_difference() -> None:
    """About 5 % of p-values below 0.05 where X and Y are alike."""
    rng = np.random.default_rng(2)
    found = [van_elteren(*rng.standard_normal((2, 4, 4))).two_sided < 0.05 for _ in range(400)]
    assert 0.02 < np.mean(found) < 0.08


def test_bonferroni_by_hand() -> None:
    found = bonferroni({"adam": 0.0002, "ewma": 0.0005, "advantage": 0.4})
    assert found.corrected == pytest.approx({"adam": 0.0006, "ewma": 0.0015, "advantage": 1.0})
    assert found.significant == ("adam",)
    assert bonferroni({"adam": 0.02, "ewma": 0.03}, level=0.05).significant == ("adam",)
    for p_values, level in (({}, 0.05), ({"a": 0.1}, 0.0), ({"a": 0.1}, 1.0)):
        with pytest.raises(UsageError, match="at least one, and a level between 0 and 1"):
            bonferroni(p_values, level)
    with pytest.raises(UsageError, match=r"p_values\['a'\] = nan"):
        bonferroni({"a": float("nan")})
