"""Normalized returns, aggregates over environments and seeds, tests between them, and gaps over batch sizes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from itertools import combinations, product
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy import stats

from isobatch.envs import env_ids, make_env
from isobatch.errors import UsageError
from isobatch.statistics.aggregates import (
    aggregate,
    contrast,
    interquartile_mean,
    optimality_gap,
    score_table,
    summarize,
)
from isobatch.statistics.bootstrap import Estimate
from isobatch.statistics.comparisons import bonferroni, difference, probability_of_improvement, van_elteren
from isobatch.statistics.gaps import gap, gaps
from isobatch.statistics.normalization import FIRST_EIGHT, LAST_EIGHT, OTHERS, PROCGEN_HARD, Range, normalize, range_of

RNG = np.random.default_rng(0)
UNEQUAL = {"a": RNG.normal(0, 1, 5), "b": RNG.normal(2, 2, 3), "c": RNG.normal(-1, 1, 6)}
OTHER = {"a": RNG.normal(0.5, 1, 4), "b": RNG.normal(2, 2, 5), "c": RNG.normal(-1, 1, 2)}
TIED = {"a": np.array([1.0, 2, 2, 5]), "b": np.array([3.0, 3, 4])}
TIED_OTHER = {"a": np.array([2.0, 2, 0]), "b": np.array([3.0, 1, 4, 1])}


def test_procgen_by_hand() -> None:
    """bigfish 0 to 40; fruitbot -.5 to 27.2: 13.35 is half way; coinrun 5 to 10."""
    assert normalize("bigfish", 20) == 0.5
    np.testing.assert_allclose(normalize("fruitbot", [-0.5, 13.35, 27.2]), [0, 0.5, 1])
    np.testing.assert_allclose(normalize("coinrun", [0, 7.5, 10]), [-1, 0.5, 1])
    assert range_of("BigfishHard-v0") == range_of("bigfish")
    assert len(PROCGEN_HARD) == 16
    assert FIRST_EIGHT == ("coinrun", "starpilot", "caveflyer", "dodgeball", "fruitbot", "chaser", "miner", "jumper")
    assert {*FIRST_EIGHT, *LAST_EIGHT} == set(PROCGEN_HARD)


def test_other_environments_and_given_ranges() -> None:
    assert set(OTHERS) <= set(env_ids())
    assert all("random actions" in found.source for found in OTHERS.values())
    assert normalize("CartPole-v1", 500) == 1
    assert normalize("Probe-Delay", 3, {"Probe-Delay": Range(1, 5, "by hand")}) == 0.5
    assert normalize("bigfish", 20, {"bigfish": Range(0, 20)}) == 1


def test_refused_ranges() -> None:
    with pytest.raises(UsageError, match=r"'Probe-Delay' has no return range: give one as ranges=\{'Probe-Delay'"):
        normalize("Probe-Delay", 1)
    with pytest.raises(UsageError, match="did you mean bigfish"):
        normalize("bigfsh", 1)
    for low, high in ((1, 1), (2, 1), (float("nan"), 1)):
        with pytest.raises(UsageError, match="two finite returns with low < high"):
            Range(low, high)


def test_random_returns_are_those_measured() -> None:
    """The committed script on one environment: the table holds what it prints, to within 4 standard errors."""
    path = Path(__file__).parents[2] / "docs" / "results" / "random_returns.py"
    spec = importlib.util.spec_from_file_location("random_returns", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    returns, lengths = script.play(make_env("CartPole-v1"), 256, jax.random.key(1))
    np.testing.assert_array_equal(returns, lengths)
    assert abs(np.mean(returns) - OTHERS["CartPole-v1"].low) < 4 * np.std(returns) / 256**0.5


def test_interquartile_mean_by_sorting() -> None:
    runs = sorted(x for values in UNEQUAL.values() for x in values)
    middle = runs[len(runs) // 4 : len(runs) - len(runs) // 4]
    assert len(middle) == 8
    assert interquartile_mean(UNEQUAL).value == pytest.approx(sum(middle) / len(middle))


def test_aggregates_by_hand() -> None:
    """Means 2, 4 and 9: their mean 5, median 4. Short of 5: 4, 2, 1, 1 and 0 four times over 8 runs: 1."""
    scores = {"a": [1, 3], "b": [4, 4], "c": [5, 9, 9, 13]}
    found = aggregate(scores, target=5)
    assert (found.mean.value, found.median.value) == pytest.approx((5, 4))
    assert found.optimality_gap.value == pytest.approx(1)
    assert found.interquartile_mean.value == pytest.approx((4 + 4 + 5 + 9) / 4)
    assert found.error == pytest.approx((2 / 2 + 0 + (32 / 3) / 4) ** 0.5 / 3)


def test_summaries_by_hand() -> None:
    """1, 2, 6: mean 3, variance (4 + 1 + 9)/2 = 7; 97.5 % of Student's t with 2 degrees lie below 4.30265."""
    found = summarize({"a": [1, 2, 6], "b": [5, 5]})
    assert (found["a"].deviation, found["a"].error, found["a"].seeds) == pytest.approx((7**0.5, (7 / 3) ** 0.5, 3))
    assert found["a"].mean.value == 3
    mean = found["a"].mean
    assert (mean.high - mean.low) / 2 == pytest.approx(4.30265 * (7 / 3) ** 0.5, rel=1e-5)
    assert found["b"].mean == Estimate(5, 5, 5)


def test_arrays_are_environments_by_seeds() -> None:
    array = RNG.standard_normal((3, 4))
    named = {str(e): array[e] for e in range(3)}
    assert aggregate(array) == aggregate(named)
    assert list(score_table(array)) == ["0", "1", "2"]


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


def test_gap_by_hand() -> None:
    """Means over two environments: (1 + 3)/2, (2 + 2)/2 and (5 + 1)/2, so 2, 2 and 3: a gap of 1."""
    sizes = {"1": {"a": [0, 2], "b": [3, 3]}, "4": {"b": [2, 2], "a": [2, 2]}, "16": {"a": [4, 6], "b": [0, 1, 2]}}
    found = gap(sizes)
    assert found.value.value == pytest.approx(1)
    assert found.means == pytest.approx({"1": 2, "4": 2, "16": 3})
    assert gaps(sizes)["a"].value.value == pytest.approx(4)
    assert gaps(sizes)["b"].value.value == pytest.approx(2)


def test_gap_by_chance_equals_enumeration() -> None:
    """Two sizes of two seeds, 0 1 and 2 3: of 6 splits 2 give a gap of 2, 2 of 1 and 2 of 0."""
    found = gap({"1": {"a": [0, 1]}, "4": {"a": [2, 3]}}, permutations=20000)
    assert found.value.value == 2
    assert found.by_chance.value == pytest.approx(1, abs=0.03)
    assert found.p == pytest.approx(1 / 3, abs=0.02)


def test_gap_of_alike_and_of_unlike_sizes() -> None:
    """Alike sizes: the gap is positive, yet no larger than chance gives; a size apart shows."""
    rng = np.random.default_rng(3)
    alike = [gap({str(r): rng.standard_normal((3, 4)) for r in range(4)}, 0, 200) for _ in range(200)]
    assert np.mean([found.value.value for found in alike]) == pytest.approx(
        np.mean([found.by_chance.value for found in alike]), rel=0.1
    )
    assert 0.01 < np.mean([found.p <= 0.05 for found in alike]) < 0.1
    unlike = gap({str(r): rng.standard_normal((3, 4)) + 5 * (r == 3) for r in range(4)})
    assert unlike.value.low > unlike.by_chance.high
    assert unlike.p < 0.01


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
        (lambda rng: summarize(normals(rng, 3))["0"].mean, -1.0),
        (lambda rng: optimality_gap(normals(rng)[1:3], 0.0, 300), (2 * np.pi) ** -0.5),
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
        summarize({"a": [1.0, float("nan")]})
    with pytest.raises(UsageError, match=r"y differs in the environments \['b', 'c'\]"):
        van_elteren({"a": [1, 2], "b": [1, 2]}, {"a": [1, 2], "c": [1, 2]})
    with pytest.raises(UsageError, match=r"sizes\['4'\] differs in the environments \['b'\]"):
        gap({"1": {"a": [1, 2]}, "4": {"a": [1, 2], "b": [1, 2]}})
    with pytest.raises(UsageError, match="at least 2 of them"):
        gap({"1": {"a": [1, 2]}})
    with pytest.raises(UsageError, match="permutations = 0"):
        gap({"1": {"a": [1, 2]}, "4": {"a": [1, 2]}}, permutations=0)
