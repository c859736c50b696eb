"""What a diagnosis will take: estimated, said, kept, and less where there is no time."""

import dataclasses
import json
from pathlib import Path

import pytest
from tiny import tiny

from isobatch.cli.main import main
from isobatch.laboratory import LabOptions
from isobatch.laboratory.costs import MeasurementPlan, Speeds, plan, reductions, seconds_of
from isobatch.laboratory.diagnosis import subject_of
from isobatch.laboratory.subject import Subject
from isobatch.training.loading import load_run
from isobatch.training.trainer import train

pytestmark = pytest.mark.xdist_group("laboratory")
SPEEDS = Speeds(step=1e-4, gradient=1e-6, product=1e-8, program=1.0)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("costs") / "run"
    train(tiny(), run_dir=path)
    return path


@pytest.fixture(scope="module")
def subject(run_dir: Path) -> Subject:
    return subject_of(load_run(run_dir, "newest"), LabOptions())


def test_every_reduction_costs_less(subject: Subject) -> None:
    sizes = [subject.options, *reductions(subject.options, subject.own_geometry)]
    speeds = dataclasses.replace(SPEEDS, program=0.0)  # compilation stays, however little is measured
    costs = [seconds_of(subject, options, speeds) for options in sizes]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < costs[0] / 2
    last = sizes[-1]
    assert (last.chains, last.batches, last.direct) == (16, 4, 0)
    assert "4x8" in last.geometries  # the run's own stays


def test_collected_steps_by_hand(subject: Subject) -> None:
    """Aggregations: max(4 x 4, 128) episodes of one step (the time limit), a step and a gradient each; 10 % more."""
    alone = LabOptions(sections="aggregations")
    expected = 1.1 * (128 * subject.source.time_limit * (1e-4 + 1e-6) + 2 * 1.0)
    assert seconds_of(subject, alone, SPEEDS) == pytest.approx(expected)


def test_without_a_limit_nothing_is_reduced(subject: Subject) -> None:
    made = plan(subject, minutes=0)
    assert made.options == subject.options
    assert made.seconds == made.wanted_seconds > 0


def test_it_says_what_it_costs_and_keeps_to_its_plan(run_dir: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["diagnose", str(run_dir), "--sections", "lags", "--time", "1e-6", "--quiet", "--json"]
    assert main(words) == 0
    first = capsys.readouterr()
    assert "this will take about" in first.err
    assert "16 chains instead of 128" in first.err
    assert main(words) == 0
    again = capsys.readouterr()
    assert again.err == ""
    assert json.loads(again.out)["checkpoints"] == json.loads(first.out)["checkpoints"]


def test_what_is_measured_less_is_named() -> None:
    """Of 1 x 32 to 32 x 1 every second one stays, and the run's own: 6 become 4."""
    smaller = LabOptions(chains=64, direct=0, geometries="32x1,8x4,4x8,2x16")
    assert MeasurementPlan(smaller, 200.0, 700.0).sentence(LabOptions(), 4, (4, 8)) == (
        "this will take about 3 minutes, with 64 chains instead of 128, 4 geometries instead of 6, 0 geometries "
        "measured directly instead of 4: all of it would take about 12 minutes, and there are 4 minutes (--time; 0 is "
        "no limit)."
    )
    assert (
        MeasurementPlan(LabOptions(), 20.0, 20.0).sentence(LabOptions(), 4, (4, 8))
        == "this will take about 20 seconds."
    )


@pytest.mark.parametrize("time", ["-1", "inf", "nan", "soon"])
def test_bad_times(time: str, run_dir: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["diagnose", str(run_dir), "--time", time]) == 2
    assert f"time={time}" in capsys.readouterr().err.replace("'", "")
