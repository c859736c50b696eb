"""Every rule of thumb: when it passes, when it warns, and what it suggests."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout_settings import BASE

from isobatch.advice.facts import Facts
from isobatch.advice.findings import Finding
from isobatch.advice.rules_of_thumb import (
    CHECKS,
    GUIDE,
    MEASURED,
    OURS,
    PAPER,
    check,
    envs_per_minibatch,
)
from isobatch.settings.config import Config
from isobatch.settings.presets import preset

EPISODES = preset("reinforce", num_envs=8, num_steps=500)
WHOLE = BASE.replace(complete_episodes=True)


def find(name: str, config: Config = BASE, **facts: Any) -> Finding:
    return next(f for f in check(config, Facts(**facts))[0] if f.name == name)


@pytest.mark.parametrize(
    ("name", "config", "facts", "status", "suggestion"),
    [
        ("rollout-memory", BASE, dict(rollout_bytes=10**6, free_bytes=2 * 10**6), "pass", None),
        ("rollout-memory", BASE, dict(rollout_bytes=10**6, free_bytes=10**6), "warn", ("num_envs", 32)),
        ("rollout-memory", BASE, {}, "note", None),
        # 8 environments reach 80 % of the speed of 64, and 1 does not.
        ("useful-envs", BASE, dict(throughput=((1, 100.0), (8, 800.0), (64, 1000.0))), "pass", None),
        (
            "useful-envs",
            BASE.replace(num_envs=16),
            dict(throughput=((1, 100.0), (8, 700.0), (64, 1000.0))),
            "warn",
            ("num_envs", 64),
        ),
        ("useful-envs", BASE, {}, "note", None),
        ("enough-envs", BASE.replace(num_envs=8), {}, "pass", None),
        ("enough-envs", BASE.replace(num_envs=4), {}, "warn", ("num_envs", 8)),
        ("enough-envs", preset("reinforce"), {}, "note", None),  # two with long rows
        ("envs-for-throughput", BASE, dict(env_seconds=1e-5, update_seconds=4e-5), "pass", None),  # 256/4 = 64
        ("envs-for-throughput", BASE, dict(env_seconds=1e-5, update_seconds=1e-5), "warn", ("num_envs", 256)),
        ("envs-for-throughput", BASE, dict(env_seconds=1e-5), "note", None),
        ("per-device", BASE, {}, "note", None),
        ("per-device", BASE, dict(devices=8), "pass", None),
        ("per-device", BASE, dict(devices=48), "warn", ("num_envs", 48)),
        (
            "per-device",
            BASE.replace(num_shards=8, minibatch_scheme="stratified"),
            dict(devices=16),
            "warn",
            ("num_shards", 16),
        ),
        ("per-device", BASE.replace(num_minibatches=256), dict(devices=64), "warn", ("num_minibatches", 128)),
        ("credit-horizon", BASE.replace(gamma=0.99, gae_lambda=1.0), {}, "pass", None),  # 100 <= 128
        ("credit-horizon", BASE.replace(gamma=0.995, gae_lambda=1.0), {}, "warn", ("num_steps", 200)),
        ("credit-horizon", BASE.replace(gamma=1.0, gae_lambda=1.0), {}, "note", None),
        ("credit-horizon", BASE.replace(gamma=0.995, gae_lambda=1.0), dict(time_limit=100), "pass", None),
        ("credit-horizon", BASE.replace(gamma=1.0, gae_lambda=1.0), dict(time_limit=200), "warn", ("num_steps", 200)),
        ("rollout-length", BASE.replace(num_steps=64), {}, "pass", None),
        ("rollout-length", BASE.replace(num_steps=32), {}, "warn", ("num_steps", 64)),
        ("update-often", BASE.replace(total_timesteps=8192 * 50), {}, "pass", None),
        ("update-often", BASE.replace(total_timesteps=8192 * 49), {}, "note", None),
        ("update-often", BASE.replace(total_timesteps=8192 * 10), {}, "note", None),
        ("update-often", BASE.replace(total_timesteps=8192 * 9), {}, "warn", ("num_steps", 16)),
        # Of 54 iterations 45 only collect; with rows half as long 63 of 108 learn.
        ("update-often", BASE.replace(total_timesteps=8192 * 95, staleness=45), {}, "pass", None),
        ("update-often", BASE.replace(total_timesteps=8192 * 94, staleness=45), {}, "note", None),
        ("update-often", BASE.replace(total_timesteps=8192 * 54, staleness=45), {}, "warn", ("num_steps", 64)),
        ("minibatch-count", BASE, {}, "pass", None),
        ("minibatch-count", BASE.replace(num_minibatches=64), {}, "warn", ("num_minibatches", 32)),
        ("minibatch-count", BASE.replace(num_minibatches=2), {}, "warn", ("num_minibatches", 4)),
        ("minibatch-count", preset("a2c"), {}, "note", None),
        ("minibatches-per-epoch", BASE.replace(num_minibatches=4), {}, "pass", None),
        ("minibatches-per-epoch", BASE.replace(num_minibatches=2), {}, "warn", ("num_minibatches", 4)),
        ("minibatch-size", BASE, {}, "pass", None),
        ("minibatch-size", BASE.replace(num_minibatches=16), {}, "warn", ("num_minibatches", 32)),
        ("minibatch-size", BASE.replace(num_minibatches=512), {}, "warn", ("num_minibatches", 256)),
        ("minibatch-size", EPISODES, dict(time_limit=500), "warn", ("num_steps", 2000)),  # perhaps 8 of 4,000
        ("minibatch-size", EPISODES.replace(num_envs=1, num_steps=250), {}, "note", None),  # 250 at most
        # 64 of 8,192 are surely used, 2 in each of 32 minibatches.
        ("minibatch-size", WHOLE, dict(time_limit=128), "warn", ("num_minibatches", 2)),
        ("minibatch-size", WHOLE, dict(time_limit=100), "pass", None),
        ("minibatch-for-actions", EPISODES, dict(time_limit=500, action_dim=2), "warn", ("num_steps", 2000)),
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
        ("reinforce-batch", preset("reinforce"), dict(time_limit=500), "pass", None),  # 2 x 1,501 of 2 x 2,000
        ("reinforce-batch", EPISODES, dict(time_limit=500), "warn", ("num_steps", 2000)),  # perhaps 8 of 4,000
        ("reinforce-batch", EPISODES.replace(num_envs=1), dict(time_limit=50), "warn", ("num_steps", 1049)),
        ("reinforce-batch", EPISODES, {}, "note", None),
        ("reinforce-batch", EPISODES.replace(complete_episodes=False), {}, "pass", None),
        ("reinforce-batch", preset("reinforce", num_envs=1, num_steps=500), {}, "warn", ("num_envs", 2)),
        ("reinforce-batch", BASE, {}, "note", None),
        ("reinforce-baseline", preset("reinforce", num_steps=500), {}, "pass", None),
        ("reinforce-baseline", preset("reinforce", num_steps=500, baseline=False), {}, "warn", ("baseline", True)),
        ("continuous-control-batch", BASE, dict(continuous=True), "pass", None),
        ("continuous-control-batch", BASE.replace(num_envs=8), dict(continuous=True), "warn", ("num_envs", 16)),
        ("continuous-control-batch", BASE.replace(num_envs=128), dict(continuous=True), "warn", ("num_envs", 78)),
        ("continuous-control-batch", BASE, dict(continuous=False), "note", None),
        ("continuous-control-batch", EPISODES, dict(continuous=True, time_limit=200), "pass", None),  # 8 x 301
        (
            "continuous-control-batch",
            EPISODES,
            dict(continuous=True, time_limit=500),
            "warn",
            ("num_steps", 2000),
        ),
        ("continuous-control-batch", EPISODES, dict(continuous=True), "note", None),
        # 3,002 of 4,000 samples: under half of 7,000, not of 6,000, and one environment has 1,501.
        ("critical-batch", preset("reinforce"), dict(critical_batch=7000, time_limit=500), "pass", None),
        ("critical-batch", preset("reinforce"), dict(critical_batch=6000, time_limit=500), "warn", ("num_envs", 1)),
        ("critical-batch", preset("reinforce"), dict(critical_batch=7000), "note", None),
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
    assert [finding.name for finding in check(BASE, Facts())[0]] == list(CHECKS)
    assert len({rule for rule, _ in CHECKS.values()}) == len(CHECKS) == 22


def test_the_worked_example_passes() -> None:
    """8192 samples in minibatches of 256 make 32: the guide's own example, in a run of the default length."""
    for num_envs, num_steps in ((8, 1024), (64, 128), (128, 64)):
        config = preset("ppo", num_envs=num_envs, num_steps=num_steps, num_minibatches=32, total_timesteps=500_000)
        findings, _ = check(config, Facts(action_dim=2, continuous=False, time_limit=500))
        assert [f.name for f in findings if f.status == "warn"] == ["one-epoch"]  # which is the paper's


def test_a_run_that_is_short_does_not_make_the_guides_sizes_a_fault() -> None:
    """8192 samples in minibatches of 256, 48 times: 50 is ours, and the guide has no number."""
    sizes = dict(num_envs=4, num_steps=2048, num_minibatches=32, update_epochs=1)
    finding = find("update-often", preset("ppo", **sizes, total_timesteps=400_000))
    assert (finding.status, finding.tries) == ("note", "")
    assert "48 iterations, at least 50" in finding.text
    assert "warned of below 10" in finding.text


def test_iterations_that_only_collect_are_not_updates() -> None:
    config = preset("ppo", num_envs=8, num_steps=128, staleness=45, total_timesteps=52_000)
    finding = find("update-often", config)
    assert finding.status == "warn"
    assert "5 iterations with an update (the first 45 of the run only collect)" in finding.text


def test_more_environments_go_with_rescaled_settings() -> None:
    speeds = ((8, 700.0), (256, 10_000.0))
    finding = find("useful-envs", BASE.replace(num_envs=8), throughput=speeds)
    assert "isobatch rescale --to-num-envs 256 goes with it" in finding.text
    assert finding.tries == "Try num_envs 8 -> 256."
    assert "rescale" not in find("useful-envs", BASE.replace(num_envs=256), throughput=speeds).text


def test_devices_in_words() -> None:
    """64 environments, minibatches of 256; 8 times the batch at B_crit = 256: (1 + 8) / (1 + 1) of the samples."""
    text = find("per-device", devices=8, critical_batch=256.0).text
    assert "8 of the 64 environments and 32 samples of a minibatch" in text
    assert "isobatch train --num-envs 64 --devices 8" in text
    assert "give 8 there; 64 would be 8 times the batch, which needs 4.50 times the samples" in text
    assert "isobatch rescale --to-devices 8" in text


def test_our_own_preset_of_reinforce_passes() -> None:
    findings, conflicts = check(preset("reinforce"), Facts(action_dim=2, continuous=False, time_limit=500))
    lost = {conflict.loser for conflict in conflicts}
    assert {f.name for f in findings if f.status == "warn"} <= lost == {"minibatch-size"}


def test_rules_and_text_have_the_samples_in_use() -> None:
    """Two rows of 2,000 steps, of which 2,000 - 500 + 1 are used whatever the lengths; 3,002/3,000 more samples."""
    facts = dict(time_limit=500, critical_batch=3000)
    for name in ("rollout-size", "minibatch-size", "continuous-control-batch", "critical-batch", "reinforce-batch"):
        assert "at least 3,002" in find(name, preset("reinforce"), **facts).text
    assert "at least 2.00 times the samples needed" in find("critical-batch", preset("reinforce"), **facts).text
    assert "up to 4,000 samples" in find("minibatch-size", preset("reinforce")).text


def test_every_source_is_a_name_or_ours() -> None:
    names = (GUIDE, PAPER, MEASURED, OURS)
    assert all(source.startswith(names) for _, source in CHECKS.values())
    assert all("ours" in source for source in {s for _, s in CHECKS.values()} - set(names))


@given(st.integers(1, 40), st.integers(1, 200))
def test_environments_in_a_minibatch_against_counting(num_envs: int, size: int) -> None:
    """Expected number of distinct environments among `size` samples drawn with replacement, by recursion."""
    config = Config().replace(num_envs=num_envs, num_steps=size, num_minibatches=num_envs, total_timesteps=10**6)
    distinct = 0.0
    for _ in range(size):
        distinct += 1 - distinct / num_envs
    assert envs_per_minibatch(config, size) == pytest.approx(distinct)
