"""The two ways a command can end badly. Both carry one sentence meant for a person."""

from __future__ import annotations

import difflib
import functools
import inspect
import reprlib
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")


class UsageError(ValueError):
    """The request is wrong: the message names the field, the value and the fix (exit code 2)."""


class RunError(RuntimeError):
    """The request was fine and the run could not go on (exit code 1)."""


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


class _Brief(reprlib.Repr):
    """`repr` with an end, whatever the value: long texts and deep, wide or circular structures are cut short."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 100
        self.maxlong = 40

    def repr_int(self, x: int, level: int) -> str:
        return super().repr_int(x, level) if x.bit_length() < 1000 else f"a number of {x.bit_length()} bits"


brief = _Brief().repr


def near_matches(word: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """`"; did you mean A, B?"` for close spellings, else `""`, ready to end a sentence with."""
    lowered = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), lowered, n=3, cutoff=cutoff)
    return f"; did you mean {', '.join(lowered[f] for f in near)}?" if near else ""


def unknown_name(what: str, name: str, known: Iterable[str]) -> UsageError:
    """The complaint about a name that is none of the known ones; `what` says what it should be the name of."""
    known = list(known)
    return UsageError(f"{what} is unknown{near_matches(name, known) or '; use ' + ', '.join(known) + '.'}")


def check_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """The same function; an argument that it does not have is a UsageError with the nearest names, as a flag's is."""
    known = [name for name in inspect.signature(function).parameters if name != "self"]

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in known:
                raise UsageError(f"unknown argument {name!r}{near_matches(name, known) or '; use ' + ', '.join(known)}")
        return function(*args, **kwargs)

    return checked


def check_constructor(kind: type[C]) -> type[C]:
    """The same class, whose constructor complains in the same way."""
    kind.__init__ = check_keywords(kind.__init__)  # type: ignore[method-assign]
    return kind
