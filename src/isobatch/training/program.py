"""What every program of training has in common: the interface, rows of metrics, and what a call returns.

A call runs a number of *rows*; a row is `log_interval` iterations and yields one line of metrics per seed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from isobatch.errors import RunError
from isobatch.learning.iteration import Index, count_turns
from isobatch.learning.state import TrainState
from isobatch.rollouts.actors.ledger import LedgerEntry
from isobatch.rollouts.segment import EpisodeSums
from isobatch.settings.config import Config, Hypers
from isobatch.settings.options import ActorKind, Options

MAX_ROWS = 128  # that one call can return
EPISODES = ("episodes/count", "episodes/return_sum", "episodes/length_sum")

Sums = TypeVar("Sums", Array, np.ndarray)


class Chunk(NamedTuple):
    """What one call returns."""

    states: TrainState  # every leaf has a leading axis of seeds
    table: Float[Array, "S R K"] | np.ndarray  # R = MAX_ROWS, of which the rows that were run are filled
    finite: Bool[Array, "S"] | np.ndarray  # whether a seed's parameters are all finite


@dataclasses.dataclass(frozen=True)
class Supervision:
    """What a program needs of whoever runs it: somebody to talk to, patience, and when to stop."""

    say: Callable[[str], None] = lambda sentence: None
    env_timeout: float = Options.env_timeout
    is_stopped: Callable[[], bool] = lambda: False
    agreed: Callable[[int], int] = lambda rows: rows  # between processes that have to do the same
    actor_kind: ActorKind = "auto"
    consumed: Callable[[Sequence[LedgerEntry]], None] = lambda entries: None  # which rollouts of actors an update used
    recorded: Sequence[LedgerEntry] | None = None  # which it shall use


class Program(Protocol):
    """Many seeds advance many iterations in one call. The loop above cannot tell one kind of program from another."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the metrics, K of them."""
        ...

    def begin(self, states: TrainState, iteration: int, supervision: Supervision) -> TrainState:
        """Before the first call: start what has to run, where the states say it stood."""
        ...

    def __call__(self, states: TrainState, hypers: Hypers, iteration: int, rows: int) -> Chunk:
        """Advance from `iteration` by `rows` rows, which end at multiples of the log interval. The states passed in are
        used up. Raises `StoppedError` where it has to end early."""
        ...

    def end(self) -> None:
        """After the last call, also when one failed."""
        ...


class StoppedError(RunError):
    """A call ended early: an environment failed, or somebody asked. `chunk` was completed before, up to `iteration`."""

    def __init__(self, fault: str | None, chunk: Chunk, iteration: int) -> None:
        super().__init__(fault or "stopped")
        self.fault, self.chunk, self.iteration = fault, chunk, iteration


def row_ends(iteration: int, rows: int, log_interval: int, num_iterations: int) -> list[int]:
    """Where the rows after `iteration` end: at multiples of the interval, the first one perhaps shorter."""
    first = iteration // log_interval
    return [min((first + row + 1) * log_interval, num_iterations) for row in range(rows)]


def row_means(config: Config, names: tuple[str, ...], sums: Sums, begin: Index, end: Index) -> Sums:
    """Means over the iterations begin .. end-1 that had a policy update, or an auxiliary phase; sums over episodes."""
    return sums / turn_counts(config, begin, end).clip(1)[np.array([kind_of(name) for name in names])]


def present(config: Config, names: tuple[str, ...], begin: int, end: int) -> list[bool]:
    """Which metrics the iterations begin .. end-1 have: policy updates and auxiliary phases have their turns."""
    counts = turn_counts(config, begin, end)
    return [bool(counts[kind_of(name)] > 0) for name in names]


def turn_counts(config: Config, begin: Index, end: Index) -> Array | np.ndarray:
    """How often each kind of metric had its turn in the iterations begin .. end-1; 1 for sums over episodes."""
    counts = count_turns(config, begin, end)
    arrays = jnp if isinstance(end, jax.Array) else np
    return arrays.stack([arrays.asarray(n, np.int32) for n in (1, *counts)])


def kind_of(name: str) -> int:
    """What a metric tells of: 0 the rollout, 1 policy updates, 2 auxiliary phases."""
    return 0 if name in EPISODES else 2 if name.startswith("aux/") else 1


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Whether every number of a tree is."""
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))


def metric_vector(metrics: dict[str, Float[Array, ""]], episodes: EpisodeSums | None = None) -> Float[Array, " K"]:
    """The metrics of one iteration in the order of their names, and the sums over episodes."""
    values = [*(metrics[name] for name in sorted(metrics)), *jax.tree.leaves(episodes)]
    return jnp.stack([jnp.asarray(value, jnp.float32) for value in values])
