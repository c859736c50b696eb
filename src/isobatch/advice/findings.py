"""What advice is made of: findings with source and suggested change, and which of two that differ wins."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from isobatch.formatting import setting_text

Status = Literal["pass", "warn", "note"]
"""note: does not apply, cannot be seen from what is known, or was overruled."""


@dataclass(frozen=True)
class Suggestion:
    """One setting and the value to try next."""

    field: str
    before: object
    """None where the setting was not in use."""
    after: object

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.field} {setting_text(self.after)}"
        return f"{self.field} {setting_text(self.before)} -> {setting_text(self.after)}"


@dataclass(frozen=True, repr=False)
class Finding:
    """What one check or monitor found."""

    name: str
    status: Status
    text: str
    source: str
    suggestions: tuple[Suggestion, ...] = ()
    """To be made together."""
    instead: tuple[Suggestion, ...] = ()
    """Others that would do as well, to be made together too."""

    @property
    def tries(self) -> str:
        """`Try this 1 -> 2; or that 3 -> 4, those 5 -> 6.`, nothing without a suggestion."""
        ways = [", ".join(map(str, way)) for way in (self.suggestions, self.instead) if way]
        return f"Try {'; or '.join(ways)}." if ways else ""

    def __repr__(self) -> str:
        parts = [self.status, f"{self.name}:", self.text, self.tries, f"[{self.source}]"]
        return " ".join(word for word in parts if word)

    def noted(self, remark: str) -> Finding:
        """The finding as a note that suggests nothing, with a reason."""
        return dataclasses.replace(self, status="note", text=f"{self.text} {remark}", suggestions=(), instead=())


@dataclass(frozen=True)
class Conflict:
    """Two rules that cannot both be followed."""

    winner: str
    loser: str
    why: str


# Whether a check was passed, None where it does not apply or cannot be seen; in words; and what to try if it was not.
Said = tuple[bool | None, str] | tuple[bool | None, str, Suggestion]


def made(name: str, source: str, passed: bool | None, text: str, *suggestions: Suggestion) -> Finding:
    """The finding of a check: its suggestions stand only if it failed, and those that change something."""
    status: Status = "note" if passed is None else "pass" if passed else "warn"
    changes = tuple(each for each in suggestions if each.before != each.after)
    return Finding(name, status, text, source, changes if status == "warn" else ())


def settle(findings: list[Finding], conflicts: list[Conflict]) -> list[Finding]:
    """The findings, with the warnings that lost turned into notes."""
    lost = {c.loser: c.winner for c in conflicts}

    def judged(finding: Finding) -> Finding:
        if finding.status != "warn" or finding.name not in lost:
            return finding
        return finding.noted(f"Overruled by {lost[finding.name]}.")

    return [judged(finding) for finding in findings]
