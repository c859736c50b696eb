"""Run a study: cells of equal shape together, finished ones never again, always in the same order."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from isobatch.envs.registry import environment_of, host_environment_of
from isobatch.settings.config import Config
from isobatch.studies.claims import study_of
from isobatch.studies.grid import Cell, Grid, Study, check_scale
from isobatch.studies.lanes import train_cells
from isobatch.studies.measurements import measure
from isobatch.studies.rows import rows_of_cell
from isobatch.studies.study_directory import StudyDirectory

LANES = 64  # cells x seeds that are trained at once
LABORATORY_SHARE = 0.2  # of the time, roughly, where there is one
Watch = Callable[[str, float], None]


def run_study(
    study: Study | str,
    scale: str,
    out: str | Path,
    watch: Watch = lambda label, done: None,
) -> StudyDirectory:
    """Train what is not finished yet of an experiment about a claim. A kill loses at most the part in training.

    Args:
        study: its name (`study_names`).
        scale: quick, laptop or paper.
        out: directory of the study; one that was begun goes on.
        watch: gets a label of the current work and the share of all work that is done.

    Returns:
        The directory, with `rows()`, one for each setting and seed, and `curves()`.

    Example:
        >>> import isobatch as ib
        >>> ib.run_study("stalenes", scale="quick", out="runs/staleness")
        Traceback (most recent call last):
        isobatch.errors.UsageError: study 'stalenes' is unknown; did you mean staleness?
    """
    study = study_of(study) if isinstance(study, str) else study
    check_scale(scale)
    grid = study.grid(scale)
    environment_of(grid.cells[0].config)  # says what is missing before anything is written
    directory = StudyDirectory.begin(Path(out), study.name, scale, grid)
    parts = parts_of(grid)
    total = sum(work(cells, grid) for cells in parts) / (1 - LABORATORY_SHARE if study.laboratory(scale) else 1)
    done = 0.0
    for index, cells in enumerate(parts, 1):
        share = work(cells, grid) / total
        if not directory.finished(cells):
            label = f"part {index} of {len(parts)}: {part_label(cells)}"
            watch(label, done)
            clock = time.perf_counter()

            def inner(part: float, label: str = label, before: float = done, share: float = share) -> None:
                watch(label, before + share * part)

            outcomes = train_cells(cells, grid.seeds, inner)
            rows = [
                row
                for cell, outcome in zip(cells, outcomes, strict=True)
                for row in rows_of_cell(cell, outcome, grid.seeds, study.ranges)
            ]
            directory.save(cells, outcomes, rows, time.perf_counter() - clock)
            directory.collect(parts)
        done += share
    directory.collect(parts)
    measure_policies(study, scale, directory, watch)
    watch("done", 1.0)
    return directory


def measure_policies(study: Study, scale: str, directory: StudyDirectory, watch: Watch) -> None:
    """What the laboratory adds, if it has not been measured yet."""
    measurements = study.laboratory(scale)
    if not measurements or directory.measured():
        return
    rows = []
    for index, measurement in enumerate(measurements):
        env = measurement.config.env

        def inner(part: float, label: str = f"laboratory: {env}", index: int = index) -> None:
            watch(label, 1 - LABORATORY_SHARE * (1 - (index + part) / len(measurements)))

        rows += measure(measurement, directory.path / "laboratory" / env, inner)
    directory.save_measured(rows)


def parts_of(grid: Grid) -> list[list[Cell]]:
    """Cells that share a compiled program, at most LANES lanes of them at a time, in parts of nearly equal size."""
    by_shape: dict[Config, list[Cell]] = {}
    for cell in grid.cells:
        by_shape.setdefault(cell.config.static, []).append(cell)
    parts = []
    for cells in by_shape.values():
        lanes = 1 if host_environment_of(cells[0].config) else LANES  # one setting at a time has environments enough
        count = min(-(-len(cells) * grid.num_seeds // lanes), len(cells))
        size = -(-len(cells) // count)
        parts += [cells[i : i + size] for i in range(0, len(cells), size)]
    return parts


def work(cells: list[Cell], grid: Grid) -> float:
    """About how long a part takes, for the time left: a step costs as much as a sample of a gradient step, which
    itself costs as much as some 32 samples."""
    return (
        sum(
            cell.config.env_steps * (1 + cell.config.update_epochs * (1 + 32 / cell.config.geometry.optimization_batch))
            for cell in cells
        )
        * grid.num_seeds
    )


def part_label(cells: list[Cell]) -> str:
    config = cells[0].config
    return f"{config.algo} on {config.env}, {config.num_envs} x {config.num_steps}, {len(cells)} setting(s)"
