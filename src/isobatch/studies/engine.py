"""Run a study: cells of equal shape together, finished ones never again, in an order that does not depend on anything."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from isobatch.studies.grid import Cell, Study
from isobatch.studies.lanes import train_cells
from isobatch.studies.store import Results

LANES = 64  # cells x seeds that are trained at once
Watch = Callable[[str, float], None]


def run_study(study: Study, preset: str, out: Path, watch: Watch = lambda what, done: None) -> Results:
    """Train what is not finished yet. A kill loses at most the group that was being trained."""
    grid = study.grid(preset)
    results = Results.open(out, study, preset, grid)
    seeds = list(range(grid.num_seeds))
    total = sum(cell.config.env_steps for cell in grid.cells) * grid.num_seeds
    pending = [cell for cell in grid.cells if not results.finished(cell)]
    done = total - sum(cell.config.env_steps for cell in pending) * grid.num_seeds
    for group in groups(pending, grid.num_seeds):
        name = ", ".join(sorted({str(cell.factors["env"]) for cell in group}))
        label = f"{study.name}: {name}, {len(group)} cells x {grid.num_seeds} seeds"
        watch(label, done / total)
        begin, before = time.perf_counter(), done

        def progress(steps: int, label: str = label, before: int = before) -> None:
            watch(label, (before + steps) / total)

        outcomes = train_cells(group, seeds, progress)
        seconds = (time.perf_counter() - begin) / len(group)
        for cell, outcome in zip(group, outcomes, strict=True):
            results.save(cell, outcome, seeds, seconds)
        done += sum(cell.config.env_steps for cell in group) * grid.num_seeds
        results.write_rows()
    watch(f"{study.name}: done", 1.0)
    return results


def groups(cells: list[Cell], num_seeds: int) -> list[list[Cell]]:
    """Cells that share a compiled program, at most LANES lanes of them at a time."""
    by_shape: dict[object, list[Cell]] = {}
    for cell in cells:
        by_shape.setdefault(cell.config.static, []).append(cell)
    size = max(1, LANES // num_seeds)
    return [same[i : i + size] for same in by_shape.values() for i in range(0, len(same), size)]
