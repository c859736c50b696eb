"""What every program of training has in common: rows of metrics, and what a call returns.

A call runs a number of *rows*; a row is `log_interval` iterations and yields one line of metrics per seed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxtyping import Array, Bool, Float

from isobatch.learning.iteration import count_turns
from isobatch.learning.state import TrainState
from isobatch.settings.config import Config

MAX_ROWS = 128  # rows that one call can return
# XLA's own choice is 256 bits; 512 were 3 % faster where the processor has them.
COMPILER_OPTIONS: dict[str, Any] = {"xla_cpu_prefer_vector_width": 512}
EPISODES = ("episodes/count", "episodes/return_sum", "episodes/length_sum")


class Chunk(NamedTuple):
    """What one call returns."""

    states: TrainState  # every leaf has a leading axis of seeds
    table: Float[Array, "S R K"]  # R = MAX_ROWS, of which the rows that were run are filled
    finite: Bool[Array, "S"]  # whether a seed's parameters are all finite


def kind_of(name: str) -> int:
    """What a metric tells of: 0 the rollout, 1 policy updates, 2 auxiliary phases."""
    return 0 if name in EPISODES else 2 if name.startswith("aux/") else 1


def present(names: tuple[str, ...], config: Config, begin: int, end: int) -> list[bool]:
    """Which metrics the iterations begin .. end-1 have: policy updates and auxiliary phases have their turns."""
    counts = [1, *(int(n) for n in count_turns(config, begin, end))]
    return [counts[kind_of(name)] > 0 for name in names]


def row_ends(iteration: int, rows: int, log_interval: int, num_iterations: int) -> list[int]:
    """Where the rows after `iteration` end: at multiples of the interval, the first one perhaps shorter."""
    first = iteration // log_interval
    return [min((first + row + 1) * log_interval, num_iterations) for row in range(rows)]
