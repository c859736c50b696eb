"""The one loop over chunks, for a training run and for the cells of a study."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

import numpy as np

from isobatch.learning.state import TrainState
from isobatch.settings.config import Config, Hypers
from isobatch.training.metrics import rows_of
from isobatch.training.program import MAX_ROWS, Program, StoppedError, Supervision, present, row_ends

CHUNK_SECONDS = 0.5  # how often the loop comes up for air


class Advance(NamedTuple):
    """What one call of a program brought."""

    states: TrainState
    table: np.ndarray  # [S, rows, K]
    finite: np.ndarray  # [S], whether a seed's parameters are
    begin: int  # the iteration it began with
    ends: list[int]  # where its rows end
    fault: str | None  # why it ended early, if an environment failed

    @property
    def iteration(self) -> int:
        """Where it stands now."""
        return self.ends[-1] if self.ends else self.begin


def advances(
    program: Program,
    config: Config,
    states: TrainState,
    hypers: Hypers,
    first: int,
    log_interval: int,
    supervision: Supervision,
    pauses: int | Sequence[int] = (),
    meanwhile: Callable[[], None] = lambda: None,
) -> Generator[Advance]:
    """From iteration `first` to the last one, or until stopped, in calls of about half a second.

    No call goes past one of the `pauses`, or a multiple of them where it is a number. `meanwhile` is done while a call
    computes. Where calls end depends on time; the rows and the states at their ends do not. An environment that fails
    ends it with a `fault`.
    Whatever happens, the program is ended when the iterator is closed.
    """
    total, rows, iteration = config.num_iterations, 1, first
    try:
        states = program.begin(states, first, supervision)
        while iteration < total:
            stop = next_pause(iteration, pauses, total)
            rows = min(rows, MAX_ROWS, -(-(stop - iteration) // log_interval))
            rows = supervision.agreed(0 if supervision.is_stopped() else rows)
            if not rows:
                return
            ends, fault, clock = row_ends(iteration, rows, log_interval, total), None, time.perf_counter()
            try:
                chunk = program(states, hypers, iteration, rows)
            except StoppedError as early:
                chunk, fault = early.chunk, early.fault
                ends = ends_until(ends, iteration, early.iteration)
            meanwhile()
            table, finite = np.asarray(chunk.table)[:, : len(ends)], np.asarray(chunk.finite)
            seconds = time.perf_counter() - clock
            states = chunk.states
            made = Advance(states, table, finite, iteration, ends, fault)
            iteration = made.iteration
            yield made
            if fault is not None or not ends:  # stopped before anything was done
                return
            rows = max(1, min(2 * rows, int(rows * CHUNK_SECONDS / max(seconds, 1e-6))))
    finally:
        program.end()


def next_pause(iteration: int, pauses: int | Sequence[int], total: int) -> int:
    """The first one after an iteration, or the end."""
    if isinstance(pauses, int):
        return min(total, (iteration // pauses + 1) * pauses)
    return min((pause for pause in pauses if pause > iteration), default=total)


def ends_until(ends: list[int], begin: int, last: int) -> list[int]:
    """The ends of rows that were run when the iterations stopped at `last`, in the middle of a row perhaps."""
    done = [end for end in ends if end <= last]
    return [*done, last] if last > max([begin, *done]) else done


def lines_of(
    names: tuple[str, ...], config: Config, table: np.ndarray, begin: int, ends: list[int], seeds: list[int]
) -> list[tuple]:
    """Lines of `metrics.csv` of the rows [S, R, K] that end at these iterations; the first one begins at `begin`."""
    measured = [present(config, names, first, end) for first, end in zip([begin, *ends], ends, strict=False)]
    shown = np.array(measured).reshape(len(ends), len(names))
    return rows_of(names, table, shown, ends, config.geometry.iteration_batch, seeds)
