"""Advice about a config, and about a run's metrics: rules of thumb, the paper's monitors, and which wins.

A measurement outranks the paper, and the paper outranks folklore; every finding carries its source.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from isobatch.advice.facts import Facts
from isobatch.advice.findings import Conflict, Finding, settle
from isobatch.advice.monitors import Metrics, monitor
from isobatch.advice.rules_of_thumb import check
from isobatch.formatting import html_list, html_table
from isobatch.rescaling import describe
from isobatch.settings.config import Config


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
        sections = {name: [dataclasses.asdict(each) for each in getattr(self, name)] for name in names}
        return {"config": describe(self.config), **sections}


def advise(config: Config, facts: Facts, metrics: Metrics | None = None) -> Advice:
    """What rules of thumb say of a config, the monitors of the metrics of a run with it, and which of them win."""
    checks, conflicts = check(config, facts)
    monitors, disputes = monitor(metrics, config) if metrics is not None else ([], [])
    settled = tuple(settle(checks, conflicts)), tuple(settle(monitors, disputes))
    return Advice(config, *settled, (*conflicts, *disputes))
