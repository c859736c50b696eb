"""The results of a study on disk.

| file                  | what                                                                                       |
|-----------------------|--------------------------------------------------------------------------------------------|
| `study.json`          | which study, preset, grid and version; the versions of all packages it was trained with    |
| `parts/PART.csv.gz`   | curves of the cells that were trained together                                             |
| `parts/PART.json`     | their rows, written last: a part is finished when this file is there                       |
| `rows.csv`            | one row per cell and seed, with every setting                                              |
| `curves.csv.gz`       | all curves: one line per cell, seed and point                                              |
| `timing.csv`          | the seconds of each part, and when it was finished; nothing else here depends on time      |

A part is the unit of work: its cells are lanes of one program, and the width of a program changes low-order bits. What
was interrupted is therefore done again as a whole, so that it ends with the same bits.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from isobatch.errors import RunError, UsageError
from isobatch.studies.grid import Cell, Grid, Row, digest
from isobatch.studies.rows import CURVES, Outcome, version
from isobatch.training.metrics import Table, format_number, table_of
from isobatch.training.run_directory import versions

ABOUT = "study.json"
LABORATORY = "laboratory.csv"


@dataclass(frozen=True)
class Results:
    """A directory that holds one study at one preset."""

    path: Path
    about: dict[str, Any]

    @classmethod
    def begin(cls, path: Path, name: str, preset: str, grid: Grid) -> Results:
        """A new directory, or one that was begun with the same grid by the same version."""
        identity = {"study": name, "preset": preset, "version": version(), "grid": grid.digest}
        about = identity | grid.sizes() | {"versions": {name: [value] for name, value in versions().items()}}
        if (path / ABOUT).is_file():
            was = cls.read(path).about
            differ = [
                f"{key} ({was.get(key)} there, {value} now)" for key, value in identity.items() if was.get(key) != value
            ]
            if differ:
                raise UsageError(f"out={str(path)!r} holds other results: {', '.join(differ)}; name another folder.")
        elif path.is_dir() and any(path.iterdir()):
            raise UsageError(f"out={str(path)!r} is not empty and holds no study: name another folder.")
        else:
            write(path / ABOUT, json.dumps(about, indent=1) + "\n")
        return cls.read(path)

    @classmethod
    def read(cls, path: Path) -> Results:
        try:
            about = json.loads((path / ABOUT).read_text())
        except FileNotFoundError:
            raise UsageError(f"dir={str(path)!r} holds no study: it has no {ABOUT}; check the path.") from None
        except (OSError, ValueError):
            raise UsageError(f"dir={str(path)!r} has a damaged {ABOUT}: name another folder.") from None
        return cls(path, about)

    def finished(self, cells: list[Cell]) -> bool:
        return self.part(cells, ".json").is_file()

    def save(self, cells: list[Cell], outcomes: list[Outcome], rows: list[Row], seconds: float) -> None:
        """The curves, then what they come to."""
        self.note_versions()
        curves = "".join(curve_lines(cell, outcome.table) for cell, outcome in zip(cells, outcomes, strict=True))
        write(self.part(cells, ".csv.gz"), gzip.compress(curves.encode(), mtime=0))
        write(
            self.part(cells, ".json"),
            json.dumps({"seconds": seconds, "finished": now(), "rows": rows}, indent=1) + "\n",
        )

    def note_versions(self) -> None:
        """A study that goes on with other versions of its packages says so."""
        about = self.read(self.path).about
        known = about.setdefault("versions", {})
        new = {name: value for name, value in versions().items() if value not in known.get(name, [])}
        if new:
            known.update({name: [*known.get(name, []), value] for name, value in new.items()})
            write(self.path / ABOUT, json.dumps(about, indent=1) + "\n")

    def part(self, cells: list[Cell], ending: str) -> Path:
        return self.path / "parts" / (digest([cell.name for cell in cells]) + ending)

    def collect(self, parts: list[list[Cell]]) -> None:
        """rows.csv, curves.csv.gz and timing.csv, made anew of the finished parts, in the order of the grid."""
        there = [cells for cells in parts if self.finished(cells)]
        contents = [json.loads(self.part(cells, ".json").read_text()) for cells in there]
        write(self.path / "rows.csv", csv_text([row for content in contents for row in content["rows"]]))
        lines = "".join(gzip.decompress(self.part(cells, ".csv.gz").read_bytes()).decode() for cells in there)
        text = ",".join(("cell", *CURVES)) + "\n" + lines
        write(self.path / "curves.csv.gz", gzip.compress(text.encode(), mtime=0))
        times = [
            {
                "part": self.part(cells, "").name,
                "cells": len(cells),
                "seconds": round(content["seconds"], 2),
                "finished": content.get("finished"),
            }
            for cells, content in zip(there, contents, strict=True)
        ]
        write(self.path / "timing.csv", csv_text(times))

    def rows(self) -> list[Row]:
        """rows.csv with its numbers as numbers."""
        return read_csv(self.path / "rows.csv")

    def times(self) -> list[Row]:
        """timing.csv, a row for each finished part."""
        return read_csv(self.path / "timing.csv")

    def measured(self) -> list[Row]:
        """laboratory.csv, where the study has one."""
        return read_csv(self.path / LABORATORY)

    def save_measured(self, rows: list[Row]) -> None:
        write(self.path / LABORATORY, csv_text(rows))

    def curves(self) -> dict[str, Table]:
        """The curves of each cell."""
        with gzip.open(self.path / "curves.csv.gz", "rt", newline="") as text:
            _, *lines = csv.reader(text)
        by_cell: dict[str, list[tuple]] = {}
        for name, *values in lines:
            by_cell.setdefault(name, []).append(tuple(float(v) if v else np.nan for v in values))
        return {name: table_of(CURVES, own) for name, own in by_cell.items()}


def curve_lines(cell: Cell, table: Table) -> str:
    columns = [table.get(name, np.full(len(table["seed"]), np.nan)) for name in CURVES]
    return "".join(f"{cell.name},{','.join(map(format_number, line))}\n" for line in zip(*columns, strict=True))


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


def typed(text: str) -> Any:
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


def write(path: Path, content: str | bytes) -> None:
    """Write a file all at once. A full disk stops a study with a sentence and leaves nothing half-written."""
    draft = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise RunError(
            f"{str(path)!r} cannot be written ({error.strerror}): make room, and run the same command again; what was "
            "finished is kept."
        ) from None
