"""Results of studies and searches as files: tables, curves and JSON, each written all at once, by one process."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from isobatch.errors import RunError, UsageError
from isobatch.files import DRAFT, replace_file, unwritable
from isobatch.studies.grid import Row
from isobatch.studies.rows import CURVES
from isobatch.training.lock import LOCK, locked
from isobatch.training.metrics import Table, format_number, table_of


@contextmanager
def one_writer(path: Path, info: str, what: str) -> Iterator[None]:
    """A directory for a study or a search (`what`), which `info` is the first file of, and in which nobody else writes.

    Nothing is written where something else is; a kill at the creation leaves a lock and drafts, which are nothing.
    """
    names = [each.name for each in path.iterdir()] if path.is_dir() else []
    if info not in names and any(name != LOCK and not name.endswith(DRAFT) for name in names):
        raise UsageError(f"out={str(path)!r} is not empty and holds no {what}: name another folder.")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(f"out={str(path)!r}", error) from None
    with locked(path, "out"):
        yield


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
