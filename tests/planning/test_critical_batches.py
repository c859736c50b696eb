"""Critical batches of stages: from lines of metrics by hand, from a checkpoint, or given."""

from pathlib import Path

import numpy as np
import pytest
from trained import make_runs

from isobatch.errors import UsageError
from isobatch.laboratory.known import CriticalBatch
from isobatch.planning.critical_batches import LARGEST, STAGES, from_diagnoses, from_metrics, stages_of
from isobatch.statistics.bootstrap import Estimate
from isobatch.training.metrics import Table


def table(noise: list[float], signal: list[float]) -> Table:
    """A line every 100 steps."""
    steps = 100 * np.arange(1, len(noise) + 1)
    return {"env_steps": steps, "noise/trace": np.array(noise), "noise/signal": np.array(signal)}


def test_noise_and_signal_are_averaged_apart() -> None:
    """(10 + 20 + 30 + 40) / (1 + 1 + 1 + 2) = 20, where the mean of the ratios is also 20 but for the last: 20."""
    found, source = from_metrics(table([10, 20, 30, 40], [1, 1, 1, 2]), 0, 400)
    assert found.value == pytest.approx(20)
    assert found.low < 20 < found.high
    assert "noise scale" in source


def test_only_the_lines_of_the_stage_count() -> None:
    lines = table([1.0] * 5 + [8.0] * 5, [1.0] * 10)
    assert from_metrics(lines, 0, 500)[0].value == pytest.approx(1)
    assert from_metrics(lines, 500, 1000)[0].value == pytest.approx(8)
    assert from_metrics(lines, 900, 1000)[0].value == pytest.approx(8)  # the nearest four


def test_without_a_signal_there_is_no_end() -> None:
    assert from_metrics(table([1.0] * 4, [-1.0] * 4), 0, 400)[0].value == LARGEST


def test_a_critical_batch_that_is_given_stands_for_all_stages(tmp_path: Path) -> None:
    stages = stages_of(tmp_path, {}, 900, 512.0)
    assert [(stage.first, stage.last, stage.critical_batch.value) for stage in stages] == [
        (0, 300, 512),
        (300, 600, 512),
        (600, 900, 512),
    ]
    with pytest.raises(UsageError, match="critical_batch=-1 is not a batch size"):
        stages_of(tmp_path, {}, 900, -1.0)


def test_branches_count_near_their_policy_only() -> None:
    """The stage from 300 to 600 is 300 long, and its middle 450: branches of 200 are near, those of 100 are not."""
    found = [CriticalBatch(100, Estimate(7.0), "branches"), CriticalBatch(200, Estimate(9.0), "branches")]
    stage = from_diagnoses(found, 300, 600, within=1.0)
    assert stage is not None
    assert stage.critical_batch.value == 9
    assert stage.source == "branches of the diagnosis, after 200 steps"
    assert from_diagnoses(found[:1], 300, 600, within=1.0) is None
    assert from_diagnoses([], 300, 600, within=np.inf) is None


def test_checkpoints_are_measured_where_metrics_say_nothing(tmp_path: Path) -> None:
    run = make_runs(tmp_path)("Probe-ActionObserved")
    stages = stages_of(run, {}, 90, None)
    assert len(stages) == STAGES
    assert len({stage.critical_batch for stage in stages}) == 1  # there is one checkpoint
    assert 1 <= stages[0].critical_batch.value <= LARGEST
    assert stages[0].source == "the laboratory, after 96 steps"


def test_a_run_with_neither_says_how_to_get_them(tmp_path: Path) -> None:
    run = make_runs(tmp_path)("Probe-ActionObserved")
    for path in (run / "checkpoints").iterdir():
        path.unlink()
    with pytest.raises(UsageError, match="train it with --noise-scale, or give it"):
        stages_of(run, {}, 90, None)
