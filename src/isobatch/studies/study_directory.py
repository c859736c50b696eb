"""The directory of a study: its results on disk.

| file                  | what                                                                                       |
|-----------------------|--------------------------------------------------------------------------------------------|
| `study.json`          | which study, scale, grid and version; the versions of all packages it was trained with     |
| `parts/PART.csv.gz`   | curves of the cells that were trained together                                             |
| `parts/PART.json`     | their rows, written last: a part is finished when this file is there                       |
| `rows.csv`            | one row per cell and seed, with every setting                                              |
| `curves.csv.gz`       | all curves: one line per cell, seed and point                                              |
| `laboratory/ENV/`     | a run whose policies the laboratory measures, where the study has one                      |
| `laboratory/ENV.json` | what it measured, written last; all of them together are `laboratory.csv`                  |
| `timing.csv`          | the seconds of each part, and when it was finished; nothing else here depends on time      |
| `run.lock`            | who writes here, while somebody does                                                       |

A part is the unit of work: its cells are lanes of one program, and the width of a program changes low-order bits. What
was interrupted is therefore done again as a whole, so that it ends with the same bits. Where a grid has grown since a
directory was begun, the added cells are parts of their own, and what was finished before stays as it is.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from isobatch.errors import UsageError
from isobatch.files import DRAFT
from isobatch.settings.versions import versions
from isobatch.studies.grid import Cell, Grid, GridSizes, Row, digest
from isobatch.studies.result_files import (
    csv_text,
    curve_lines,
    now,
    read_csv,
    read_curves,
    write,
    write_json,
)
from isobatch.studies.rows import CURVES, Outcome, version
from isobatch.training.metrics import Table

INFO = "study.json"
LABORATORY = "laboratory.csv"


class StudyInfo(GridSizes):
    """The contents of study.json."""

    study: str
    scale: str
    version: str
    grid: str  # digest of everything that is trained
    stages: dict[str, int]  # cell -> how often the grid had grown when it was added; in the order of the grid
    versions: dict[str, list[str]]  # of all packages that it was trained with


@dataclass(frozen=True)
class StudyDirectory:
    """A directory that holds one study at one scale."""

    path: Path
    info: StudyInfo

    @classmethod
    def begin(cls, path: Path, name: str, scale: str, grid: Grid) -> StudyDirectory:
        """A new directory, or one that was begun by the same version with the same grid, or with a part of it."""
        identity = {"study": name, "scale": scale, "version": version(), "grid": grid.digest}
        sizes = grid.sizes() | {"stages": {cell.name: 0 for cell in grid.cells}}
        if (path / INFO).is_file():
            before = cls.read(path).info
            other = {key: value for key, value in identity.items() if before.get(key) != value}
            if list(other) == ["grid"] and has_grown(before, grid):
                stages = grown(before["stages"], grid)
                write_json(path / INFO, dict(before) | identity | sizes | {"stages": stages})
                other = {}
            differ = [f"{key} ({before.get(key)} there, {value} now)" for key, value in other.items()]
            if differ:
                raise UsageError(f"out={str(path)!r} holds other results: {', '.join(differ)}; name another folder.")
        else:
            first_versions = {"versions": {package: [version] for package, version in versions().items()}}
            write_json(path / INFO, identity | sizes | first_versions)
        return cls.read(path)

    @classmethod
    def read(cls, path: Path) -> StudyDirectory:
        try:
            info = json.loads((path / INFO).read_text())
            if not isinstance(info, dict):
                raise ValueError("no mapping")
        except FileNotFoundError:
            raise UsageError(f"dir={str(path)!r} holds no study: it has no {INFO}; check the path.") from None
        except (OSError, ValueError, RecursionError):
            raise UsageError(f"dir={str(path)!r} has a damaged {INFO}: name another folder.") from None
        info = {"stages": {}, "evaluated": False} | info  # which directories of before do not have
        return cls(path, cast(StudyInfo, info))

    def finished(self, cells: list[Cell]) -> bool:
        return self.part(cells, ".json").is_file()

    def save(self, cells: list[Cell], outcomes: list[Outcome], rows: list[Row], seconds: float) -> None:
        """The curves, then the rows that are computed from them."""
        self.note_versions()
        curves = "".join(curve_lines(cell.name, outcome.table) for cell, outcome in zip(cells, outcomes, strict=True))
        write(self.part(cells, ".csv.gz"), gzip.compress(curves.encode(), mtime=0))
        write_json(self.part(cells, ".json"), {"seconds": seconds, "finished": now(), "rows": rows})

    def note_versions(self) -> None:
        """A study that goes on with other versions of its packages says so."""
        info = self.read(self.path).info
        known = info["versions"]
        new = {name: value for name, value in versions().items() if value not in known.get(name, [])}
        if new:
            known.update({name: [*known.get(name, []), value] for name, value in new.items()})
            write_json(self.path / INFO, info)

    def stages(self, grid: Grid) -> list[Grid]:
        """The grid that the directory was begun with, and what was added each time that it grew."""
        of = self.info["stages"]
        return [
            dataclasses.replace(grid, cells=[cell for cell in grid.cells if of.get(cell.name, 0) == stage])
            for stage in sorted({0, *of.values()})
        ]

    def part(self, cells: list[Cell], ending: str) -> Path:
        return self.path / "parts" / (digest([cell.name for cell in cells]) + ending)

    def collect(self, parts: list[list[Cell]]) -> None:
        """curves.csv.gz, rows.csv and timing.csv, made anew of the finished parts; rows in the order of the grid.

        In this order: who reads the rows and then the curves, at any time, finds those of all its rows.
        """
        finished = [cells for cells in parts if self.finished(cells)]
        contents = [json.loads(self.part(cells, ".json").read_text()) for cells in finished]
        lines = "".join(gzip.decompress(self.part(cells, ".csv.gz").read_bytes()).decode() for cells in finished)
        text = ",".join(("cell", *CURVES)) + "\n" + lines
        write(self.path / "curves.csv.gz", gzip.compress(text.encode(), mtime=0))
        place = {name: index for index, name in enumerate(self.info["stages"])}
        rows = [row for content in contents for row in content["rows"]]
        write(self.path / "rows.csv", csv_text(sorted(rows, key=lambda row: place.get(row["cell"], 0))))
        times = []
        for cells, content in zip(finished, contents, strict=True):
            part = {"part": self.part(cells, "").name, "cells": len(cells)}
            times.append(part | {"seconds": round(content["seconds"], 2), "finished": content.get("finished")})
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

    def laboratory_run(self, env: str) -> Path:
        """The run on this environment whose policies the laboratory measures."""
        return self.path / "laboratory" / env

    def measured_on(self, env: str) -> list[Row] | None:
        """What the laboratory measured on an environment, if it has."""
        with suppress(FileNotFoundError):
            rows: list[Row] = json.loads(self._measured_file(env).read_text())["rows"]
            return rows
        return None

    def save_measured(self, env: str, rows: list[Row], files: Mapping[str, bytes]) -> None:
        """The files of a run that was made elsewhere, all at once, then what was measured on it."""
        run = self.laboratory_run(env)
        if files:
            draft = run.with_name(run.name + DRAFT)
            for place in (draft, run):
                shutil.rmtree(place, ignore_errors=True)
            for name, content in files.items():
                write(draft / name, content)
            draft.rename(run)
        write_json(self._measured_file(env), {"rows": rows})

    def collect_measured(self, envs: list[str]) -> None:
        """laboratory.csv, of all environments."""
        if envs:
            write(self.path / LABORATORY, csv_text([row for env in envs for row in self.measured_on(env) or []]))

    def _measured_file(self, env: str) -> Path:
        return self.laboratory_run(env).with_name(f"{self.laboratory_run(env).name}.json")

    def curves(self) -> dict[str, Table]:
        """The curves of each cell."""
        with gzip.open(self.path / "curves.csv.gz", "rt", newline="") as text:
            next(text)
            return read_curves(text)


def has_grown(before: StudyInfo, grid: Grid) -> bool:
    """Whether a grid has all the cells of the one before, on the same seeds."""
    cells = before["stages"].keys()
    alike = before["seeds"] == grid.num_seeds and before["evaluated"] == grid.evaluated
    return alike and bool(cells) and cells < {cell.name for cell in grid.cells}


def grown(before: dict[str, int], grid: Grid) -> dict[str, int]:
    """The stage of each cell, the new ones in a stage of their own."""
    newest = 1 + max(before.values())
    return {cell.name: before.get(cell.name, newest) for cell in grid.cells}
