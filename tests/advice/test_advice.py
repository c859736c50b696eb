"""Rules of thumb, their contradictions, and the drawings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobatch.advice import ACTIONS, advise, known_facts
from isobatch.advice.findings import Finding
from isobatch.advice.geometry_figure import lengths, plot_geometry
from isobatch.advice.geometry_text import diagram
from isobatch.advice.rules_of_thumb import CHECKS, Facts, check, envs_per_minibatch
from isobatch.errors import UsageError
from isobatch.settings.config import Config
from isobatch.settings.presets import ALGORITHMS, preset

BASE = Config().replace(num_envs=64, num_steps=128, num_minibatches=32, update_epochs=1)  # 8192 samples in 256s
PPG = BASE.replace(policy_iterations_per_phase=4, total_timesteps=32 * 8192)


def find(name: str, config: Config = BASE, **facts: Any) -> Finding:
    return next(f for f in check(config, Facts(**facts))[0] if f.name == name)


@pytest.mark.parametrize(
    ("name", "config", "facts", "status", "suggestion"),
    [
        ("envs-fill-cores", BASE, dict(cores=64), "pass", None),
        ("envs-fill-cores", BASE, dict(cores=96), "warn", ("num_envs", 96)),
        ("envs-fill-cores", BASE, {}, "note", None),
        ("enough-envs", BASE.replace(num_envs=8), {}, "pass", None),
        ("enough-envs", BASE.replace(num_envs=4), {}, "warn", ("num_envs", 8)),
        ("envs-for-throughput", BASE, dict(env_seconds=1e-5, update_seconds=4e-5), "pass", None),  # 256/4 = 64
        ("envs-for-throughput", BASE, dict(env_seconds=1e-5, update_seconds=1e-5), "warn", ("num_envs", 256)),
        ("envs-for-throughput", BASE, dict(env_seconds=1e-5), "note", None),
        ("credit-horizon", BASE.replace(gamma=0.99, gae_lambda=1.0), {}, "pass", None),  # 100 <= 128
        ("credit-horizon", BASE.replace(gamma=0.995, gae_lambda=1.0), {}, "warn", ("num_steps", 200)),
        ("credit-horizon", BASE.replace(gamma=1.0, gae_lambda=1.0), {}, "note", None),
        ("rollout-length", BASE.replace(num_steps=64), {}, "pass", None),
        ("rollout-length", BASE.replace(num_steps=32), {}, "warn", ("num_steps", 64)),
        ("update-often", BASE.replace(total_timesteps=8192 * 100), {}, "pass", None),
        ("update-often", BASE.replace(total_timesteps=8192 * 99), {}, "warn", ("num_steps", 64)),
        ("minibatch-count", BASE, {}, "pass", None),
        ("minibatch-count", BASE.replace(num_minibatches=64), {}, "warn", ("num_minibatches", 32)),
        ("minibatch-count", BASE.replace(num_minibatches=2), {}, "warn", ("num_minibatches", 4)),
        ("minibatch-count", preset("a2c"), {}, "note", None),
        ("minibatches-per-epoch", BASE.replace(num_minibatches=4), {}, "pass", None),
        ("minibatches-per-epoch", BASE.replace(num_minibatches=2), {}, "warn", ("num_minibatches", 4)),
        ("minibatch-size", BASE, {}, "pass", None),
        ("minibatch-size", BASE.replace(num_minibatches=16), {}, "warn", ("num_minibatches", 32)),
        ("minibatch-size", BASE.replace(num_minibatches=512), {}, "warn", ("num_minibatches", 256)),
        ("minibatch-for-actions", BASE, dict(action_dim=25), "pass", None),
        ("minibatch-for-actions", BASE, dict(action_dim=26), "warn", ("num_minibatches", 16)),
        ("minibatch-for-actions", BASE, {}, "note", None),
        ("mixed-minibatch", BASE, {}, "pass", None),
        ("mixed-minibatch", BASE.replace(minibatch_scheme="envs"), {}, "pass", None),  # two rows in each
        (
            "mixed-minibatch",
            BASE.replace(minibatch_scheme="envs", num_minibatches=64),
            {},
            "warn",
            ("minibatch_scheme", "shuffle"),
        ),
        ("mixed-minibatch", BASE.replace(num_envs=1), {}, "warn", ("num_envs", 8)),
        ("reinforce-batch", preset("reinforce", num_envs=8, num_steps=500), {}, "pass", None),
        ("reinforce-batch", preset("reinforce", num_envs=1, num_steps=500), {}, "warn", ("num_envs", 2)),
        ("reinforce-batch", BASE, {}, "note", None),
        ("reinforce-baseline", preset("reinforce", num_steps=500), {}, "pass", None),
        ("reinforce-baseline", preset("reinforce", num_steps=500, baseline=False), {}, "warn", ("baseline", True)),
        ("continuous-control-batch", BASE, dict(continuous=True), "pass", None),
        ("continuous-control-batch", BASE.replace(num_envs=8), dict(continuous=True), "warn", ("num_envs", 16)),
        ("continuous-control-batch", BASE.replace(num_envs=128), dict(continuous=True), "warn", ("num_envs", 78)),
        ("continuous-control-batch", BASE, dict(continuous=False), "note", None),
        ("critical-batch", BASE, dict(critical_batch=512), "pass", None),
        ("critical-batch", BASE, dict(critical_batch=256), "warn", ("num_minibatches", 64)),
        ("critical-batch", BASE, {}, "note", None),
        ("one-epoch", BASE, {}, "pass", None),
        ("one-epoch", BASE.replace(update_epochs=3), {}, "warn", ("update_epochs", 1)),
        ("learning-rate-first", BASE, {}, "note", None),
        ("evaluate-late", BASE, {}, "note", None),
        ("reproducible", BASE, {}, "note", None),
        ("rollout-size", BASE, {}, "note", None),
    ],
)
def test_rules_of_thumb(name: str, config: Config, facts: dict, status: str, suggestion: tuple | None) -> None:
    finding = find(name, config, **facts)
    assert finding.status == status, finding
    assert [(s.field, s.after) for s in finding.suggestions] == ([suggestion] if suggestion else [])
    assert finding.source


def test_every_rule_has_its_own_name_and_was_tested() -> None:
    names = [rule(BASE, Facts()).name for rule in CHECKS]
    assert len(set(names)) == len(names) == 20


def test_the_worked_example_passes() -> None:
    """8192 samples in minibatches of 256 make 32: within both rules."""
    assert find("minibatch-count").status == find("minibatch-size").status == "pass"


@given(st.integers(1, 40), st.integers(1, 200))
def test_environments_in_a_minibatch_against_counting(num_envs: int, size: int) -> None:
    """Expected number of distinct environments among `size` samples drawn with replacement, by recursion."""
    config = Config().replace(num_envs=num_envs, num_steps=size, num_minibatches=num_envs, total_timesteps=10**6)
    distinct = 0.0
    for _ in range(size):
        distinct += 1 - distinct / num_envs
    assert envs_per_minibatch(config) == pytest.approx(distinct)


# Which rule wins.


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
    from isobatch.envs import make_env
    from isobatch.envs.spaces import Discrete

    for name, (count, continuous) in ACTIONS.items():
        space = make_env(name).action_space
        assert continuous == (not isinstance(space, Discrete)), name
        assert count == (space.n if isinstance(space, Discrete) else len(space.low)), name


# Drawings.


def test_diagram_shows_every_number() -> None:
    text = diagram(BASE.replace(update_epochs=2, total_timesteps=8192 * 10, proximal_policy="ewma"))
    for part in ("env 64", "T = 128", "64 x 128 = 8,192", "32 minibatches of 256", "x 2 epochs", "64 gradient steps"):
        assert part in text, part
    for part in (
        "x 10 iterations",
        "640 gradient steps in all",
        "81,920 environment steps",
        "1,024 environment steps old",
    ):
        assert part in text, part
    assert max(map(len, text.splitlines())) <= 100


def test_diagram_of_phases_and_rows() -> None:
    text = diagram(PPG)
    assert "every 4 iterations: phase batch = 32,768" in text
    assert "of 64 minibatches of 512" in text
    rows = diagram(BASE.replace(num_envs=2, num_minibatches=2, minibatch_scheme="envs"))
    assert "████  ▓▓▓▓" in rows
    assert "whole environment rows" in rows


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_algorithm_can_be_drawn(algo: str) -> None:
    config = preset(algo, **(dict(num_steps=500) if algo == "reinforce" else {}))
    assert f"{config.geometry.gradient_steps} gradient step" in diagram(config)


def test_lengths_on_the_ruler() -> None:
    config = PPG.replace(proximal_policy="ewma", beta_prox=0.5, advantage_norm="ewma", adv_norm_decay=0.6)
    assert lengths(config) == [
        ("gradient step = proximal age", 256),
        ("iteration", 8192),
        ("advantage moments = phase", 32768),
        ("run", 262144),
    ]


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_picture_is_written(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"geometry.{ending}"
    plot_geometry(PPG.replace(minibatch_scheme="envs"), path)
    head = path.read_bytes()[:200]
    assert head.startswith(b"\x89PNG") if ending == "png" else b"<?xml" in head
    assert path.stat().st_size > 10_000
    if ending == "svg":
        assert "iteration batch  8,192" in path.read_text()


def test_picture_with_a_wrong_ending(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="picture's ending"):
        plot_geometry(BASE, tmp_path / "geometry.bmp")
