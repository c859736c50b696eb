"""Samples by law, by hand: S(B) = S_min (1 + B/B_crit), and what a delay costs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobatch.planning.samples import (
    FOLDS,
    Need,
    Stage,
    drawn_values,
    least_samples,
    log_spread,
    samples_needed,
    with_delay,
    without_delay,
)
from isobatch.statistics.bootstrap import Estimate

NONE = 1e-9  # delay


def stage(first: int, last: int, critical: float, low: float = np.nan, high: float = np.nan) -> Stage:
    return Stage(first, last, Estimate(critical, low, high), "by hand")


def test_least_samples_and_back() -> None:
    """1,500 samples at B = 256 with B_crit = 512 are S_min = 1,000; at B = 512 they double."""
    assert least_samples(1500, 256, 512) == pytest.approx(1000)
    assert samples_needed(1000, 512, 512) == pytest.approx(2000)


def test_stages_have_critical_batches_of_their_own() -> None:
    """First stage: 1,500 at B = 100, B_crit = 200: S_min 1,000, and 3,000 at B = 400. Second: 1,100 at B_crit = 1,000:
    S_min 1,000, and 1,400 at B = 400."""
    need = Need((stage(0, 1500, 200), stage(1500, 2600, 1000)), 100, NONE)
    assert need.samples == 2600
    assert need.at(100, NONE) == pytest.approx(2600)
    assert need.at(400, NONE) == pytest.approx(3000 + 1400)
    assert need.ratio(400, NONE) == pytest.approx(4400 / 2600)


def test_far_below_the_critical_batch_samples_are_the_same() -> None:
    need = Need((stage(0, 1000, 1e6),), 64, NONE)
    assert need.at(1, NONE) == pytest.approx(need.at(256, NONE), rel=3e-4)


def test_delays_by_hand() -> None:
    """With n = 6 and b = 100 what took S = 600 would take 600 / e without delay, since n b / S = 1; and W(e) = 1."""
    assert FOLDS == 6
    assert without_delay(600, 100) == pytest.approx(600 / np.e)
    assert with_delay(600 / np.e, 100) == pytest.approx(600)
    assert with_delay(600, 1e-9) == pytest.approx(600)


@given(st.floats(1e2, 1e8), st.floats(1e-4, 1))
def test_a_delay_is_undone_by_its_inverse(samples: float, share: float) -> None:
    delay = share * samples
    assert with_delay(without_delay(samples, delay), delay) == pytest.approx(samples, rel=1e-6)


def test_growth_with_a_delay_by_simulation() -> None:
    """p'(s) = r p(s - b), stepped: the time of an e-fold growth times n is what the formula says."""
    n, free, delay, step = 6.0, 1000.0, 200.0, 0.05
    rate, behind = n / free, int(delay / step)
    history = np.ones(behind + 1)  # grows alike before it begins
    values = list(history)
    while values[-1] < 1e9:
        values.append(values[-1] + step * rate * values[-1 - behind])
    late = np.log(values)[len(values) // 2 :]
    growth = (late[-1] - late[0]) / (step * (len(late) - 1))
    assert with_delay(free, delay) == pytest.approx(n / growth, rel=1e-2)


def test_larger_iterations_cost_samples_though_minibatches_stay() -> None:
    """S_0 = 6,000 / e at b = 1,000; at b = 1,000 e, n b / S_0 = e^2 and W = 1.5571: S = 6,000 e / 1.5571."""
    need = Need((stage(0, 6000, 1e9),), 64, 1000)
    assert need.at(64, 1000) == pytest.approx(6000)
    assert need.at(64, 1000 * np.e) == pytest.approx(6000 * np.e / 1.5571, rel=1e-4)


def test_draws_have_the_interval_they_came_from() -> None:
    estimates = [Estimate(100, 50, 200), Estimate(7)]
    drawn = drawn_values(estimates, 4000, np.random.default_rng(0))
    assert drawn[0].tolist() == [100, 7]
    assert np.quantile(drawn[:, 0], (0.025, 0.975)) == pytest.approx([50, 200], rel=0.1)
    assert np.all(drawn[:, 1] == 7)


def test_an_end_that_is_not_known_is_as_far_away_as_the_other() -> None:
    assert log_spread(Estimate(100, 50, np.inf)) == pytest.approx(np.log(2) / 1.96)
