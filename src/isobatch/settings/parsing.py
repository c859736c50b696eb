"""From what people write, in YAML, in a flag or in Python, to the type of a field, or one clear sentence; and back."""

from __future__ import annotations

import dataclasses
import json
import math
import operator
import types
import typing
from collections.abc import Iterable
from typing import Literal, SupportsIndex, TypeVar, overload

from isobatch.errors import UsageError, brief
from isobatch.settings.safe_yaml import read_yaml

LARGEST_INT = 1 << 1024  # whole numbers up to the largest float are told apart from texts and complained about by range
T = TypeVar("T")
SettingsByName = dict[str, object]  # by name, as YAML, flags or Python have them
TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class JsonMapping(str):
    """A mapping that can be hashed and compared: its JSON text, with sorted keys."""

    __slots__ = ()

    @classmethod
    def of(cls, value: object) -> JsonMapping:
        """From a mapping, or from its JSON or YAML text."""
        if isinstance(value, str):
            value = read_yaml(value)
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise TypeError
        return cls(json.dumps(value, sort_keys=True))

    @property
    def mapping(self) -> SettingsByName:
        return json.loads(self)


def plain_value(value: object) -> object:
    """A field's value as YAML and JSON have it."""
    if isinstance(value, JsonMapping):
        return value.mapping
    return list(value) if isinstance(value, tuple) else value


def inf_as_text(value: object) -> object:
    """Infinity as a word, which flags, YAML and Python read back as the number; JSON has no other way to say it."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def plain_json(value: object) -> object:
    """Results as JSON has them: dataclasses as mappings, arrays as lists; what is not a finite number is null, and what
    JSON has nothing for, as YAML's dates in settings of others, is text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain_json(dataclasses.asdict(value))
    if isinstance(value, dict):
        return {str(k): plain_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(v) for v in value]
    if hasattr(value, "tolist"):
        return plain_json(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


@overload
def parse_value(name: str, value: object, kind: type[T]) -> T: ...
@overload
def parse_value(name: str, value: object, kind: object) -> object: ...
def parse_value(name: str, value: object, kind: object) -> object:
    """`value` as `kind`: int, float, bool, str, Literal, tuple[int, ...] or one of these or None."""
    try:
        return _convert(value, kind)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{name}={brief(value)} is not valid: use {describe_kind(kind)}.") from None


def _convert(value: object, kind: object) -> object:
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None or value in ("none", "null"):
            return None
        return _convert(value, next(k for k in typing.get_args(kind) if k is not type(None)))
    if origin is Literal:
        if value not in typing.get_args(kind):
            raise ValueError
        return value
    if origin is tuple:
        parts = value.strip("[]() ").split(",") if isinstance(value, str) else value
        if not isinstance(parts, Iterable):
            raise TypeError
        return tuple(_convert(p.strip() if isinstance(p, str) else p, typing.get_args(kind)[0]) for p in parts)
    if kind is JsonMapping:
        return JsonMapping.of(value)
    if kind is bool:
        return _to_bool(value)
    if isinstance(value, bool):
        raise TypeError
    if kind is int:
        return _to_int(value)
    if kind is not str:
        return float(value)  # type: ignore[arg-type]  # TypeError is one of the complaints
    if not isinstance(value, str):
        raise TypeError
    if not value.isprintable():  # it is shown on terminals and written into files
        raise ValueError
    return value


def _to_bool(value: object) -> bool:
    word = str(value).strip().lower()
    if word not in TRUE + FALSE:
        raise ValueError
    return word in TRUE


def _to_int(value: object) -> int:
    """Whole numbers of any size, and "1e6", which is how people write a million and what YAML takes for a text."""
    if isinstance(value, SupportsIndex):
        number = operator.index(value)
        if abs(number) > LARGEST_INT:
            raise OverflowError
        return number
    if isinstance(value, str) and value.strip().lstrip("+-").isdigit():
        return int(value)
    rounded = float(value)  # type: ignore[arg-type]
    if rounded != int(rounded):
        raise ValueError
    return int(rounded)


def describe_kind(kind: object) -> str:
    """What to type for a field of this type, in words."""
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        return describe_kind(next(k for k in typing.get_args(kind) if k is not type(None))) + " or none"
    if origin is Literal:
        return "one of " + ", ".join(typing.get_args(kind))
    if origin is tuple:
        whole = typing.get_args(kind)[0] is int
        return f"a list of {'whole numbers, for example 64,64' if whole else 'numbers, for example 0.9,0.95'}"
    if kind is JsonMapping:
        return "a mapping, for example '{gravity: 3.7}'"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text of one line"}
    return next(text for known, text in words.items() if kind is known)
