"""Advice as a whole: which of two rules that differ wins, JSON, and what is known of environments."""

from __future__ import annotations

import json

import pytest
from rollout_settings import BASE

from isobatch.advice.facts import Facts
from isobatch.settings.accounting import GOOD_ROWS, surely_used
from isobatch.settings.presets import preset
from isobatch.training.known_facts import advise, known_facts


def test_a_large_rollout_cannot_meet_both_minibatch_rules() -> None:
    config = BASE.replace(num_envs=256, num_steps=256, num_minibatches=8)
    advice = advise(config)
    assert [(c.winner, c.loser) for c in advice.conflicts] == [("minibatch-count", "minibatch-size")]
    lost = next(f for f in advice.checks if f.name == "minibatch-size")
    assert (lost.status, lost.suggestions) == ("note", ())
    assert "Overruled by minibatch-count" in lost.text


def test_a_measurement_outranks_the_rules_of_thumb() -> None:
    large = BASE.replace(num_envs=256, num_steps=256, num_minibatches=8)
    ample = advise(large, Facts(critical_batch=1e6)).conflicts
    assert [(c.winner, c.loser) for c in ample] == [("critical-batch", "minibatch-size")]
    scarce = advise(large, Facts(critical_batch=1000)).conflicts
    assert [(c.winner, c.loser) for c in scarce] == [("critical-batch", "minibatch-count")]


def test_the_horizon_of_this_run_outranks_a_fixed_length() -> None:
    conflicts = advise(BASE.replace(num_steps=32)).conflicts
    assert [(c.winner, c.loser) for c in conflicts] == [("credit-horizon", "rollout-length")]


def test_the_guides_own_rules_outrank_ours() -> None:
    """Its example, 8192 samples in minibatches of 256, with the environments that a laptop may have."""
    example = preset("ppo", num_envs=4, num_steps=2048, num_minibatches=32, update_epochs=1)
    advice = advise(example, Facts(action_dim=2, continuous=False, time_limit=500))
    assert [each.name for each in advice.checks if each.status == "warn"] == []
    assert [(each.winner, each.loser) for each in advice.conflicts] == [("mixed-minibatch", "enough-envs")]
    alone = advise(example.replace(num_envs=1, num_steps=8192))
    assert {"enough-envs", "mixed-minibatch"} <= {each.name for each in alone.checks if each.status == "warn"}
    measured = Facts(env_seconds=1e-5, update_seconds=1e-5, throughput=((1, 100.0), (4, 1000.0)))
    found = {each.name: each.status for each in advise(example, measured).checks}
    assert found["useful-envs"] == "pass"
    assert found["envs-for-throughput"] == "note"


def test_reinforce_may_have_large_minibatches() -> None:
    conflicts = advise(preset("reinforce"), Facts(time_limit=500)).conflicts
    assert ("reinforce-batch", "minibatch-size") in [(c.winner, c.loser) for c in conflicts]


@pytest.mark.parametrize("env", ["CartPole-v1", "Acrobot-v1"])
def test_presets_of_reinforce_have_rows_of_several_time_limits(env: str) -> None:
    """Of rows of four limits three quarters are surely used: 2 x (2,000 - 500 + 1) samples."""
    config = preset("reinforce", env)
    limit = known_facts(config).time_limit
    assert limit == 500
    assert config.num_steps >= GOOD_ROWS * limit
    assert surely_used(config, limit) == 3002
    lost = {conflict.loser for conflict in advise(config).conflicts}
    assert {f.name for f in advise(config).checks if f.status == "warn"} <= lost


def test_no_conflict_without_a_contradiction() -> None:
    assert advise(BASE).conflicts == ()


def test_advice_is_fit_for_json_and_has_monitors_only_for_runs() -> None:
    assert advise(BASE).monitors == ()
    advice = advise(BASE, metrics={"losses/clipfrac": [0.4] * 8})
    text = json.loads(json.dumps(advice.to_json()))
    assert list(text) == ["config", "checks", "monitors", "conflicts"]
    assert text["monitors"][0]["suggestions"][0]["field"] == "learning_rate"
    assert text["config"]["iteration_batch"] == 8192


def test_the_environment_is_asked_for_its_actions_and_limits() -> None:
    """A rollout of Pendulum: 8,192 steps of 3 + 2 + 5 numbers of 4 bytes."""
    known = known_facts(BASE.replace(env="Pendulum-v1"))
    assert (known.action_dim, known.continuous, known.time_limit) == (1, True, 200)
    assert known.rollout_bytes == 8192 * (3 + 2 + 5) * 4
    breakout = known_facts(BASE.replace(env="Breakout-MinAtar"), given=Facts(action_dim=9))
    assert (breakout.action_dim, breakout.continuous, breakout.critical_batch) == (9, False, None)


def test_an_environment_that_cannot_be_made_is_said_to_be_unknown() -> None:
    sentences: list[str] = []
    given = Facts(continuous=True)
    assert known_facts(BASE.replace(env="Unheard-v0"), sentences.append, given) == given
    assert sentences[0].startswith("env=Unheard-v0 cannot be asked for its actions: ")
