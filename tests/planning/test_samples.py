"""Samples by law, by hand: S = S_min (1 + B/B_crit) + I b, with 1/I = 1/I_max + 1/K."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobatch.planning.samples import (
    ITERATIONS,
    ITERATIONS_SPREAD,
    Need,
    Stage,
    drawn_values,
    iterations_needed,
    least_samples,
    log_spread,
    samples_needed,
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


def test_iterations_by_hand() -> None:
    """Half of either where a run took as many as are ever needed; never more than it took, nor than those."""
    assert iterations_needed(13, 13) == pytest.approx(6.5)
    assert iterations_needed(39, 13) == pytest.approx(9.75)
    assert iterations_needed(1e9, 13) == pytest.approx(13)
    assert iterations_needed(1e-3, 13) == pytest.approx(1e-3, rel=1e-3)


def test_larger_iterations_cost_samples_though_minibatches_stay() -> None:
    """K = I_max iterations of 1,000 samples: half of them go by b. Fourfold iterations: 1/2 + 4/2 times as many."""
    taken = int(ITERATIONS * 1000)
    need = Need((stage(0, taken, 1e9),), 64, 1000)
    assert need.at(64, 1000) == pytest.approx(taken)
    assert need.ratio(64, 4000) == pytest.approx(2.5)
    assert need.ratio(64, NONE) == pytest.approx(0.5)


def test_the_constants_are_those_that_the_benchmark_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """On its committed rows, to two digits."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    law = importlib.import_module("planning_law")
    fit = [row for row in law.read() if not row.is_judged]
    assert len(law.by_task(fit)) >= 6
    assert float(f"{law.fitted(*law.LAWS[law.CHOSEN], fit):.2g}") == ITERATIONS
    spread = np.std([np.log(law.fitted(*law.LAWS[law.CHOSEN], of)) for of in law.by_task(fit).values()], ddof=1)
    assert float(f"{spread:.2g}") == ITERATIONS_SPREAD


def test_both_batches_together_by_hand() -> None:
    """1/2 goes by b, which is fourfold; the other half by 1 + B/B_crit, 1.5 at B = 64 and 2 at B = 128."""
    need = Need((stage(0, int(ITERATIONS * 1000), 128),), 64, 1000)
    assert need.ratio(128, 4000) == pytest.approx(0.5 * 2 / 1.5 + 2)


@given(st.floats(1, 1e4), st.floats(1, 1e4), st.floats(0.1, 1e3), st.floats(1, 1e5))
def test_the_law_by_a_sum_over_needs(samples: float, critical: float, iterations: float, delay: float) -> None:
    """Made up the other way round: a task that needs so many samples, gradient steps and iterations, all of which add
    up, is measured at one geometry and predicted at others, with the I_max that gives its number of iterations."""
    steps = samples / critical

    def truth(batch: float, delay: float) -> float:
        return samples + steps * batch + iterations * delay

    taken = truth(64, delay)
    most = np.array([1 / (1 / iterations - delay / taken)])
    stages = tuple(stage(first, first + 10**6, critical) for first in (0, 10**6))  # of which only the shares count
    scaled = Need(stages, 64, delay * 2e6 / taken)
    found = scaled.drawn(256, 9 * delay * 2e6 / taken, scaled.critical_batches(), most)
    assert found / 2e6 * taken == pytest.approx(truth(256, 9 * delay), rel=1e-6)


def test_draws_have_the_interval_they_came_from() -> None:
    estimates = [Estimate(100, 50, 200), Estimate(7)]
    drawn = drawn_values(estimates, 4000, np.random.default_rng(0))
    assert drawn[0].tolist() == [100, 7]
    assert np.quantile(drawn[:, 0], (0.025, 0.975)) == pytest.approx([50, 200], rel=0.1)
    assert np.all(drawn[:, 1] == 7)


def test_an_end_that_is_not_known_is_as_far_away_as_the_other() -> None:
    assert log_spread(Estimate(100, 50, np.inf)) == pytest.approx(np.log(2) / 1.96)
