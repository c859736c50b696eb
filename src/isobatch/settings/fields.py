"""Settings are declared as `name: Annotated[type, range, "help text"] = default`; this reads and checks them."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, NamedTuple

from isobatch.errors import UsageError, brief, near_matches
from isobatch.settings.parsing import parse_value

INF = math.inf
LARGEST_INDEX = 2**63 - 1  # of NumPy and XLA
# Environments outside JAX keep 31 bits; JAX takes 2^32 for 0 without a word, and fails at 2^63.
LARGEST_SEED = 2**31 - 1


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, perhaps whole ones; `why` ends the complaint about others."""

    low: float
    high: float = INF
    low_open: bool = False
    high_open: bool = False
    whole: bool = False
    why: str = ""

    def __contains__(self, value: float) -> bool:
        above = value > self.low if self.low_open else value >= self.low
        below = value < self.high if self.high_open else value <= self.high
        return above and below  # never both for nan

    def __str__(self) -> str:
        if self.high == INF:
            least = f"{'above' if self.low_open else 'of at least'} {self.low:g}"
            return f"{least} and finite" if self.high_open else least
        opened = {True: " (excluded)", False: ""}
        return f"from {self.low:g}{opened[self.low_open]} to {self.high:g}{opened[self.high_open]}"

    def check(self, name: str, value: object) -> None:
        """Raise unless `value`, or each of a tuple's, is in the range. What is no number (yet) passes."""
        if isinstance(value, tuple):
            self._check_each(name, value)
        elif isinstance(value, (int, float)) and value not in self:
            if self.whole:
                bound = f"at least {self.low}" if value < self.low else f"at most {self.high}"
                raise UsageError(f"{name}={brief(value)} must be {bound}{self.why}.")
            raise UsageError(f"{name}={value:g} is out of range: use a number {self}{self.why}.")

    def _check_each(self, name: str, values: tuple[float, ...]) -> None:
        if self.whole and (not values or any(value not in self for value in values)):
            raise UsageError(f"{name}={brief(list(values))} must be a list of positive sizes, for example 64,64.")
        for value in values:
            if value not in self:
                raise UsageError(f"{name}={value:g} is out of range: use numbers {self}.")


POSITIVE = Range(0, low_open=True, high_open=True)
POSITIVE_OR_INF = Range(0, low_open=True)
NON_NEGATIVE = Range(0, high_open=True)
UNIT = Range(0, 1)
DECAY = Range(0, 1, high_open=True)
COUNT = Range(1, LARGEST_INDEX, whole=True)
COUNT_OR_0 = Range(0, LARGEST_INDEX, whole=True)
SEED = Range(0, LARGEST_SEED, whole=True)


class Field(NamedTuple):
    """A field as it was declared."""

    kind: object
    """Its type, without the annotations."""
    range: Range | None
    help: str
    default: object


@cache
def fields_of(owner: type) -> Mapping[str, Field]:
    """Name -> field of a dataclass of settings, in order; those without a help text are not settings."""
    hints = typing.get_type_hints(owner, include_extras=True)
    fields = {}
    for field in dataclasses.fields(owner):
        if typing.get_origin(hints[field.name]) is Annotated:
            kind, *notes = typing.get_args(hints[field.name])
            bounds = next((note for note in notes if isinstance(note, Range)), None)
            fields[field.name] = Field(kind, bounds, notes[-1], field.default)
    return fields


def check_ranges(settings: object) -> None:
    """Raise unless every number of a dataclass of settings is in the range that stands with its field."""
    owner: type = type(settings)
    for name, field in fields_of(owner).items():
        if field.range is not None:
            field.range.check(name, getattr(settings, name))


def parse_fields(values: Mapping[str, object], known: Mapping[str, Field], noun: str) -> dict[str, Any]:
    """Values (from YAML, flags or Python) as the types of their fields, or a UsageError; `noun` is what a field is."""
    for name in values:
        if name not in known:
            raise UsageError(f"unknown {noun} {name!r}{near_matches(name, known)}")
    return {name: parse_value(name, value, known[name].kind) for name, value in values.items()}
