"""When a run had its score: crossings by hand, medians, and runs that have none."""

import numpy as np
import pytest

from isobatch.errors import UsageError
from isobatch.planning.scores import Reached, crossing, median, reached
from isobatch.training.metrics import EPISODES, RETURN, Table


def table(*curves: list[float]) -> Table:
    """One line every 100 steps, of each seed."""
    lines = [(100 * (i + 1), seed, value) for seed, curve in enumerate(curves) for i, value in enumerate(curve)]
    steps, seeds, returns = map(np.array, zip(*lines, strict=True))
    return {"env_steps": steps, "seed": seeds, RETURN: returns, EPISODES: np.ones(len(lines))}


def test_crossing_is_on_the_straight_line_between_two_points() -> None:
    x = np.array([100.0, 200.0, 300.0])
    assert crossing(x, np.array([0.0, 10.0, 30.0]), 20) == 250
    assert crossing(x, np.array([np.nan, 10.0, 30.0]), 5) == 200
    assert np.isnan(crossing(x, np.array([0.0, 10.0, 30.0]), 31))


def test_median_takes_the_lower_one_and_survives_seeds_that_never_had_it() -> None:
    assert median(np.array([3.0, 1.0, 2.0, np.inf])) == 2
    assert Reached(1.0, (5.0, np.nan, 3.0), of_run=True).median.value == 5
    assert np.isnan(Reached(1.0, (5.0, 3.0), of_run=True).median.low)
    assert Reached(1.0, (5.0, 3.0, 4.0, 6.0), of_run=True).median.high == 6


def test_own_score_is_short_of_the_final_return() -> None:
    """From 0 to 100 in 20 lines: 95 % of it is 95, which a straight line has after 95 % of the steps."""
    rising = [100 * i / 19 for i in range(20)]
    found = reached(table(rising, rising), 2000)
    final = np.mean(rising[-2:])
    assert found.score == pytest.approx(0.95 * final)
    assert found.of_run
    assert found.median.value == pytest.approx(1900, abs=60)


def test_runs_without_a_score_say_so() -> None:
    falling = table([10.0 - i for i in range(10)])
    with pytest.raises(UsageError, match=r"learned nothing: its return was 10\.0 at first"):
        reached(falling, 1000)
    with pytest.raises(UsageError, match=r"score=11 is not what this run reached.* they got to 10\.0"):
        reached(falling, 1000, 11)
    with pytest.raises(UsageError, match="no episode has ended in this run"):
        reached(table([np.nan, np.nan]), 200)


@pytest.mark.parametrize("name", [RETURN, EPISODES])
def test_metrics_that_were_cut_are_a_sentence(name: str) -> None:
    cut = table([0.0, 1.0])
    del cut[name]
    with pytest.raises(UsageError, match=f"the metrics of this run have no {name}: train it anew."):
        reached(cut, 200)
