"""Many cells trained at once: those of equal shape differ in their hyperparameters only, which are traced.

Each cell and seed is a lane of one vmapped program. Lanes do not touch each other, so one that diverges is noted, and
the others go on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import jax
import jax.numpy as jnp
import numpy as np

from isobatch.envs.registry import environment_of
from isobatch.errors import RunError
from isobatch.studies.grid import Cell
from isobatch.studies.rows import Diverged, Outcome
from isobatch.training.devices import use_cores
from isobatch.training.loop import advances, lines_of
from isobatch.training.memory import check_phase_memory
from isobatch.training.metrics import columns_of, table_of
from isobatch.training.program import Supervision
from isobatch.training.programs import initial_states, program_for, stack_hypers
from isobatch.training.sharding import layout_for

LINES_PER_RUN = 200  # of metrics


def train_cells(
    cells: list[Cell], seeds: list[int], watch: Callable[[float], None] = lambda done: None
) -> list[Outcome]:
    """Train cells of one shape on the same seeds. `watch` gets the part that is done."""
    config, lanes = cells[0].config, len(cells) * len(seeds)
    use_cores(config=config)
    assert all(cell.config.static == config.static for cell in cells)
    if config.policy_iterations_per_phase:
        check_phase_memory(config, environment_of(config), lanes)
    states = initial_states(config, seeds)  # does not depend on hyperparameters
    states = jax.tree.map(lambda leaf: jnp.concatenate([leaf] * len(cells)), states)
    layout = layout_for(config.num_shards, lanes)
    if layout is not None:
        states = layout.place(states)
    hypers = stack_hypers([cell.config.hypers for cell in cells for _ in seeds])
    log_interval = -(-config.num_iterations // LINES_PER_RUN)
    program = program_for(config, states, hypers, log_interval, layout)
    tables, ends = [], []
    with closing(advances(program, config, states, hypers, 0, log_interval, Supervision())) as steps:
        for step in steps:
            if step.fault is not None:
                raise RunError(step.fault)
            tables.append(step.table)
            ends += step.ends
            finite = step.finite
            watch(step.iteration / config.num_iterations)
    # Parameters that are not finite spoil the next metrics, so they need a look at the end only: where chunks end
    # depends on time, which results must not.
    table = np.concatenate(tables, axis=1)
    of_cell = [slice(i * len(seeds), (i + 1) * len(seeds)) for i in range(len(cells))]
    return [
        outcome(cell, seeds, program.names, table[lane], finite[lane], ends)
        for cell, lane in zip(cells, of_cell, strict=True)
    ]


def outcome(
    cell: Cell, seeds: list[int], names: tuple[str, ...], table: np.ndarray, finite: np.ndarray, ends: list[int]
) -> Outcome:
    """Of one cell: `table` [seeds, lines, metrics], `finite` [seeds] whether the parameters are, at the end."""
    batch = cell.config.geometry.iteration_batch
    wrong = ~np.isfinite(table)
    bad = wrong.any(axis=2)
    bad[:, -1] |= ~finite
    diverged, limits = {}, {}
    for place, seed in enumerate(seeds):
        if bad[place].any():
            line = int(np.argmax(bad[place]))
            bad_names = np.array(names)[wrong[place, line]]
            limits[seed] = ends[line]
            what = str(bad_names[0]) if len(bad_names) else "a network parameter"
            diverged[seed] = Diverged(ends[line] * batch, what)
    lines = lines_of(names, cell.config, np.where(wrong, 0.0, table), 0, ends, seeds)
    lines = [line for line in lines if line[0] < limits.get(line[2], np.inf)]
    return Outcome(table_of(columns_of(names), lines), diverged)
