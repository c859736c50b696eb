"""Many cells trained at once: those of equal shape differ in their hyperparameters only, which are traced.

Each cell and seed is a lane of one vmapped program. Lanes do not touch each other, so one that diverges is noted, and the
others go on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from isobatch.metrics import rows_of, table_of, Table, columns_of
from isobatch.program import MAX_ROWS, initial_states, program_for, stack, stack_hypers
from isobatch.studies.grid import Cell

LINES = 200  # of metrics that a run leaves


@dataclass(frozen=True)
class Diverged:
    env_steps: int
    metric: str


@dataclass(frozen=True)
class Outcome:
    """What training a cell came to."""

    table: Table  # as metrics.csv has it, of all seeds
    diverged: dict[int, Diverged]  # by seed


def train_cells(
    cells: list[Cell], seeds: list[int], watch: Callable[[int], None] = lambda env_steps: None
) -> list[Outcome]:
    """Train cells of one shape on the same seeds. `watch` gets the environment steps of all lanes so far."""
    config = cells[0].config
    assert all(cell.config.static == config.static for cell in cells)
    lanes = [(cell, seed) for cell in cells for seed in seeds]
    states = stack([_one(initial_states(cell.config, [seed])[0]) for cell, seed in lanes])
    hypers = stack_hypers([cell.config.hypers for cell, _ in lanes])
    total, batch = config.num_iterations, config.geometry.iteration_batch
    per_line = max(1, -(-total // LINES))
    program = program_for(config, states, hypers, per_line)
    tables: list[np.ndarray] = []
    ends: list[int] = []
    bad = np.full(len(lanes), total + 1)  # iteration at whose line a lane was no longer finite
    names = ["" for _ in lanes]
    iteration = 0
    while iteration < total:
        rows = min(MAX_ROWS, max(1, LINES // 20), -(-(total - iteration) // per_line))
        chunk = program(states, hypers, iteration, rows)
        table = np.asarray(chunk.table)[:, :rows]
        new_ends = [min(iteration + (r + 1) * per_line, total) for r in range(rows)]
        for lane in np.flatnonzero(bad > total):
            wrong = ~np.isfinite(table[lane])  # [rows, metrics]
            if wrong.any() or not np.asarray(chunk.finite)[lane]:
                row = int(np.argmax(wrong.any(axis=1))) if wrong.any() else rows - 1
                bad[lane] = new_ends[row]
                names[lane] = program.names[int(np.argmax(wrong[row]))] if wrong.any() else "a network parameter"
        tables.append(table)
        ends += new_ends
        states, iteration = chunk.states, new_ends[-1]
        watch(iteration * batch * len(lanes))
    whole = np.concatenate(tables, axis=1)
    present = np.array([program.present(config, (end - 1) // per_line * per_line, end) for end in ends])
    outcomes = []
    for place in range(len(cells)):
        own = slice(place * len(seeds), (place + 1) * len(seeds))
        lines = rows_of(program.names, whole[own], present.reshape(len(ends), -1), ends, batch, seeds)
        limits = dict(zip(seeds, bad[own], strict=True))
        lines = [line for line in lines if line[0] < limits[line[2]]]
        diverged = {
            seed: Diverged(int(bad[i]) * batch, names[i])
            for i, seed in zip(range(own.start, own.stop), seeds, strict=True)
            if bad[i] <= total
        }
        outcomes.append(Outcome(table_of(columns_of(program.names), lines), diverged))
    return outcomes


def _one(states: object) -> object:
    import jax

    return jax.tree.map(lambda leaf: leaf[0], states)
