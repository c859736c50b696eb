"""Results of studies and searches as files: tables, curves and JSON, each written all at once."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from isobatch.errors import RunError
from isobatch.files import DRAFT, replace_file
from isobatch.studies.grid import Row
from isobatch.studies.rows import CURVES
from isobatch.training.metrics import Table, format_number, table_of


def holds_files(path: Path) -> bool:
    """Whether anything is in a directory but drafts, which are all that a kill at its creation leaves."""
    return path.is_dir() and any(not each.name.endswith(DRAFT) for each in path.iterdir())


def curve_lines(name: object, table: Table) -> str:
    """The curves of a cell or a trial, a line for each point."""
    columns = [table.get(column, np.full(len(table["seed"]), np.nan)) for column in CURVES]
    return "".join(f"{name},{','.join(map(format_number, line))}\n" for line in zip(*columns, strict=True))


def read_curves(lines: Iterable[str]) -> dict[str, Table]:
    """The curves of each name."""
    points: dict[str, list[tuple]] = {}
    for name, *values in csv.reader(lines):
        points.setdefault(name, []).append(tuple(float(value) if value else np.nan for value in values))
    return {name: table_of(CURVES, each) for name, each in points.items()}


def csv_text(rows: list[Row]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def read_csv(path: Path) -> list[Row]:
    try:
        with path.open(newline="") as text:
            return [{name: typed(value) for name, value in row.items()} for row in csv.DictReader(text)]
    except FileNotFoundError:
        return []


def typed(text: str) -> object:
    """A value of rows.csv as it was before it was written."""
    if text in ("", "True", "False"):
        return {"": None, "True": True, "False": False}[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_json(path: Path, content: Mapping[str, object]) -> None:
    write(path, json.dumps(content, indent=1) + "\n")


def write(path: Path, content: str | bytes) -> None:
    """Write a file all at once. A full disk stops it with a sentence and leaves nothing half-written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)
    except OSError as error:
        raise RunError(
            f"{str(path)!r} cannot be written ({error.strerror}): make room, and run the same command again; what was "
            "finished is kept."
        ) from None
