"""Where the data comes from: one interface for environments inside a compiled program and outside it.

Sections and statistics ask a source for chains, batches and episodes, and do not know which of the two it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from isobatch.envs.host_interface import HostEnvironment
from isobatch.envs.interface import Environment
from isobatch.laboratory.chains import Chains
from isobatch.laboratory.partial_results import NOTHING_KEPT, PartialResults
from isobatch.rollouts.segment import Segment

TIMED = 7  # repetitions, of which the median counts
PATIENCE = 2.0  # seconds after which there are no more of them


class Draw(NamedTuple):
    """What makes a batch: its randomness, and how long its environments have been running, in time limits."""

    key: Key[Array, "*K"]
    age: Float[Array, "*K"]


def draws(count: int, seed: int) -> Draw:
    """Independent batches. Their ages are spread evenly over one to two time limits, with a random beginning.

    Where the gradient depends much on the time since a reset, ages drawn at random would miss what is rare.
    """
    key, age_key = jax.random.split(jax.random.key(seed))
    age = 1 + (jnp.arange(count) + jax.random.uniform(age_key)) / count
    return Draw(jax.random.split(key, count), age)


class Source(Protocol):
    """One policy in its environment. Segments hold real steps only, with rewards as the learner sees them."""

    @property
    def env(self) -> Environment | HostEnvironment: ...

    @property
    def time_limit(self) -> int:
        """Steps that environments run after a reset before they are measured: the time limit of their episodes."""
        ...

    @property
    def known_limit(self) -> int:
        """The time limit as the environment has it, which may be longer than what is waited for; 0: none is known."""
        ...

    @property
    def sets_clocks(self) -> bool:
        """Whether the clock of an environment can be set: resets can then be staggered, and true returns go on past a
        time limit. Where they cannot, the value function stands in for what follows it."""
        ...

    @property
    def cheap_steps(self) -> int:
        """Environment steps that a direct measurement may take only to get its environments going."""
        ...

    @property
    def obs_bytes(self) -> int:
        """Memory that one observation of a chain takes while chains are collected."""
        ...

    def chains(self, count: int, length: int, seed: int, parts: PartialResults = NOTHING_KEPT) -> Chains:
        """Chains in groups (see `chains`), and what their returns truly come to. `parts` keeps what is collected."""
        ...

    def batches(
        self, num_envs: int, num_steps: int, drawn: Draw, first: int = 0, parts: PartialResults = NOTHING_KEPT,
        name: str = "collected",
    ) -> Iterator[Segment]:  # fmt: skip
        """One rollout for each draw, from draw `first` on, of environments that were reset together some time ago.

        `parts` keeps under this name what is collected of those that are not handed out yet.
        """
        ...

    def episodes(self, count: int, horizon: int, seed: int, parts: PartialResults = NOTHING_KEPT) -> Segment:
        """Environments from their reset on, until each has ended an episode, up to the horizon."""
        ...

    def seconds(self, num_envs: int, num_steps: int) -> float:
        """Wall-clock time of collecting one batch, once everything is compiled."""
        ...


def median_seconds(call: Callable[[], object]) -> float:
    """Of a call that is made once before, to be compiled."""
    jax.block_until_ready(call())
    taken: list[float] = []
    while len(taken) < TIMED and sum(taken) < PATIENCE:
        begin = time.perf_counter()
        jax.block_until_ready(call())
        taken.append(time.perf_counter() - begin)
    return float(np.median(taken))
