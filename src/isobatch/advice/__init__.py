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
from isobatch.formatting import html_list, html_table
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


@dataclass(frozen=True, repr=False)
class Advice:
    """What there is to say about a config and, if it was run, about the run."""

    config: Config
    checks: tuple[Finding, ...]
    monitors: tuple[Finding, ...]
    conflicts: tuple[Conflict, ...]

    @property
    def _title(self) -> str:
        return f"{self.config.algo} on {self.config.env}"

    def _differences(self) -> list[str]:
        return [f"{each.winner} wins over {each.loser}: {each.why}." for each in self.conflicts]

    def __repr__(self) -> str:
        findings = [str(finding) for finding in (*self.monitors, *self.checks)]
        return "\n".join([self._title, *findings, *self._differences()])

    def _repr_html_(self) -> str:
        findings = (*self.monitors, *self.checks)
        rows = [[f.status, f.name, f.text, f.tries, f.source] for f in findings]
        table = html_table(self._title, ["", "rule", "finding", "suggestion", "source"], rows)
        return table + html_list(self._differences())

    def to_json(self) -> dict[str, object]:
        names = ("checks", "monitors", "conflicts")
        found = {name: [dataclasses.asdict(each) for each in getattr(self, name)] for name in names}
        return {"config": describe(self.config), **found}


def advise(config: Config, facts: Facts | None = None, metrics: Metrics | None = None) -> Advice:
    """Every rule of thumb for `config`; with the `metrics` of a run, what the monitors see in them.

    Args:
        config: the settings.
        facts: what is known of environment and machine (`isobatch.advice.known_facts`); by default what the name tells.
        metrics: `Result.metrics` of a run with these settings.

    Returns:
        Findings, each with its source and what to try, and which of two that differ wins.

    Example:
        >>> import isobatch as ib
        >>> advice = ib.advise(ib.preset("ppo", "CartPole-v1"))
        >>> {finding.status for finding in advice.checks} <= {"pass", "warn", "note"}
        True
    """
    checks, conflicts = check(config, facts or known_facts(config))
    monitors, disputes = monitor(metrics, config) if metrics is not None else ([], [])
    settled = tuple(settle(checks, conflicts)), tuple(settle(monitors, disputes))
    return Advice(config, *settled, (*conflicts, *disputes))


def known_facts(config: Config, **others: Any) -> Facts:
    """What is known of the environment by its name; `others` that are not None win over it."""
    dim, continuous = ACTIONS.get(config.env, (None, None))
    known = {name: value for name, value in others.items() if value is not None}
    return dataclasses.replace(Facts(action_dim=dim, continuous=continuous), **known)
