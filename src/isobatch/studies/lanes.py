"""Many cells trained at once: those of equal shape differ in their hyperparameters only, which are traced.

Each cell and seed is a lane of one vmapped program. Lanes do not touch each other, so one that diverges is noted, and
the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from isobatch.envs import env_of
from isobatch.settings.options import Options
from isobatch.studies.grid import Cell
from isobatch.studies.rows import Diverged, Outcome
from isobatch.training.chunks import MAX_ROWS, present
from isobatch.training.compiled_program import Program, initial_states, program_for, stack_hypers, use_cores
from isobatch.training.host_program import HostProgram
from isobatch.training.memory import check_phase_memory
from isobatch.training.metrics import columns_of, rows_of, table_of

LINES = 200  # of metrics that a run leaves
CHUNK_SECONDS = 0.5  # how often the loop comes up for air


def train_cells(
    cells: list[Cell], seeds: list[int], watch: Callable[[float], None] = lambda done: None
) -> list[Outcome]:
    """Train cells of one shape on the same seeds. `watch` gets the part that is done."""
    config, lanes = cells[0].config, len(cells) * len(seeds)
    use_cores(config=config)
    assert all(cell.config.static == config.static for cell in cells)
    if config.policy_iterations_per_phase:
        check_phase_memory(config, env_of(config), lanes)
    states, _ = initial_states(config, seeds)  # does not depend on hyperparameters
    states = jax.tree.map(lambda leaf: jnp.concatenate([leaf] * len(cells)), states)
    hypers = stack_hypers([cell.config.hypers for cell in cells for _ in seeds])
    total = config.num_iterations
    per_line = -(-total // LINES)
    program = program_for(config, states, hypers, per_line)
    states = program.begin(states, 0, lambda sentence: None, Options().env_timeout)
    tables, ends, rows = [], [0], 1
    while ends[-1] < total:
        rows = min(rows, MAX_ROWS, -(-(total - ends[-1]) // per_line))
        clock = time.perf_counter()
        chunk = program(states, hypers, ends[-1], rows)
        tables.append(np.asarray(chunk.table)[:, :rows])
        states = chunk.states
        ends += [min(ends[-1] + (row + 1) * per_line, total) for row in range(rows)]
        watch(ends[-1] / total)
        rows = max(1, min(2 * rows, int(rows * CHUNK_SECONDS / max(time.perf_counter() - clock, 1e-6))))
    program.end()
    # Parameters that are not finite spoil the next metrics, so they need a look at the end only: where chunks end
    # depends on time, which results must not.
    table, finite = np.concatenate(tables, axis=1), np.asarray(chunk.finite)
    own = [slice(i * len(seeds), (i + 1) * len(seeds)) for i in range(len(cells))]
    return [outcome(c, seeds, program, table[o], finite[o], ends[1:]) for c, o in zip(cells, own, strict=True)]


def outcome(
    cell: Cell, seeds: list[int], program: Program | HostProgram, table: np.ndarray, finite: np.ndarray, ends: list[int]
) -> Outcome:
    """Of one cell: `table` [seeds, lines, metrics], `finite` [seeds] whether the parameters are, at the end."""
    batch, per_line = cell.config.geometry.iteration_batch, ends[0]
    wrong = ~np.isfinite(table)
    bad = wrong.any(axis=2)
    bad[:, -1] |= ~finite
    diverged, limits = {}, {}
    for place, seed in enumerate(seeds):
        if bad[place].any():
            line = int(np.argmax(bad[place]))
            names = np.array(program.names)[wrong[place, line]]
            limits[seed] = ends[line]
            diverged[seed] = Diverged(ends[line] * batch, str(names[0]) if len(names) else "a network parameter")
    shown = np.array([present(program.names, cell.config, (end - 1) // per_line * per_line, end) for end in ends])
    lines = rows_of(program.names, np.where(wrong, 0.0, table), shown, ends, batch, seeds)
    lines = [line for line in lines if line[0] < limits.get(line[2], np.inf)]
    return Outcome(table_of(columns_of(program.names), lines), diverged)
