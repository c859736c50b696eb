"""What advice has to know besides a config: what the environment says of itself, and the memory of this machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from isobatch.advice import Advice
from isobatch.advice import advise as advise_on
from isobatch.advice.facts import Facts
from isobatch.advice.monitors import Metrics
from isobatch.envs.registry import environment_of
from isobatch.envs.spaces import Box, MultiDiscrete
from isobatch.errors import UsageError, check_keywords
from isobatch.settings.config import Config
from isobatch.training.memory import available_bytes, phase_bytes, rollout_bytes, state_bytes, waiting_bytes


@check_keywords
def advise(config: Config, facts: Facts | None = None, metrics: Metrics | None = None) -> Advice:
    """Every rule of thumb for `config`; with the `metrics` of a run, what the monitors see in them.

    Args:
        config: the settings.
        facts: what is known of environment and machine; by default what the environment says (`known_facts`).
        metrics: `Result.metrics` of a run with these settings.

    Returns:
        Findings, each with its source and what to try, and which of two that differ wins.

    Example:
        >>> import isobatch as ib
        >>> advice = ib.advise(ib.preset("ppo", "CartPole-v1"))
        >>> {finding.status for finding in advice.checks} <= {"pass", "warn", "note"}
        True
    """
    return advise_on(config, facts or known_facts(config), metrics)


def known_facts(
    config: Config, say: Callable[[str], None] = lambda sentence: None, given: Facts | None = None
) -> Facts:
    """What the environment says, if it can be made; what is `given` wins over it."""
    try:
        facts = environment_facts(config)
    except UsageError as error:
        say(f"env={config.env} cannot be asked for its actions: {error}")
        facts = Facts()
    known = vars(given or Facts())
    return dataclasses.replace(facts, **{name: value for name, value in known.items() if value not in (None, ())})


def environment_facts(config: Config) -> Facts:
    env = environment_of(config)
    match env.action_space:
        case Box() as space:
            dim = len(space.low)
        case MultiDiscrete(sizes):
            dim = len(sizes)
        case space:
            dim = space.n
    return Facts(
        action_dim=dim,
        continuous=isinstance(env.action_space, Box),
        time_limit=env.max_steps or None,
        rollout_bytes=rollout_bytes(config, env),
        waiting_bytes=waiting_bytes(config, env),
        phase_bytes=phase_bytes(config, env, num_seeds=1),
        state_bytes=state_bytes(config, env),
        free_bytes=available_bytes(),
    )
