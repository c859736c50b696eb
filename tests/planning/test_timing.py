"""Seconds of iterations, measured on a small program; spreads by hand."""

import numpy as np
import pytest
from tiny import tiny

from isobatch.planning import timing
from isobatch.planning.timing import fastest, middle, time_collecting, time_iteration


def test_iterations_and_collecting_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collecting from four environments is a part of an iteration; generous, since the machine may be busy."""
    monkeypatch.setattr(timing, "PATIENCE", 0.05)
    config = tiny()
    found = time_iteration(config)
    assert found.sizes == (4, 8, 2)
    assert found.optimization_batch == 16
    assert found.epochs == config.update_epochs
    assert 1e-6 < found.seconds < found.compile_seconds
    assert 0.02 <= found.spread <= 0.5
    assert found.collecting is None  # its environments are part of the program
    assert 1e-7 < time_collecting(config, 4) < 10 * found.seconds


def test_spreads_by_hand() -> None:
    """Nine times around 1.0 with a MAD of .1: sqrt(pi / 2 / 9) x .148; the fastest is .8, the third .9."""
    taken = [1.0, 0.9, 0.9, 0.8, 0.9, 1.1, 1.1, 1.1, 1.3]
    assert middle(taken) == pytest.approx((1.0, np.sqrt(np.pi / 18) * 0.148))
    assert fastest(taken) == pytest.approx((0.8, 0.125))


def test_it_is_the_standard_error_of_medians() -> None:
    rng = np.random.default_rng(0)
    draws = 1 + 0.1 * rng.standard_normal((2000, 40))
    assert np.mean([middle(each)[1] for each in draws]) == pytest.approx(np.std(np.median(draws, axis=1)), rel=0.1)
