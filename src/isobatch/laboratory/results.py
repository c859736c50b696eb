"""Results of measurements as JSON, and back: one rule for all sections. One file each, written when it is complete.

A result is a frozen dataclass of numbers, texts, estimates, tuples, mappings and further dataclasses. In JSON a field
whose value is its default None is left out, and a number that is not finite is null. Read back, null is nan, not known;
but as the upper end of an interval whose lower end is known it is inf. What a section says of a result is the same
before and after, because `diagnosis` passes on only what was read back.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from pathlib import Path
from typing import TypeVar

from isobatch.files import replace_file, unwritable
from isobatch.settings.parsing import SettingsByName, plain_json
from isobatch.statistics.bootstrap import Estimate

FORMAT = 11  # of the files; what another version measured is measured again
R = TypeVar("R")


def to_json(value: object) -> object:
    """A dataclass as a mapping, and so on down to plain numbers."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        shown = {field: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {f.name: to_json(v) for f, v in shown.items() if not (v is None and f.default is None)}
    if isinstance(value, dict):
        return {str(key): to_json(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return [to_json(each) for each in value]
    return plain_json(value)


def from_json(kind: type[R], value: object) -> R:
    """The inverse of `to_json` for a type with annotated fields."""
    made = _read(kind, value)
    assert isinstance(made, kind)
    return made


def _read(kind: object, value: object) -> object:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:  # something or None
        return None if value is None else _read(inner[0], value)
    if isinstance(value, list):
        kinds = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return tuple(_read(each, part) for each, part in zip(kinds, value, strict=True))
    if isinstance(value, dict) and origin is dict:
        return {inner[0](key): _read(inner[1], each) for key, each in value.items()}
    if isinstance(value, dict) and kind is Estimate:
        middle, low, high = (_number(value[name]) for name in ("value", "low", "high"))
        return Estimate(middle, low, math.inf if math.isnan(high) and not math.isnan(low) else high)
    if isinstance(value, dict) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        return kind(**{name: _read(hints[name], each) for name, each in value.items()})
    return _number(value) if kind is float else value


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def load(path: Path, key: SettingsByName, kind: type[R]) -> R | None:
    """What a file holds, if it was measured with the same settings."""
    try:
        content = json.loads(path.read_text())
        return from_json(kind, content["result"]) if content["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):  # it is not there, or damaged
        return None


def store(path: Path, key: SettingsByName, result: R) -> R:
    """Write a result, and return it as it will be read."""
    content = to_json(result)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps({"key": key, "result": content}, indent=1) + "\n")
    except OSError as error:
        raise unwritable(f"out={str(path.parent)!r}", error) from None
    return from_json(type(result), content)
