"""What programs have in common whose environments step outside: a call goes iteration by iteration."""

from __future__ import annotations

import abc

import jax
import numpy as np

from isobatch.envs.host_interface import HostEnvironment
from isobatch.errors import RunError
from isobatch.learning.state import TrainState
from isobatch.settings.config import Config, Hypers
from isobatch.training.program import MAX_ROWS, Chunk, StoppedError, Supervision, row_ends, row_means


class IteratedProgram(abc.ABC):
    """Many seeds advance many iterations in one call (`program.Program`), which can be stopped between any two."""

    config: Config
    log_interval: int
    _supervision: Supervision

    @property
    @abc.abstractmethod
    def names(self) -> tuple[str, ...]: ...

    @abc.abstractmethod
    def iterate(
        self, states: TrainState, hypers: Hypers, iteration: int
    ) -> tuple[TrainState, np.ndarray, np.ndarray] | None:
        """One iteration of all seeds: the states after it, metrics [S, K], and whether the weights are finite [S]; None
        if it was stopped before anything changed."""

    def say_what_resuming_keeps(self, env: HostEnvironment) -> None:
        """When a run begins, not when it is too late."""
        if not env.replays:
            self._supervision.say(
                f"note: resuming a run of {self.config.env} starts new episodes; weights, optimizer, normalizers and "
                "counters are exact."
            )

    def settled(self, states: TrainState) -> TrainState:
        """The states as they are kept, from those that `iterate` hands on."""
        return states

    def __call__(self, states: TrainState, hypers: Hypers, iteration: int, rows: int) -> Chunk:
        finite = np.ones(states.iteration.shape[0], bool)
        table = np.zeros((len(finite), MAX_ROWS, len(self.names)), np.float32)
        for row, end in enumerate(row_ends(iteration, rows, self.log_interval, self.config.num_iterations)):
            begin, sums = iteration, np.zeros(len(self.names))
            while iteration < end:
                fault = None
                try:
                    after = None if self._is_stopped() else self.iterate(states, hypers, iteration)
                except RunError as error:
                    after, fault = None, str(error)
                if after is None:
                    if iteration > begin:
                        table[:, row] = row_means(self.config, self.names, sums, begin, iteration)
                    raise StoppedError(fault, Chunk(self.settled(states), table, finite), iteration)
                states, metrics, finite = after
                iteration, sums = iteration + 1, sums + metrics
            table[:, row] = row_means(self.config, self.names, sums, begin, iteration)
        return Chunk(self.settled(states), table, finite)

    def _is_stopped(self) -> bool:
        """In the middle of a call; several processes stop together, between two calls."""
        return jax.process_count() == 1 and self._supervision.is_stopped()
