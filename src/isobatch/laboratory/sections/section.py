"""What a section of a diagnosis is: a typed result that is measured, kept, interpreted, shown in tables and drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from isobatch.laboratory.partial_results import PartialResults
from isobatch.laboratory.subject import Subject

Watch = Callable[[float], None]  # of the part that is done


@dataclass(frozen=True)
class TextTable:
    """A table as plain text: whoever prints it adds the layout."""

    title: str
    columns: list[str]
    rows: list[list[str]]


class Section(Protocol):
    """A frozen dataclass of what was measured (`results` says what its fields may be)."""

    @classmethod
    def measure(cls, subject: Subject, parts: PartialResults, watch: Watch) -> Self:
        """With `parts` for what takes long. Raises `NotMeasurableError` where this policy does not have it."""
        ...

    def interpret(self) -> Iterator[str]:
        """What it means, in sentences with the numbers behind them; the recommendation first."""
        ...

    def tables(self) -> list[TextTable]:
        """The numbers, with intervals."""
        ...

    def draw(self, path: Path, title: str) -> None:
        """One picture, written to `path`."""
        ...
