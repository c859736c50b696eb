"""A group of trials of one shape as a job: the same program trains some of them at a time, and the best go on.

States of trials that wait are kept in memory, and a group that is interrupted is trained again as a whole.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from isobatch.executors.interface import Watch
from isobatch.learning.state import TrainState
from isobatch.settings.config import Config
from isobatch.studies.jobs import Devices
from isobatch.studies.lanes import outcome, train_iterations
from isobatch.studies.rows import Outcome, log_interval_of
from isobatch.training.checkpoint_file import Leaves
from isobatch.training.checkpoints import flatten, unflatten
from isobatch.training.programs import initial_states
from isobatch.tuning.halving import Halving
from isobatch.tuning.trials import score_of


@dataclass(frozen=True)
class GroupResult:
    """Of the trials of a group, in their order."""

    outcomes: list[Outcome]
    scores: list[list[float]]  # at each rung that a trial reached
    seconds: float
    compile_seconds: float


@dataclass(frozen=True)
class TrainGroup:
    """Trials that differ in their hyperparameters only."""

    configs: list[Config]
    seeds: list[int]
    halving: Halving
    together: int  # trials that a program trains at once
    earlier: list[list[float]]  # scores of all trials before, by rung
    devices: Devices

    def run(self, watch: Watch) -> GroupResult:
        self.devices.choose()
        clock = time.perf_counter()
        config = self.configs[0]
        rungs = self.halving.rungs(config, log_interval_of(config))
        sizes = self.halving.sizes(len(self.configs), self.together, len(rungs))
        lanes = Lanes(self.configs, self.seeds, min(self.together, len(self.configs)))
        lengths = [end - begin for begin, end in zip([0, *rungs], rungs, strict=False)]
        work = np.cumsum([0.0, *(size * length for size, length in zip(sizes, lengths, strict=True))])
        chosen, scores = list(range(len(self.configs))), list[list[float]]([] for _ in self.configs)
        for rung, end in enumerate(rungs):

            def part(done: float, rung: int = rung) -> None:
                watch(float(np.interp(done, [0, 1], work[rung : rung + 2])) / float(work[-1]))

            lanes.train(chosen, end, part)
            for i in chosen:
                steps = end * config.geometry.iteration_batch
                scores[i].append(score_of(lanes.outcome(i), self.seeds, steps))
            if end < rungs[-1]:
                earlier = self.earlier[rung] if rung < len(self.earlier) else []
                kept = self.halving.survivors([scores[i][-1] for i in chosen], earlier, sizes[rung + 1])
                chosen = [chosen[place] for place in kept]
            if not chosen:
                break
        outcomes = [lanes.outcome(i) for i in range(len(self.configs))]
        return GroupResult(outcomes, scores, time.perf_counter() - clock, lanes.compile_seconds)


@dataclass
class TrialProgress:
    """How far a trial is."""

    states: Leaves  # of its seeds, on the host
    iteration: int = 0
    tables: list[np.ndarray] = field(default_factory=list)  # [seeds, lines, metrics] of each part
    ends: list[int] = field(default_factory=list)
    finite: np.ndarray | None = None


class Lanes:
    """Trials of one shape, of which a compiled program trains `together` at a time."""

    def __init__(self, configs: Sequence[Config], seeds: list[int], together: int) -> None:
        self.configs, self.seeds, self.together = configs, seeds, together
        fresh = initial_states(configs[0], seeds)  # does not depend on hyperparameters
        first = flatten(fresh)
        self.progress = [TrialProgress(first) for _ in configs]
        self.template = jax.tree.map(lambda leaf: jnp.concatenate([leaf] * together), fresh)
        self.names: tuple[str, ...] = ()
        self.compile_seconds = 0.0

    def train(self, chosen: Sequence[int], last: int, watch: Watch) -> None:
        """Train these trials, all of which are as far, to an iteration."""
        calls = [list(chosen[i : i + self.together]) for i in range(0, len(chosen), self.together)]
        for place, trials in enumerate(calls):

            def part(done: float, place: int = place) -> None:
                watch((place + done) / len(calls))

            self._call(trials, last, part)

    def _call(self, trials: list[int], last: int, watch: Watch) -> None:
        filled = trials + trials[-1:] * (self.together - len(trials))  # the program has so many lanes
        first = self.progress[trials[0]].iteration
        done, self.names, seconds = train_iterations(
            [self.configs[i] for i in filled], self._states(filled), first, last, watch
        )
        self.compile_seconds += seconds
        states, count = flatten(done.states), len(self.seeds)
        for place, i in enumerate(trials):
            lanes, progress = slice(place * count, (place + 1) * count), self.progress[i]
            progress.states = {name: leaf[lanes] for name, leaf in states.items()}
            progress.iteration = last
            progress.tables.append(done.table[lanes])
            progress.ends += done.ends
            progress.finite = done.finite[lanes]

    def _states(self, trials: Sequence[int]) -> TrainState:
        joined = {
            name: np.concatenate([self.progress[i].states[name] for i in trials])
            for name in self.progress[trials[0]].states
        }
        states: TrainState = unflatten(self.template, joined)
        return states

    def outcome(self, i: int) -> Outcome:
        """Of all its iterations so far."""
        progress = self.progress[i]
        assert progress.finite is not None
        table = np.concatenate(progress.tables, axis=1)
        return outcome(self.configs[i], self.seeds, self.names, table, progress.finite, progress.ends)
