"""The scores of a run by hand."""

import fake_study
import numpy as np
import pytest

from isobatch.studies.rows import Outcome, mean_return, rows_of_cell
from isobatch.training.metrics import RETURN

FAKE = fake_study.STUDY


def test_scores_of_a_run() -> None:
    cell = FAKE.grid("quick").cells[0]
    table = {
        "iteration": np.arange(1, 5),
        "env_steps": np.arange(1, 5) * 96,
        "seed": np.zeros(4, int),
        RETURN: np.array([-1.0, np.nan, np.nan, 1.0]),
        "charts/episodic_length": np.ones(4),
        "charts/episodes": np.array([9, 0, 0, 1]),
    }
    # The curve is interpolated between the first and the last line: -1, -1/3, 1/3, 1, and its mean is 0.
    assert mean_return(table) == pytest.approx(0)
    (row,) = rows_of_cell(cell, Outcome(table, {}), [0], fake_study.RANGES)
    assert (row["final_return"], row["normalized_final"], row["normalized_mean"]) == (1.0, 1.0, pytest.approx(0.5))
    nothing = {name: values[:0] for name, values in table.items()}
    (row,) = rows_of_cell(cell, Outcome(nothing, {}), [0], fake_study.RANGES)
    assert (row["final_return"], row["normalized_final"], row["diverged"]) == (None, 0.0, False)
