"""How many seeds would tell a difference: by simulation, by the known formula, and at its limits."""

import numpy as np
import pytest
from scipy import stats

from isobatch.errors import UsageError
from isobatch.statistics.aggregates import contrast
from isobatch.statistics.power import seeds_to_tell


def scores(deviation: float, count: int = 6) -> np.ndarray:
    """With exactly this standard deviation."""
    x = np.arange(count, dtype=float)
    return deviation * (x - x.mean()) / x.std(ddof=1)


@pytest.mark.parametrize("deviations", [(0.06, 0.06), (0.02, 0.09)], ids=["equal", "unequal"])
def test_as_many_seeds_find_the_difference_as_often_as_asked(deviations: tuple[float, float]) -> None:
    """Of 3,000 experiments, whose share has a standard error of .007: with one seed less it is too few."""
    terms = [(sign * 0.5, scores(deviation)) for deviation in deviations for sign in (1.0, -1.0)]
    n, rng = seeds_to_tell(terms, effect=0.05), np.random.default_rng(0)

    def found(seeds: int) -> bool:
        drawn = [(a, 0.05 * (a > 0) + rng.normal(size=seeds) * np.std(x, ddof=1)) for a, x in terms]
        interval, _ = contrast(drawn)
        return not interval.low <= 0 <= interval.high

    assert np.mean([found(n) for _ in range(3000)]) > 0.79
    assert np.mean([found(n - 1) for _ in range(3000)]) < 0.79


def test_two_samples_have_the_textbook_number() -> None:
    """Cohen 1988, table 2.4.1: d = 0.5 needs 64 in each of two groups, for a power of .8 at a two-sided .05."""
    terms = [(1.0, scores(1.0)), (-1.0, scores(1.0))]
    assert seeds_to_tell(terms, effect=0.5) == 64
    assert seeds_to_tell(terms, effect=0.8) == 26


def test_a_small_spread_needs_few_and_many_need_what_the_normal_says() -> None:
    assert seeds_to_tell([(1.0, np.ones(4)), (-1.0, np.ones(4))]) == 2
    many = seeds_to_tell([(1.0, scores(3.0)), (-1.0, scores(3.0))])
    assert many == pytest.approx((stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) ** 2 * 18 / 0.05**2, rel=1e-3)


@pytest.mark.parametrize("change", [dict(effect=0.0), dict(power=1.0)])
def test_bad_usage(change: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="give an effect above 0 and a power between 0 and 1"):
        seeds_to_tell([(1.0, scores(1.0))], **change)
