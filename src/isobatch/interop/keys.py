"""One setting of another library and what it says in our terms, and nested mappings addressed by dotted names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from isobatch.errors import UsageError
from isobatch.settings.config import Config
from isobatch.settings.geometry import divisors
from isobatch.settings.parsing import parse_value

REQUIRED = object()
"""Default of a setting that has none."""
OUTSIDE = object()
"""Default of a setting that is not the library's own to make: it has to be given beside its file."""

UNNAMED = "unnamed"
"""Environment of settings that do not say theirs."""


@dataclass(frozen=True)
class Known:
    """What is known while a setting is read or written."""

    settings: Mapping[str, Any]
    """Ours, by field name."""
    raw: Callable[[str], Any]
    """Theirs, by the first of a setting's names; the default where it is not given."""


@dataclass(frozen=True)
class Key:
    """A setting of theirs. `read` and `write` are each other's inverse as far as the library can say it."""

    names: tuple[str, ...]
    """Today's name first, then older ones; dots for nesting."""
    fields: tuple[str, ...]
    """Fields of ours that it decides."""
    default: Any
    """What the library takes when it is not given."""
    read: Callable[[Any, Known], dict[str, Any]]
    write: Callable[[Config, Any, Known], Any]
    """Their value from our config and from what stood there before."""
    rest: Callable[[Any], str] = lambda value: ""
    """What a value says beyond our fields, in a word; it is kept."""

    def says(self, value: Any, config: Config, known: Known) -> bool:
        """Whether this spelling of the setting means what `config` says."""
        try:
            read = self.read(value, known)
        except UsageError:
            return False
        flat = config.to_dict()
        return all(flat[name] == meaning for name, meaning in read.items())


def whole(names: str, field: str, default: Any) -> Key:
    """A size that is called otherwise."""
    first = names.split()[0]
    return Key(
        tuple(names.split()),
        (field,),
        default,
        lambda value, known: {field: parse_value(first, value, int)},
        lambda config, old, known: config.to_dict()[field],
    )


def number(names: str, field: str, default: Any, times: float = 1.0) -> Key:
    """A hyperparameter that is called otherwise; ours is `times` theirs."""
    first = names.split()[0]
    return Key(
        tuple(names.split()),
        (field,),
        default,
        lambda value, known: {field: parse_value(first, value, float) * times},
        lambda config, old, known: getattr(config.hypers, field) / times,
    )


def choice(names: str, field: str, default: bool, on: Any, off: Any) -> Key:
    """A switch of theirs that chooses between two values of ours.

    A third value of ours is written as `on`, which is the nearer one: advantages that are normalized over other samples
    are not advantages that are not normalized.
    """
    first = names.split()[0]
    return Key(
        tuple(names.split()),
        (field,),
        default,
        lambda value, known: {field: on if parse_value(first, value, bool) else off},
        lambda config, old, known: config.to_dict()[field] != off,
    )


def environment(name: str, default: str | None) -> Key:
    """The name of the environment, as Gymnasium has it."""
    return Key(
        (name,),
        ("env",),
        default,
        lambda value, known: {"env": str(value)},
        lambda config, old, known: old if config.env == UNNAMED else bare_name(config.env),
    )


def bare_name(env: str) -> str:
    """The name of an environment without the backend that we put before it."""
    return env.removeprefix("gymnasium/").removeprefix("envpool/")


def minibatch_count(name: str, size: int, iteration_batch: int, where: str) -> int:
    """How many minibatches of `size` samples an iteration has; libraries that allow a rest are asked not to."""
    if size < 1 or iteration_batch % size:
        near = sorted(sorted(divisors(iteration_batch), key=lambda d: abs(d - size))[:2])
        raise UsageError(
            f"{name}={size} does not evenly divide {where} = {iteration_batch}, so its last minibatch would be "
            f"smaller than the others; use {' or '.join(map(str, near))}."
        )
    return iteration_batch // size


def find(mapping: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    """The first of these dotted names that the mapping holds."""
    return next((name for name in names if _holder(mapping, name) is not None), None)


def get(mapping: Mapping[str, Any], name: str) -> Any:
    holder = _holder(mapping, name)
    assert holder is not None
    return holder[name.rpartition(".")[2]]


def put(mapping: dict[str, Any], name: str, value: Any) -> None:
    """Set a dotted name, making the mappings on the way."""
    *way, last = name.split(".")
    for part in way:
        mapping = mapping.setdefault(part, {})
    mapping[last] = value


def leaves(mapping: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The dotted names of everything that is not a mapping itself."""
    for name, value in mapping.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _holder(mapping: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    *way, last = name.split(".")
    for part in way:
        inner = mapping.get(part)
        if not isinstance(inner, Mapping):
            return None
        mapping = inner
    return mapping if last in mapping else None
