"""Results of measurements as JSON, and back: one rule for all sections.

A result is a frozen dataclass of numbers, texts, estimates, tuples, mappings and further dataclasses. In JSON a field
whose value is its default None is left out, and a number that is not finite is null. Read back, null is nan, not known;
but as the upper end of an interval whose lower end is known it is inf. What a section says of a result is the same
before and after, because `diagnosis` passes on only what was read back.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from typing import Any, TypeVar

from isobatch.settings.parsing import plain_json
from isobatch.statistics.bootstrap import Estimate

R = TypeVar("R")


def to_json(value: Any) -> Any:
    """A dataclass as a mapping, and so on down to plain numbers."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        shown = {field: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {f.name: to_json(v) for f, v in shown.items() if not (v is None and f.default is None)}
    if isinstance(value, dict):
        return {str(key): to_json(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return [to_json(each) for each in value]
    return plain_json(value)


def from_json(kind: type[R], value: Any) -> R:
    """The inverse of `to_json` for a type with annotated fields."""
    made: R = _read(kind, value)
    return made


def _read(kind: Any, value: Any) -> Any:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:  # something or None
        return None if value is None else _read(inner[0], value)
    if origin is tuple:
        kinds = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return tuple(_read(each, part) for each, part in zip(kinds, value, strict=True))
    if origin is dict:
        return {inner[0](key): _read(inner[1], each) for key, each in value.items()}
    if kind is Estimate:
        middle, low, high = (_read(float, value[name]) for name in ("value", "low", "high"))
        return Estimate(middle, low, math.inf if math.isnan(high) and not math.isnan(low) else high)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{name: _read(hints[name], each) for name, each in value.items()})
    if kind is float:
        return math.nan if value is None else float(value)
    return value
