"""The jobs of a study: a part of its grid that is trained, a policy that the laboratory measures.

They hold all that another process or machine has to know, and set it up alike: bits depend on the number of devices.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from isobatch.executors.interface import Watch
from isobatch.settings.config import Config
from isobatch.statistics.normalization import ReturnRange
from isobatch.studies.grid import Cell, Measurement, Row
from isobatch.studies.lanes import train_cells
from isobatch.studies.measurements import measure
from isobatch.studies.rows import Outcome, rows_of_cell
from isobatch.training.devices import use_cores


@dataclass(frozen=True)
class Devices:
    """What each process chooses before JAX starts: as a single process that began with the first part would."""

    first: Config
    cores: int

    def choose(self) -> None:
        use_cores(config=self.first, cores=self.cores)


@dataclass(frozen=True)
class PartResult:
    """Of the cells of a part, in their order."""

    outcomes: list[Outcome]
    rows: list[Row]
    seconds: float


@dataclass(frozen=True)
class TrainPart:
    """Cells that are lanes of one program."""

    cells: list[Cell]
    seeds: list[int]
    ranges: Mapping[str, ReturnRange]
    devices: Devices
    evaluated: bool

    def run(self, watch: Watch) -> PartResult:
        self.devices.choose()
        clock = time.perf_counter()
        outcomes = train_cells(self.cells, self.seeds, watch, self.evaluated)
        rows = [
            row
            for cell, outcome in zip(self.cells, outcomes, strict=True)
            for row in rows_of_cell(cell, outcome, self.seeds, self.ranges)
        ]
        return PartResult(outcomes, rows, time.perf_counter() - clock)


@dataclass(frozen=True)
class MeasurementResult:
    """Rows of laboratory.csv, and the files of the run that was measured if it is not where it belongs."""

    rows: list[Row]
    files: dict[str, bytes]  # by their path in the run's directory


@dataclass(frozen=True)
class MeasurePolicy:
    """A run and what the laboratory says about its policies."""

    measurement: Measurement
    path: Path | None  # of the run; None where files of this machine are out of reach
    devices: Devices

    def run(self, watch: Watch) -> MeasurementResult:
        self.devices.choose()
        if self.path is not None:
            return MeasurementResult(measure(self.measurement, self.path, watch), {})
        with tempfile.TemporaryDirectory() as temporary:
            path = Path(temporary) / "run"
            rows = measure(self.measurement, path, watch)
            files = {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
        return MeasurementResult(rows, files)
