"""Many cells trained at once: those of equal shape differ in their hyperparameters only, which are traced.

Each cell and seed is a lane of one vmapped program. Lanes do not touch each other, so one that diverges is noted, and
the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from isobatch.envs.registry import environment_of
from isobatch.learning.state import TrainState
from isobatch.settings.config import Config
from isobatch.studies.grid import Cell
from isobatch.studies.policy_returns import PolicyReturns
from isobatch.studies.rows import Diverged, Outcome, log_interval_of
from isobatch.training.devices import use_cores
from isobatch.training.iterations import TrainedIterations, Watch, run_iterations
from isobatch.training.loop import lines_of
from isobatch.training.memory import check_phase_memory
from isobatch.training.metrics import columns_of, table_of
from isobatch.training.programs import initial_states, program_for, stack_hypers
from isobatch.training.sharding import layout_for


class TrainedLanes(NamedTuple):
    """Some iterations of all lanes, and what their program is."""

    trained: TrainedIterations
    names: tuple[str, ...]  # of the metrics
    compile_seconds: float


def nothing(iteration: int, states: TrainState) -> None:
    """Nobody looks at the states on the way."""


def train_cells(
    cells: list[Cell], seeds: list[int], watch: Callable[[float], None] = lambda done: None, evaluated: bool = False
) -> list[Outcome]:
    """Train cells of one shape on the same seeds. `watch` gets the part that is done.

    Returns are those of training, or, if the policies are `evaluated`, of episodes of their own.
    """
    if evaluated:
        return train_and_play(cells, seeds, watch)[1]
    return trained_outcomes(cells, seeds, states_of(cells, seeds), watch)


def train_and_play(
    cells: list[Cell], seeds: list[int], watch: Callable[[float], None] = lambda done: None
) -> tuple[list[Outcome], list[Outcome]]:
    """The same runs with the returns of training, and with those of episodes that their policies play."""
    states, config = states_of(cells, seeds), cells[0].config
    returns = PolicyReturns(config, states, log_interval_of(config))
    training = trained_outcomes(cells, seeds, states, watch, returns.note, returns.pauses)
    played = [
        Outcome(returns.curve(lanes, seeds, each.table, each.diverged), each.diverged)
        for lanes, each in zip(lanes_of(cells, seeds), training, strict=True)
    ]
    return training, played


def states_of(cells: list[Cell], seeds: list[int]) -> TrainState:
    """Of all lanes, before the first iteration: they do not depend on hyperparameters."""
    config = cells[0].config
    use_cores(config=config)
    states = initial_states(config, seeds)
    return jax.tree.map(lambda leaf: jnp.concatenate([leaf] * len(cells)), states)


def lanes_of(cells: list[Cell], seeds: list[int]) -> list[slice]:
    """Of each cell."""
    return [slice(i * len(seeds), (i + 1) * len(seeds)) for i in range(len(cells))]


def trained_outcomes(
    cells: list[Cell],
    seeds: list[int],
    states: TrainState,
    watch: Callable[[float], None],
    also: Watch = nothing,
    pauses: Sequence[int] = (),
) -> list[Outcome]:
    configs = [cell.config for cell in cells]
    done, names, _ = train_iterations(configs, states, 0, configs[0].num_iterations, watch, also, pauses)
    return [
        outcome(config, seeds, names, done.table[lanes], done.finite[lanes], done.ends)
        for config, lanes in zip(configs, lanes_of(cells, seeds), strict=True)
    ]


def train_iterations(
    configs: list[Config],
    states: TrainState,
    first: int,
    last: int,
    watch: Callable[[float], None] = lambda done: None,
    also: Watch = nothing,
    pauses: Sequence[int] = (),
) -> TrainedLanes:
    """Train configs of one shape from iteration `first` to `last`, a multiple of `log_interval_of` or the end.

    `states` has the lanes of the first config, then those of the second, and so on, equally many of each. `also` gets
    to see them, at each of the `pauses`, multiples too.
    """
    config, lanes = configs[0], states.iteration.shape[0]
    assert all(other.static == config.static for other in configs)
    if config.policy_iterations_per_phase:
        check_phase_memory(config, environment_of(config), lanes)
    layout = layout_for(config.num_shards, lanes)
    if layout is not None:
        states = layout.place(states)
    hypers = stack_hypers([each.hypers for each in configs for _ in range(lanes // len(configs))])
    log_interval, clock = log_interval_of(config), time.perf_counter()
    program = program_for(config, states, hypers, log_interval, layout)
    compile_seconds = time.perf_counter() - clock

    def note(iteration: int, states: TrainState) -> None:
        watch((iteration - first) / (last - first))
        also(iteration, states)

    done = run_iterations(program, config, states, hypers, first, last, log_interval, note, pauses)
    return TrainedLanes(done, program.names, compile_seconds)


def outcome(
    config: Config, seeds: list[int], names: tuple[str, ...], table: np.ndarray, finite: np.ndarray, ends: list[int]
) -> Outcome:
    """Of one config: `table` [seeds, lines, metrics], `finite` [seeds] whether the parameters are, at the end."""
    batch = config.geometry.iteration_batch
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
    lines = lines_of(names, config, np.where(wrong, 0.0, table), 0, ends, seeds)
    lines = [line for line in lines if line[0] < limits.get(line[2], np.inf)]
    return Outcome(table_of(columns_of(names), lines), diverged)
