"""Some iterations of a program that is there already: what studies, searches and branches are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np

from isobatch.errors import RunError
from isobatch.learning.state import TrainState
from isobatch.settings.config import Config, Hypers
from isobatch.training.loop import advances
from isobatch.training.program import Program, Supervision

Watch = Callable[[int, TrainState], None]  # of an iteration that was reached and the states there


class TrainedIterations(NamedTuple):
    """Some iterations of all lanes."""

    states: TrainState
    table: np.ndarray  # [lanes, lines, metrics]
    finite: np.ndarray  # [lanes], whether the parameters are, at the end
    ends: list[int]  # iterations at which the lines end


def run_iterations(
    program: Program,
    config: Config,
    states: TrainState,
    hypers: Hypers,
    first: int,
    last: int,
    log_interval: int,
    note: Watch = lambda iteration, states: None,
    pauses: Sequence[int] = (),
    supervision: Supervision | None = None,
) -> TrainedIterations:
    """From iteration `first` to `last`, a multiple of `log_interval` or the end of the run.

    `note` is told about twice a second how far it is, and at each of the `pauses`; it has to copy what it keeps of the
    states. RunError if an environment fails.
    """
    tables, ends = [], []
    supervision = supervision or Supervision()
    with closing(advances(program, config, states, hypers, first, log_interval, supervision, [*pauses, last])) as steps:
        for step in steps:
            if step.fault is not None:
                raise RunError(step.fault)
            tables.append(step.table)
            ends += step.ends
            states, finite = step.states, step.finite
            note(step.iteration, states)
            if step.iteration >= last:
                break
    # Parameters that are not finite spoil the next metrics, so they need a look at the end only: where chunks end
    # depends on time, which results must not.
    return TrainedIterations(states, np.concatenate(tables, axis=1), finite, ends)
