"""Advice about a config, and about a run's metrics: rules of thumb, the paper's monitors, and which wins.

A measurement outranks the paper, and the paper outranks folklore; every finding carries its source.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from isobatch.advice.findings import Conflict, Finding, settle
from isobatch.advice.monitors import Metrics, monitor
from isobatch.advice.rules_of_thumb import Facts, check
from isobatch.rescaling import describe
from isobatch.settings.config import Config

# Numbers in an action, or actions to choose from, and whether they are continuous: known without making the
# environment, which would load JAX.
ACTIONS: dict[str, tuple[int, bool]] = {
    "CartPole-v1": (2, False),
    "Acrobot-v1": (3, False),
    "MountainCar-v0": (3, False),
    "MountainCarContinuous-v0": (1, True),
    "Pendulum-v1": (1, True),
}


@dataclass(frozen=True)
class Advice:
    """What there is to say about a config and, if it was run, about the run."""

    config: Config
    checks: tuple[Finding, ...]
    monitors: tuple[Finding, ...]
    conflicts: tuple[Conflict, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "config": describe(self.config),
            "checks": [dataclasses.asdict(finding) for finding in self.checks],
            "monitors": [dataclasses.asdict(finding) for finding in self.monitors],
            "conflicts": [dataclasses.asdict(conflict) for conflict in self.conflicts],
        }


def advise(config: Config, facts: Facts | None = None, metrics: Metrics | None = None) -> Advice:
    """Every rule of thumb for `config`; with the `metrics` of a run, what the monitors see in them."""
    checks, conflicts = check(config, facts or known_facts(config))
    monitors, disputes = monitor(metrics, config) if metrics is not None else ([], [])
    return Advice(
        config,
        tuple(settle(checks, conflicts)),
        tuple(settle(monitors, disputes)),
        (*conflicts, *disputes),
    )


def known_facts(config: Config, **others: Any) -> Facts:
    """What is known of the environment by its name; `others` that are not None win over it."""
    dim, continuous = ACTIONS.get(config.env, (None, None))
    return Facts(**({"action_dim": dim, "continuous": continuous} | {k: v for k, v in others.items() if v is not None}))
