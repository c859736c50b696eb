"""Runs whose number of environments grows: what goes over, what is counted, and going on to the bit."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny import flags, tiny

from isobatch.cli.main import main
from isobatch.errors import UsageError
from isobatch.settings.batch_schedule import Stage, parse_batch_schedule
from isobatch.training.checkpoints import flatten
from isobatch.training.loading import load_run
from isobatch.training.metrics import METRICS, evaluations_of, read_metrics
from isobatch.training.run_directory import RunDirectory
from isobatch.training.stages import stage_configs, train_stages

pytestmark = pytest.mark.xdist_group("stages")
SCHEDULE = "0:2,0.25:4"
CONFIG = tiny("ppo-ewma", normalize_rewards=True, normalize_observations=True)  # 4 environments x 8 steps, 384 steps


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stages") / "run"
    train_stages(CONFIG, SCHEDULE, path, num_seeds=2, keep_checkpoints=20, eval_interval=4, eval_episodes=2)
    return path


def test_stages_by_hand() -> None:
    """A quarter of 384 steps at 2 x 8 is six iterations; the other 288 at 4 x 8 are nine. Rates by the square root."""
    small, large = stage_configs(CONFIG, parse_batch_schedule(SCHEDULE))
    assert (small.num_envs, small.num_iterations, large.num_envs, large.num_iterations) == (2, 6, 4, 9)
    assert small.hypers.learning_rate == pytest.approx(large.hypers.learning_rate / 2**0.5)
    assert large.hypers == CONFIG.hypers
    ages = [each.geometry.proximal_age(each.hypers.beta_prox) for each in (small, large)]
    assert ages[0] == pytest.approx(ages[1])


def test_metrics_are_those_of_one_run(grown: Path) -> None:
    """Over true environment steps: 16 each six times, then 32 each nine times."""
    table = read_metrics(grown)
    first = table["seed"] == 0
    assert table["iteration"][first].tolist() == list(range(1, 16))
    assert table["env_steps"][first].tolist() == [*range(16, 97, 16), *range(128, 385, 32)]
    assert evaluations_of(table)["iteration"][::2].tolist() == [4, 6, 10, 14, 15]


def test_what_was_learned_goes_over(grown: Path) -> None:
    end, start = load_run(grown / "stage-1").states, load_run(grown / "stage-2", "0").states
    for part in ("learner", "advantage_moments"):
        before, after = (flatten(getattr(states.learning, part)) for states in (end, start))
        assert all(before[name].tobytes() == leaf.tobytes() for name, leaf in after.items())
    assert flatten(end.obs_moments).keys() == flatten(start.obs_moments).keys()
    np.testing.assert_array_equal(end.obs_moments.mean, start.obs_moments.mean)
    scales = [states.learning.reward_scale for states in (end, start)]
    np.testing.assert_array_equal(scales[0].moments.mean, scales[1].moments.mean)
    assert scales[1].discounted_return.shape == (2, 4)


def test_it_goes_on_to_the_bit(grown: Path, tmp_path: Path) -> None:
    """As if killed before the second stage had kept anything, and once more when nothing is left to do. Evaluated every
    four iterations of a stage and at its end."""
    again = tmp_path / "run"
    shutil.copytree(grown, again)
    shutil.rmtree(again / "stage-2")
    (again / METRICS).unlink()
    for _ in range(2):
        assert main(["train", "--resume", str(again), "--quiet", "--json"]) == 0
        assert (again / METRICS).read_bytes() == (grown / METRICS).read_bytes()
    left, right = (flatten(load_run(path / "stage-2").states) for path in (grown, again))
    assert all(left[name].tobytes() == leaf.tobytes() for name, leaf in right.items())


@pytest.mark.parametrize(
    ("schedule", "changes", "complaint"),
    [
        ("0:4", {}, "has one stage"),
        ("0.1:4,0.5:8", {}, "must begin at 0"),
        ("0:4,0.5:8,0.4:16", {}, "must begin at 0 and rise"),
        ("0:4,1:8", {}, "shares below 1"),
        ("0:4;0.5:8", {}, "cannot be read at '0:4;0.5:8'"),
        ("0:4,0.5:0", {}, "without environments"),
        ("0:4,0.99:8", {}, "leaves no whole iteration of 64 steps"),
        (SCHEDULE, dict(lr_schedule="linear"), "lr_schedule='linear' would begin anew"),
        (SCHEDULE, dict(clip_schedule="linear"), "begin clip_schedule='linear' anew in each stage: use constant"),
        (SCHEDULE, dict(staleness=1), "would cut a queue of rollouts"),
    ],
)
def test_what_cannot_be_is_refused(schedule: str, changes: dict, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        stage_configs(CONFIG.replace(**changes), parse_batch_schedule(schedule))


def test_flags_that_do_not_go_together(tmp_path: Path, grown: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", *flags(CONFIG), "--quiet", "--run-dir", str(tmp_path / "new"), "--batch-schedule", SCHEDULE]
    assert main([*words, "--init-from", str(grown / "stage-1")]) == 2
    assert "leave --init-from out" in capsys.readouterr().err
    assert main(["train", "--resume", str(grown), "--batch-schedule", "0:4,0.5:8"]) == 2
    assert "it knows its schedule" in capsys.readouterr().err


def test_a_schedule_is_read() -> None:
    assert parse_batch_schedule("0:64, 0.2:256") == (Stage(0.0, 64), Stage(0.2, 256))


def test_commands_that_want_one_run_name_the_stages(grown: Path) -> None:
    with pytest.raises(UsageError, match=r"holds a run in stages: name one of them, as .*stage-2"):
        RunDirectory.open(grown)
