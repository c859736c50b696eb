"""Run a study: cells of equal shape together, finished ones never again, in an order that depends on nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from isobatch.envs.registry import environment_of, host_environment_of
from isobatch.settings.config import Config
from isobatch.studies.grid import Cell, Grid, Study, check_preset
from isobatch.studies.lanes import train_cells
from isobatch.studies.measurements import measure
from isobatch.studies.rows import rows_of_cell
from isobatch.studies.store import Results

LANES = 64  # cells x seeds that are trained at once
LABORATORY_SHARE = 0.2  # of the time, roughly, where there is one
Watch = Callable[[str, float], None]


def run_study(
    study: Study,
    preset: str,
    out: Path,
    watch: Watch = lambda what, done: None,
) -> Results:
    """Train what is not finished yet. A kill loses at most the part that was being trained.

    `watch` gets what is being done and the part of all that is done.
    """
    check_preset(preset)
    grid = study.grid(preset)
    environment_of(grid.cells[0].config)  # says what is missing before anything is written
    results = Results.begin(out, study.name, preset, grid)
    parts = parts_of(grid)
    total = sum(work(cells, grid) for cells in parts) / (1 - LABORATORY_SHARE if study.laboratory(preset) else 1)
    done = 0.0
    for place, cells in enumerate(parts, 1):
        share = work(cells, grid) / total
        if not results.finished(cells):
            label = f"part {place} of {len(parts)}: {part_words(cells)}"
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
            results.save(cells, outcomes, rows, time.perf_counter() - clock)
            results.collect(parts)
        done += share
    results.collect(parts)
    measure_policies(study, preset, results, watch)
    watch("done", 1.0)
    return results


def measure_policies(study: Study, preset: str, results: Results, watch: Watch) -> None:
    """What the laboratory adds, if it has not been measured yet."""
    wanted = study.laboratory(preset)
    if not wanted or results.measured():
        return
    rows = []
    for place, measurement in enumerate(wanted):
        env = measurement.config.env

        def inner(part: float, label: str = f"laboratory: {env}", place: int = place) -> None:
            watch(label, 1 - LABORATORY_SHARE * (1 - (place + part) / len(wanted)))

        rows += measure(measurement, results.path / "laboratory" / env, inner)
    results.save_measured(rows)


def parts_of(grid: Grid) -> list[list[Cell]]:
    """Cells that share a compiled program, at most LANES lanes of them at a time, in parts as equal as can be."""
    by_shape: dict[Config, list[Cell]] = {}
    for cell in grid.cells:
        by_shape.setdefault(cell.config.static, []).append(cell)
    parts = []
    for same in by_shape.values():
        lanes = 1 if host_environment_of(same[0].config) else LANES  # one setting at a time has environments enough
        count = min(-(-len(same) * grid.num_seeds // lanes), len(same))
        size = -(-len(same) // count)
        parts += [same[i : i + size] for i in range(0, len(same), size)]
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


def part_words(cells: list[Cell]) -> str:
    config = cells[0].config
    return f"{config.algo} on {config.env}, {config.num_envs} x {config.num_steps}, {len(cells)} setting(s)"
