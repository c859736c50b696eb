"""Shares of the variance of ranks, by hand and on made-up trials."""

import numpy as np
import pytest

from isobatch.tuning.importance import importance, share
from isobatch.tuning.ranges import Choice, Interval
from isobatch.tuning.trials import Trial


def test_a_share_by_hand() -> None:
    """Ranks 1 to 4 in bins {1, 2} and {3, 4}: total 5, within 2 x .5 = 1, and 1 - 1/5 x 3/2 = .7."""
    assert share(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 0, 1, 1])) == pytest.approx(0.7)
    assert share(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 1, 1, 0])) == 0
    assert share(np.ones(4), np.array([0, 0, 1, 1])) == 0


def test_what_decides_comes_first() -> None:
    generator = np.random.default_rng(0)
    rates, gammas = generator.random(60), generator.random(60)
    ranges = {
        "gamma": Interval("gamma", 0.0, 1.0, "linear"),
        "learning_rate": Interval("learning_rate", 0.0, 1.0, "linear"),
        "update_epochs": Choice("update_epochs", (1, 2)),
    }
    trials = [
        Trial(
            i, {"gamma": gamma, "learning_rate": rate, "update_epochs": 1 + i % 2}, (float(rate),), 1, (1.0,), 1.0, 0, 1
        )
        for i, (rate, gamma) in enumerate(zip(rates, gammas, strict=True))
    ]
    found = importance(trials, ranges)
    assert next(iter(found)) == "learning_rate"
    assert found["learning_rate"] > 0.9
    assert found["gamma"] < 0.15
    assert found["update_epochs"] < 0.15
