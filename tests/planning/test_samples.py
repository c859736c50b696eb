"""Samples by law, by hand: S(B) = S_min (1 + B/B_crit)."""

import numpy as np
import pytest

from isobatch.planning.samples import Need, Stage, drawn_values, least_samples, log_spread, samples_needed
from isobatch.statistics.bootstrap import Estimate


def stage(first: int, last: int, critical: float, low: float = np.nan, high: float = np.nan) -> Stage:
    return Stage(first, last, Estimate(critical, low, high), "by hand")


def test_least_samples_and_back() -> None:
    """1,500 samples at B = 256 with B_crit = 512 are S_min = 1,000; at B = 512 they double."""
    assert least_samples(1500, 256, 512) == pytest.approx(1000)
    assert samples_needed(1000, 512, 512) == pytest.approx(2000)


def test_stages_have_critical_batches_of_their_own() -> None:
    """First stage: 1,500 at B = 100, B_crit = 200: S_min 1,000, and 3,000 at B = 400. Second: 1,100 at B_crit = 1,000:
    S_min 1,000, and 1,400 at B = 400."""
    need = Need((stage(0, 1500, 200), stage(1500, 2600, 1000)), 100)
    assert need.samples == 2600
    assert need.at(100) == pytest.approx(2600)
    assert need.at(400) == pytest.approx(3000 + 1400)
    assert need.ratio(400) == pytest.approx(4400 / 2600)


def test_far_below_the_critical_batch_samples_are_the_same() -> None:
    need = Need((stage(0, 1000, 1e6),), 64)
    assert need.at(1) == pytest.approx(need.at(256), rel=3e-4)


def test_draws_have_the_interval_they_came_from() -> None:
    estimates = [Estimate(100, 50, 200), Estimate(7)]
    drawn = drawn_values(estimates, 4000, np.random.default_rng(0))
    assert drawn[0].tolist() == [100, 7]
    assert np.quantile(drawn[:, 0], (0.025, 0.975)) == pytest.approx([50, 200], rel=0.1)
    assert np.all(drawn[:, 1] == 7)


def test_an_end_that_is_not_known_is_as_far_away_as_the_other() -> None:
    assert log_spread(Estimate(100, 50, np.inf)) == pytest.approx(np.log(2) / 1.96)
