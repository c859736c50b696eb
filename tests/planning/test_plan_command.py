"""The command `plan` on a run and a machine by hand: what it finds, prints, draws and complains about."""

import dataclasses
import json
import shlex
from pathlib import Path

import numpy as np
import planned_by_hand as by_hand
import pytest

import isobatch as ib
from isobatch.cli.main import main
from isobatch.errors import UsageError
from isobatch.planning.biases import Biases
from isobatch.planning.critical_batches import LARGEST
from isobatch.planning.forecast import Forecast
from isobatch.planning.machine import Machine, at_batch, at_envs, busy_remark
from isobatch.planning.moves import Shape, moved, what_speaks_against
from isobatch.planning.plan import few_seeds_remark
from isobatch.planning.planned import Plan
from isobatch.planning.samples import ITERATIONS
from isobatch.rescaling import rescale
from isobatch.settings.presets import preset
from isobatch.statistics.bootstrap import Estimate

SCORE = 300


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return by_hand.run_by_hand(tmp_path_factory.mktemp("plan") / "run")


@pytest.fixture(scope="module")
def planned(run: Path) -> tuple[Plan, list[str]]:
    """And what was said meanwhile."""
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        by_hand.clock_by_hand(patch)
        return ib.plan(run, SCORE, say=said.append), said


def by_the_law(plan: Plan, shape: Shape) -> float:
    """Seconds to the score, from the run's samples, the critical batch and the clock that were made up."""
    current, samples = plan.current.shape, plan.current.samples
    taken = samples / current.iteration_batch
    iterations = taken * ITERATIONS / (taken + ITERATIONS)
    rest = samples - iterations * current.iteration_batch
    growth = (by_hand.CRITICAL_BATCH + shape.optimization_batch) / (by_hand.CRITICAL_BATCH + current.optimization_batch)
    needed = rest * growth + iterations * shape.iteration_batch
    sizes = shape.num_envs, shape.num_steps, shape.num_minibatches
    return needed / shape.iteration_batch * by_hand.iteration_seconds(*sizes, plan.run.update_epochs)


def test_what_is_faster_than_the_recommended_one_is_marked_as_left_out(planned: tuple[Plan, list[str]]) -> None:
    plan, _ = planned
    best = plan.recommended.seconds.value
    faster = {each.shape for each in plan.rows if each.seconds.value * (1 + plan.tie) < best}
    assert faster <= plan.unfit
    assert plan.recommended.shape not in plan.unfit
    marked = {row[0].removesuffix(" -") for row in plan.table() if row[0].endswith(" -")}
    assert marked == {shape.name for shape in plan.unfit}


def test_every_time_is_that_of_the_law_and_of_the_clock(planned: tuple[Plan, list[str]]) -> None:
    """Returns of s / 100 have 300 after 30,000 steps and half of the window of 5 %; lines between sizes are exact."""
    plan, _ = planned
    assert plan.current.samples == pytest.approx(30_000 + 0.025 * 51_200, rel=0.02)
    inside: list[Forecast] = [each for each in plan.rows if each.origin != "extrapolated"]
    assert len(inside) >= 5
    for each in inside:
        assert each.seconds.value == pytest.approx(by_the_law(plan, each.shape), rel=1e-6)


def test_what_is_recommended_is_near_the_fastest_of_all_that_fit(planned: tuple[Plan, list[str]]) -> None:
    """By brute force: 2 to 128 environments and minibatches of 64 to 512 samples lie inside of what was timed and of
    the critical batch size, rollouts of 32 steps hold four horizons of 1/(1 - .98 x .8) = 4.6, and a run has 50
    iterations."""
    plan, _ = planned
    times = []
    for n in 2 ** np.arange(1, 8):
        for t in 2 ** np.arange(5, 11):
            for batch in (64, 128, 256, 512):
                if n * t >= batch:
                    shape = Shape(int(n), int(t), int(n * t // batch))
                    samples = plan.forecaster.need.ratio(batch, shape.iteration_batch) * plan.run.env_steps
                    if samples / shape.iteration_batch >= 50:
                        times.append(by_the_law(plan, shape))
    assert len(times) == 40
    assert min(times) <= plan.recommended.seconds.value * (1 + 1e-9)
    assert plan.recommended.seconds.value <= (1 + plan.tie) * min(times)


def test_it_says_first_what_it_will_take_and_how_sure_it_is(planned: tuple[Plan, list[str]]) -> None:
    plan, (before, after_the_first) = planned
    assert "programs to compile and to time" in before
    assert "the others will take about" in after_the_first
    assert plan.recommended.seconds.low < plan.recommended.seconds.value < plan.recommended.seconds.high
    assert 0 <= plan.chance <= 1
    assert np.isfinite(plan.speedup.low)
    assert "8 x 128" in repr(plan)


@pytest.fixture
def remembered(planned: tuple[Plan, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The command gets that plan."""
    monkeypatch.setattr("isobatch.planning.plan.plan", lambda *args: planned[0])


@pytest.mark.usefixtures("remembered")
def test_the_command_recommends_draws_and_says_why(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "plan.png"
    assert main(["plan", str(run), "--score", str(SCORE), "--out", str(picture)]) == 0
    printed, _ = capsys.readouterr()
    for words in (
        "8 x 128",
        "time to score",
        "What to use, and why",
        "Eight devices",
        "flags\nisobatch train --algo ppo",
    ):
        assert words in printed
    assert picture.stat().st_size > 10_000


@pytest.mark.usefixtures("remembered")
def test_json_is_one_object_whose_command_can_be_trained(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(run), "--score", str(SCORE), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["current"]["num_envs"] == 8
    assert found["score"] == SCORE
    assert len(found["critical_batches"]) == 3
    assert {row["origin"] for row in found["rows"]} <= {"measured", "interpolated", "extrapolated"}
    assert [row["devices"] for row in found["devices"]] == [2, 8]
    after = preset(**found["settings"])
    assert after.num_envs == found["recommended"]["num_envs"]
    assert shlex.split(found["command"])[:2] == ["isobatch", "train"]
    assert not after.noise_scale


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["no-such-run"], "run_dir='no-such-run' holds no run"),
        (["RUN", "--score", "700"], "score=700 is not what this run reached"),
        (["RUN", "--score", "high"], "score='high' is not valid"),
        (["RUN", "--critical-batch", "-3"], "critical_batch=-3 is not a batch size"),
        (["RUN", "--plan-seeds", "1000000000"], "for 1,000,000,000 seeds, and"),
        (["RUN", "--num-envs", "8"], "has its own settings: give a run or settings, not both"),
        (["RUN", "--out", "plan.txt"], "has no picture's ending"),
        (["RUN", "--out", "/dev/null/plan.png"], "out='/dev/null/plan.png' cannot be written"),  # before it measures
        (["RUN", "--plan-seeds", "0"], "plan_seeds=0 must be at least 1"),
        (["--env", "CartPol-v1"], "did you mean CartPole-v1"),
    ],
)
def test_wrong_words_are_one_sentence_and_code_2(
    words: list[str], sentence: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *(str(run) if word == "RUN" else word for word in words)]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert "Traceback" not in said


def test_shapes_that_are_measured_are_the_cheapest_of_their_batch() -> None:
    """8 x 128 in 4 minibatches of 256: 4 times as much is one minibatch, 16 times four times the environments."""
    config = preset("ppo", "CartPole-v1")
    assert at_batch(config, 1.0) == Shape(8, 128, 4)
    assert at_batch(config, 0.25) == Shape(8, 128, 16)
    assert at_batch(config, 4.0) == Shape(8, 128, 1)
    assert at_batch(config, 16.0) == Shape(32, 128, 1)
    assert at_envs(config, 4.0) == Shape(32, 32, 4)
    assert at_envs(config, 1 / 16) is None


def test_a_busy_machine_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1})
    monkeypatch.setattr("os.getloadavg", lambda: (6.25, 0.0, 0.0))
    assert "(6.2 programs at a time wanted its 2 cores): plan again when it is quiet" in busy_remark()
    monkeypatch.setattr("os.getloadavg", lambda: (2.9, 9.0, 9.0))
    assert busy_remark() == ""


def test_what_the_samples_know_is_no_caution(planned: tuple[Plan, list[str]]) -> None:
    """A batch of 512 is at the critical one: `rescale` says what that costs, and the plan has counted it."""
    plan, _ = planned
    after = moved(plan.run, Shape(8, 128, 2), 50_000)
    said = what_speaks_against(plan.run, after, plan.forecaster.need)
    assert any("critical" in each for each in rescale(plan.run, optimization_batch=512, critical_batch=512.0).warnings)
    assert said
    assert not any("expect to need" in each for each in said)


def test_what_does_not_fit_into_memory_is_left_out(
    planned: tuple[Plan, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, _ = planned
    machine = Machine(plan.run, plan.forecaster.need)
    assert machine.fits(Shape(128, 128, 64))
    monkeypatch.setattr("isobatch.training.memory.available_bytes", lambda: 600_000)
    assert machine.fits(plan.current.shape)
    assert not machine.fits(Shape(128, 128, 64))


def test_few_seeds_and_no_end_of_a_critical_batch_are_said(planned: tuple[Plan, list[str]]) -> None:
    plan, _ = planned
    assert few_seeds_remark(plan.reached) == []
    one = dataclasses.replace(plan.reached, steps=plan.reached.steps[:1])
    assert "the run has 1 seed" in few_seeds_remark(one)[0]
    need = plan.forecaster.need
    stages = tuple(dataclasses.replace(stage, critical_batch=Estimate(LARGEST)) for stage in need.stages)
    endless = dataclasses.replace(plan.forecaster, need=dataclasses.replace(need, stages=stages))
    assert plan.critical_batches == "512 (the run's noise scale (--noise-scale))"
    assert "over 1,000,000 (" in dataclasses.replace(plan, forecaster=endless).critical_batches


def test_devices_that_bring_nothing_are_said_to(planned: tuple[Plan, list[str]]) -> None:
    """Twice the time of one device, with the settings that are recommended; and twice as fast, with others."""
    plan, _ = planned
    slow, fast = (
        dataclasses.replace(row, speedup=speedup) for row, speedup in zip(plan.devices, (0.5, 2.0), strict=True)
    )
    same = dataclasses.replace(slow, forecast=plan.recommended)
    two, eight = dataclasses.replace(plan, devices=(same, fast))._device_sentences()
    assert two.endswith("would bring nothing (0.5 x), with the settings above.")
    assert "would bring 2.0 x, not 8" in eight


def test_rollouts_that_are_too_short() -> None:
    """Without a diagnosis four horizons; with one the error at the longest rollout that is no longer."""
    thumb = Biases(128, 10.0, {})
    assert [thumb.is_too_short(steps) for steps in (32, 64, 128, 256)] == [True, False, False, False]
    assert "was not measured" in thumb.cautions(64)[0]
    known = Biases(128, 10.0, {8: 3.0, 64: 1.1, 128: 1.0})
    assert [known.is_too_short(steps) for steps in (8, 32, 64)] == [True, True, False]
    assert "1.10 times the error" in known.cautions(64)[0]
    assert known.cautions(128) == []


def test_a_run_that_is_not_there_is_refused_from_python_too() -> None:
    with pytest.raises(UsageError, match="holds no run"):
        ib.plan("no-such-run")
