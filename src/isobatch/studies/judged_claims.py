"""A claim with the effects from which its verdict follows, and the rules by which it does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from isobatch.formatting import TO, with_interval
from isobatch.statistics.bootstrap import Estimate

Verdict = Literal["holds", "does not hold", "undecided"]
NEGLIGIBLE = 0.05  # of a quantity, or of normalized return: as good as nothing


@dataclass(frozen=True)
class Effect:
    at: str  # where it was measured, if at several places
    estimate: Estimate


@dataclass(frozen=True)
class Claim:
    name: str  # by which pages refer to it
    where: str  # in the post; empty: it is not from there
    claim: str
    verdict: Verdict
    quantity: str  # that the effects are of
    effects: tuple[Effect, ...]  # from which the verdict follows
    context: str  # further numbers, in words

    @property
    def measured(self) -> str:
        """Effects and further numbers for a table."""
        effects = ", ".join(f"{shown(each.estimate)}{each.at and f' {each.at}'}" for each in self.effects)
        return "; ".join(part for part in (f"{self.quantity}: {effects}", self.context) if part)


def claim_of(
    name: str,
    where: str,
    claim: str,
    verdict: Verdict,
    quantity: str,
    effects: Mapping[str, Estimate],
    context: str = "",
) -> Claim:
    return Claim(name, where, claim, verdict, quantity, tuple(Effect(*each) for each in effects.items()), context)


def above(effects: Iterable[Estimate], level: float = 0.0) -> Verdict:
    """The claim is that all are."""
    effects = list(effects)
    if all(each.low > level for each in effects):
        return "holds"
    return "does not hold" if any(each.high < level for each in effects) else "undecided"


def below(effects: Iterable[Estimate], level: float = 0.0) -> Verdict:
    return above([Estimate(-each.value, -each.high, -each.low) for each in effects], -level)


def near(effects: Iterable[Estimate], level: float) -> Verdict:
    """The claim is that none is far from the level: it does not hold where one can be told from it and may be far."""
    effects = list(effects)
    if all(level - NEGLIGIBLE < each.low and each.high < level + NEGLIGIBLE for each in effects):
        return "holds"
    return "does not hold" if any(each.low > level or each.high < level for each in effects) else "undecided"


def differs(effect: Estimate) -> Verdict:
    """The claim is a difference, of either sign."""
    if effect.low > 0 or effect.high < 0:
        return "holds"
    return "does not hold" if max(abs(effect.low), abs(effect.high)) < NEGLIGIBLE else "undecided"


def shown(measured: Estimate) -> str:
    return with_interval(measured, ends=TO)
