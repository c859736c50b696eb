"""Cells as lanes of one program: they agree with training alone, and one that diverges harms no other."""

import dataclasses
from pathlib import Path

import fake_study
import numpy as np
import pytest
from tiny import tiny

from isobatch.studies.grid import Cell, Grid
from isobatch.studies.lanes import train_cells
from isobatch.studies.rows import Diverged
from isobatch.studies.runner import run_study
from isobatch.studies.study_directory import StudyDirectory
from isobatch.training.metrics import RETURN
from isobatch.training.trainer import train

FAKE = fake_study.STUDY


def test_lanes_agree_with_training_alone() -> None:
    """Not bit for bit: the width of a vmap changes low-order bits."""
    cells = [cell for cell in FAKE.grid("quick").cells if cell.factors["num_steps"] == 4]
    for cell, outcome in zip(cells, train_cells(cells, [0, 1]), strict=True):
        alone = train(cell.config, num_seeds=2, log_interval=1).metrics
        assert list(outcome.table) == list(alone)
        for name, values in alone.items():
            np.testing.assert_allclose(outcome.table[name], values, rtol=1e-3, atol=1e-4, err_msg=name)


def test_a_lane_that_diverges_is_noted_and_the_others_go_on(tmp_path: Path) -> None:
    def grid(scale: str) -> Grid:
        rates = (1e-3, fake_study.HUGE)
        # Without a clipped gradient and a bounded step the weights overflow.
        configs = [tiny(learning_rate=rate, num_steps=4, optimizer="sgd", max_grad_norm="inf") for rate in rates]
        return Grid([Cell(config, {"learning_rate": config.hypers.learning_rate}) for config in configs], 2)

    study = dataclasses.replace(FAKE, grid=grid, pictures="", everywhere={})
    rows = run_study(study, "quick", tmp_path / "out").rows()
    good, bad = rows[:2], rows[2:]
    assert [row["diverged"] for row in rows] == [False, False, True, True]
    for row in bad:
        assert 0 < row["diverged_at"] <= 384
        assert "/" in row["diverged_metric"]
        assert row["final_return"] is None
        assert row["normalized_final"] == row["normalized_mean"] == 0
    alone = train(grid("").cells[0].config, num_seeds=2, log_interval=1)
    assert [row["final_return"] for row in good] == pytest.approx(alone.final_return, rel=1e-3)
    curves = StudyDirectory.read(tmp_path / "out").curves()
    assert all(np.isfinite(table[RETURN]).all() for table in curves.values())


def test_a_parameter_that_is_not_finite_at_the_end_counts_too() -> None:
    from isobatch.studies.lanes import outcome

    names = ("losses/x", "episodes/count", "episodes/return_sum", "episodes/length_sum")
    config = FAKE.grid("quick").cells[0].config
    table = np.ones((2, 3, 4), np.float32)
    found = outcome(config, [0, 1], names, table, np.array([True, False]), [1, 2, 3])
    assert found.diverged == {1: Diverged(3 * 32, "a network parameter")}
    assert found.table["seed"].tolist() == [0, 1, 0, 1, 0]
