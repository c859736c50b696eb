"""Memory: what a run keeps, part by part, and that advice warns of whatever training refuses."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from rollout_settings import BASE, PPG

from isobatch.advice.facts import Facts
from isobatch.advice.findings import Finding
from isobatch.advice.memory_rule import lowered, memory_parts
from isobatch.advice.rules_of_thumb import check
from isobatch.envs.registry import environment_of
from isobatch.errors import UsageError
from isobatch.settings.config import Config
from isobatch.settings.presets import preset
from isobatch.training import memory
from isobatch.training.known_facts import known_facts

STALE = BASE.replace(staleness=10)
LAGGING = BASE.replace(env="gymnasium/CartPole-v1", actors=2, max_lag="10i")
WIDE = BASE.replace(hidden_sizes=(4000, 4000))


def judged(config: Config, **facts: Any) -> Finding:
    return next(f for f in check(config, Facts(**facts))[0] if f.name == "rollout-memory")


def test_parts_are_named_and_their_sum_is_judged() -> None:
    """1 + 10 + 4 + 2 MB are just half of 34 MB."""
    facts = dict(rollout_bytes=10**6, waiting_bytes=10**7, phase_bytes=4 * 10**6, state_bytes=2 * 10**6)
    fits = judged(STALE, **facts, free_bytes=34 * 10**6)
    assert fits.status == "pass"
    assert fits.text == (
        "a rollout takes 1 MB, those that wait 10 MB, the iterations of a phase 4 MB, networks and environments at "
        "least 2 MB: 17 MB of memory in all."
    )
    large = judged(STALE, **facts, free_bytes=33 * 10**6)
    assert large.status == "warn"
    assert large.text.endswith(": 17 MB of memory in all, and 33 MB are free.")


def test_a_rollout_alone_is_one_number() -> None:
    assert judged(BASE, rollout_bytes=10**6).text == "a rollout takes 1 MB of memory."


@pytest.mark.parametrize(
    ("config", "part", "suggestion"),
    [
        # 1 MB besides one of 10 MB and 12 MB free: 5 of the 10 fit.
        (STALE, "waiting_bytes", ("staleness", 10, 5)),
        (LAGGING, "waiting_bytes", ("max_lag", 10 * 8192, 4 * 8192)),  # 11 rollouts wait; 5 do if 4 may be behind
        (PPG, "phase_bytes", ("policy_iterations_per_phase", 4, 2)),
        (WIDE, "state_bytes", ("hidden_sizes", (4000, 4000), (2000, 2000))),
    ],
)
def test_the_setting_of_the_largest_part_is_lowered(config: Config, part: str, suggestion: tuple) -> None:
    finding = judged(config, rollout_bytes=10**6, **{part: 10**7}, free_bytes=12 * 10**6)
    assert [(s.field, s.before, s.after) for s in finding.suggestions] == [suggestion]


def test_a_setting_is_lowered_to_what_is_valid() -> None:
    assert lowered(STALE, "staleness", 0.0) == 0
    assert lowered(LAGGING, "max_lag", 0.0) == 0
    assert lowered(PPG, "policy_iterations_per_phase", 0.0) == 1
    assert lowered(BASE, "num_envs", 0.0) == 1
    assert lowered(BASE, "hidden_sizes", 0.0) == (1, 1)


def needed(config: Config) -> int:
    return sum(size for _, size in memory_parts(config, known_facts(config)).values())


def test_what_is_kept_of_stale_data_and_phases_by_hand() -> None:
    """Breakout: a step is 10 x 10 x 4 numbers and three logits of the policy, with five more in a rollout; a phase has
    the observations twice and one target."""
    sizes = dict(num_envs=8, num_steps=16, num_minibatches=4)
    known = known_facts(preset("ppo", "Breakout-MinAtar", **sizes, staleness=3))
    observation = 400 * np.dtype(environment_of(preset("ppo", "Breakout-MinAtar")).obs_dtype).itemsize
    assert known.rollout_bytes == 128 * (observation + 4 * 3 + 5 * 4)
    assert known.waiting_bytes == 3 * known.rollout_bytes
    assert known.phase_bytes == 0
    phasic = known_facts(preset("ppg", "Breakout-MinAtar", **sizes, policy_iterations_per_phase=2))
    assert phasic.phase_bytes == 2 * 128 * (2 * observation + 4 + 4 * 3)
    assert phasic.waiting_bytes == 0


@pytest.mark.parametrize(
    "config",
    [
        BASE,
        WIDE,
        preset("ppg", "CartPole-v1", num_envs=64, policy_iterations_per_phase=32),
        preset(
            "ppo", "Breakout-MinAtar", num_envs=64, num_steps=64, staleness=50, total_timesteps=10**6, update_epochs=1
        ),
        LAGGING,
    ],
    ids=["rollout", "weights", "phase", "stale", "actors"],
)
@pytest.mark.parametrize("share", [1.0, 1.2, 2.1])
def test_advice_warns_of_what_training_refuses(config: Config, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """On machines whose free memory is as much as a run needs, 1.2 times and 2.1 times that: training may have 90 % of
    it, and advice warns above 50 %."""
    free = int(share * needed(config))
    monkeypatch.setattr(memory, "available_bytes", lambda: free)
    finding = next(f for f in check(config, known_facts(config, given=Facts(free_bytes=free)))[0] if "memory" in f.name)
    assert finding.status == ("warn" if share < 2 else "pass")
    refused = pytest.raises(UsageError, match="are available") if share < 1.1 else contextlib.nullcontext()
    with refused:
        memory.check_run_memory(config, environment_of(config), num_seeds=1)
