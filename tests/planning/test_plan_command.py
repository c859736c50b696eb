"""The command `plan` on a small run: what it prints, draws and complains about."""

import json
import shlex
from pathlib import Path

import pytest

import isobatch as ib
from isobatch.cli.main import main
from isobatch.errors import UsageError
from isobatch.planning.biases import Biases
from isobatch.planning.machine import at_batch, at_envs
from isobatch.planning.moves import Shape
from isobatch.planning.planned import Plan
from isobatch.settings.presets import preset

pytestmark = pytest.mark.xdist_group("planning")
# As in the example of `ib.plan`, whose compiled programs are then shared.
SIZES = dict(num_envs=4, num_steps=8, num_minibatches=2, hidden_sizes=(8,), total_timesteps=4096)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "run"
    config = preset("ppo", "Probe-Action", noise_scale=True, learning_rate=0.01, **SIZES)
    ib.train(config, run_dir=path, num_seeds=2)
    return path


@pytest.fixture(scope="module")
def planned(run: Path) -> tuple[Plan, list[str]]:
    """Measured once, and what was said meanwhile."""
    said: list[str] = []
    return ib.plan(run, 0.8, say=said.append), said


@pytest.fixture
def remembered(planned: tuple[Plan, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The command gets that plan."""
    monkeypatch.setattr("isobatch.planning.plan.plan", lambda *args: planned[0])


def test_it_says_first_what_it_will_take_and_stays_near_the_fastest(planned: tuple[Plan, list[str]]) -> None:
    plan, (before, after_the_first) = planned
    assert "programs to compile and to time" in before
    assert "the others will take about" in after_the_first
    assert plan.recommended.seconds.value <= 1.05 * plan.own.seconds.value
    assert plan.recommended.seconds.low < plan.recommended.seconds.value < plan.recommended.seconds.high
    assert 0 <= plan.chance <= 1
    assert "4 x 8" in repr(plan)


@pytest.mark.usefixtures("remembered")
def test_the_command_recommends_draws_and_says_why(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "plan.png"
    assert main(["plan", str(run), "--score", "0.8", "--out", str(picture)]) == 0
    printed, _ = capsys.readouterr()
    for words in (
        "4 x 8",
        "time to score",
        "What to use, and why",
        "Eight devices",
        "flags\nisobatch train --algo ppo",
    ):
        assert words in printed
    assert picture.stat().st_size > 10_000


@pytest.mark.usefixtures("remembered")
def test_json_is_one_object_whose_command_can_be_trained(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(run), "--score", "0.8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["own"]["num_envs"] == 4
    assert found["score"] == 0.8
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
        (["RUN", "--score", "7"], "score=7 is not what this run reached"),
        (["RUN", "--score", "high"], "score='high' is not valid"),
        (["RUN", "--critical-batch", "-3"], "critical_batch=-3 is not a batch size"),
        (["RUN", "--plan-seeds", "0"], "num_seeds=0 must be at least 1."),
        (["RUN", "--num-envs", "8"], "has its own settings: give a run or settings, not both"),
        (["RUN", "--out", "plan.txt"], "has no picture's ending"),
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
