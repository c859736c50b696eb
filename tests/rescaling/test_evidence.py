"""What is told of the ways to another number of environments: what was measured nearest to it."""

from typing import Any

import pytest

from isobatch.rescaling import ITERATION_BATCH, MINIBATCH_COUNT, MINIBATCH_SIZE, evidence, rescale
from isobatch.rescaling.alternatives import alternatives
from isobatch.rescaling.evidence import Kept, kept_by, sentence
from isobatch.settings.config import Config

PPO = Config(num_envs=16, num_steps=64, num_minibatches=16, total_timesteps=10**6)
MADE_UP = (
    Kept(ITERATION_BATCH, "ppo", 1 / 4, 0.5, 0.4, 0.6, 3),
    Kept(ITERATION_BATCH, "ppo", 4, 0.97, 0.9, 1.04, 8),
    Kept(ITERATION_BATCH, "ppo", 16, 0.91, 0.8, 1.02, 8),
    Kept(MINIBATCH_COUNT, "ppo", 1 / 4, 0.9, 0.8, 1.0, 3),
    Kept(MINIBATCH_COUNT, "ppo", 4, 0.6, 0.5, 0.7, 8),
    Kept(MINIBATCH_COUNT, "ppo-ewma", 4, 0.7, 0.6, 0.8, 8),
)


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "measurements", lambda: MADE_UP)


@pytest.mark.parametrize(
    ("num_envs", "value"), [(17, 0.97), (64, 0.97), (127, 0.97), (129, 0.91), (999, 0.91), (1, 0.5)]
)
def test_the_nearest_size_in_the_same_direction_is_told(num_envs: int, value: float) -> None:
    """Between 4 and 16 times 16 environments, the middle of the logarithms is 8 times: 128."""
    found = kept_by(ITERATION_BATCH, PPO, num_envs)
    assert found is not None
    assert found.value == value


def test_an_average_has_figures_of_its_own_where_there_are_some() -> None:
    averaged = PPO.replace(algo="ppo-ewma", proximal_policy="ewma")
    assert kept_by(MINIBATCH_COUNT, averaged, 64) == MADE_UP[-1]
    assert kept_by(ITERATION_BATCH, averaged, 64) == MADE_UP[1]


def test_nothing_is_told_that_was_not_measured() -> None:
    assert kept_by(MINIBATCH_SIZE, PPO, 64) is None
    assert kept_by(ITERATION_BATCH, PPO, 16) is None
    for other in (dict(objective="kl"), dict(policy_iterations_per_phase=2), dict(lr_schedule="adaptive")):
        assert kept_by(ITERATION_BATCH, PPO.replace(**other), 64) is None


def test_the_way_that_kept_most_is_first() -> None:
    grown, shrunk = alternatives(PPO, 64), alternatives(PPO, 4)
    assert [other.keep for other in grown] == [ITERATION_BATCH, MINIBATCH_COUNT, MINIBATCH_SIZE]
    assert [other.keep for other in shrunk] == [MINIBATCH_COUNT, ITERATION_BATCH, MINIBATCH_SIZE]
    assert grown[0].to_json()["kept"] == {
        "way": ITERATION_BATCH, "algo": "ppo", "times": 4, "value": 0.97, "low": 0.9, "high": 1.04, "tasks": 8
    }  # fmt: skip
    assert grown[2].to_json()["kept"] is None
    unmeasured = [other.keep for other in alternatives(PPO.replace(objective="kl"), 64)]
    assert unmeasured == [ITERATION_BATCH, MINIBATCH_SIZE, MINIBATCH_COUNT]


def test_in_words() -> None:
    assert sentence(MADE_UP[1:2]) == (
        "measured on settings of PPO that others tuned, final return with 4 times their environments: "
        "iteration-batch kept 97 % [90, 104] (8 tasks)"
    )
    assert "with 1/4 of their environments: iteration-batch kept 50 %" in sentence(MADE_UP[:1])


@pytest.mark.parametrize(
    ("target", "keep"),
    [
        (dict(num_envs=64), ITERATION_BATCH),
        (dict(devices=4), MINIBATCH_COUNT),  # fewer environments per device keep the batch, and nothing else changes
        (dict(num_envs=4), MINIBATCH_COUNT),  # the other one kept less
        (dict(num_envs=64, num_steps=64), MINIBATCH_COUNT),  # a batch was asked for
        (dict(factor=1 / 4), MINIBATCH_COUNT),
        (dict(num_envs=64, use=["linear-adam"]), MINIBATCH_COUNT),  # a rule was asked for
        (dict(num_envs=64, without=["adam-sqrt"]), MINIBATCH_COUNT),
        (dict(num_envs=64, keep=MINIBATCH_COUNT), MINIBATCH_COUNT),
        (dict(num_envs=256), MINIBATCH_COUNT),  # nothing was measured of the rules at 16 times: the nearest is 4 times
    ],
)
def test_n_times_t_is_kept_where_that_was_measured_to_be_better(target: dict[str, Any], keep: str) -> None:
    result = rescale(PPO, **target)
    assert result.keep == keep
    assert (result.after.geometry.iteration_batch == PPO.geometry.iteration_batch) == (keep == ITERATION_BATCH)
    assert result.evidence.startswith("N x T is kept") == (keep == ITERATION_BATCH)


def test_where_intervals_overlap_the_rules_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    unsure = [*MADE_UP[:1], Kept(ITERATION_BATCH, "ppo", 4, 0.97, 0.69, 1.04, 8), *MADE_UP[3:]]
    monkeypatch.setattr(evidence, "measurements", lambda: unsure)
    assert rescale(PPO, num_envs=64).keep == MINIBATCH_COUNT


def test_other_algorithms_go_by_the_rules() -> None:
    averaged = PPO.replace(algo="ppo-ewma", proximal_policy="ewma")
    for config in (averaged, PPO.replace(objective="kl")):
        assert rescale(config, num_envs=64).keep == MINIBATCH_COUNT


def test_where_it_does_not_fit_the_rules_are_given_and_why() -> None:
    result = rescale(PPO, num_envs=48)
    assert result.keep == MINIBATCH_COUNT
    assert result.evidence.startswith("these are the rules, though with 4 times")
    assert "nearest num_envs that can are 32 and 64" in result.evidence
