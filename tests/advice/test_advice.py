"""Advice as a whole: which of two rules that differ wins, JSON, and what is known of environments."""

from __future__ import annotations

import json

from rollout_settings import BASE

from isobatch.advice import ACTIONS, advise, known_facts
from isobatch.advice.rules_of_thumb import Facts
from isobatch.settings.presets import preset


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


def test_reinforce_may_have_large_minibatches() -> None:
    config = preset("reinforce", num_envs=8, num_steps=500)
    assert ("reinforce-batch", "minibatch-size") in [(c.winner, c.loser) for c in advise(config).conflicts]


def test_no_conflict_without_a_contradiction() -> None:
    assert advise(BASE).conflicts == ()


def test_advice_is_fit_for_json_and_has_monitors_only_for_runs() -> None:
    assert advise(BASE).monitors == ()
    advice = advise(BASE, metrics={"losses/clipfrac": [0.4] * 8})
    text = json.loads(json.dumps(advice.to_json()))
    assert list(text) == ["config", "checks", "monitors", "conflicts"]
    assert text["monitors"][0]["suggestions"][0]["field"] == "learning_rate"
    assert text["config"]["iteration_batch"] == 8192


def test_known_facts() -> None:
    assert known_facts(BASE) == Facts(action_dim=2, continuous=False)
    assert known_facts(BASE.replace(env="Pendulum-v1"), action_dim=None, cores=4) == Facts(1, True, 4)
    assert known_facts(BASE.replace(env="Unheard-v0"), continuous=True) == Facts(None, True)


def test_the_list_of_actions_agrees_with_the_environments() -> None:
    from isobatch.envs.registry import make_env
    from isobatch.envs.spaces import Discrete

    for name, (count, continuous) in ACTIONS.items():
        space = make_env(name).action_space
        assert continuous == (not isinstance(space, Discrete)), name
        assert count == (space.n if isinstance(space, Discrete) else len(space.low)), name
