"""Returns that mean the same at every number of environments: of whole episodes, by the policies along a run.

An episode of training that ends after t steps was begun up to N x L environment steps earlier, L being its length, by
older policies; and where a run has fewer steps for each environment than an episode takes, only short episodes end. So
with many environments and short runs the returns of training lag behind, and say little of the policy. Here the newest
policy at each of some points of a run plays episodes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import numpy as np

from isobatch.envs.host_interface import HostEnvironment
from isobatch.envs.registry import environment_of
from isobatch.learning.state import TrainState
from isobatch.rollouts.evaluation import Episodes, Evaluator, StackedPolicies
from isobatch.settings.config import Config
from isobatch.studies.rows import INSIDE, MEANS, OUTSIDE, POINTS, Diverged
from isobatch.training.metrics import EPISODES, INDEX, LENGTH, RETURN, Table, table_of

AT_ONCE = 40  # policies, with 320 environments: MuJoCo takes some 8 MB for each


class PolicyReturns:
    """Plays the policies of all lanes at POINTS points of a run; actions are sampled, as in training."""

    def __init__(self, config: Config, states: TrainState, log_interval: int) -> None:
        """`states` are those of the beginning; training stops at multiples of `log_interval` only, and at the end."""
        self.config, total = config, config.num_iterations
        newest = [total * point // POINTS for point in range(1, POINTS + 1)]
        self.iterations = [n if n == total else n // log_interval * log_interval for n in newest]
        self._outside = isinstance(environment_of(config), HostEnvironment)
        self._evaluator = Evaluator(config, OUTSIDE if self._outside else INSIDE, deterministic=False, seed=0)
        self._first = policies_of(states)
        self._waiting: dict[int, StackedPolicies] = {}  # by iteration
        self._played: dict[int, Episodes] = {}
        self.note(0, states)

    @property
    def pauses(self) -> list[int]:
        """The iterations at which `note` must be told about the states."""
        return sorted({*self.iterations} - {0})

    def note(self, iteration: int, states: TrainState) -> None:
        if iteration in {*self.iterations} - {*self._waiting} - {*self._played}:
            self._waiting[iteration] = policies_of(states)
            if not self._outside:
                self._play()

    def _play(self) -> None:
        """What waits. Outside JAX the policies of all points at once: a step of few environments takes as long."""
        lanes = len(jax.tree.leaves(self._first)[0])
        at_once = max(1, AT_ONCE // len(self._waiting))
        parts = [self._played_by(slice(begin, begin + at_once)) for begin in range(0, lanes, at_once)]
        for place, iteration in enumerate(self._waiting):
            returns, lengths = (np.concatenate([part[what][place] for part in parts]) for what in (0, 1))
            self._played[iteration] = Episodes(returns, lengths)
        self._waiting = {}

    def _played_by(self, lanes: slice) -> tuple[np.ndarray, np.ndarray]:
        """Returns and lengths [points, lanes, episodes] of some lanes; no returns of those that are not finite."""

        def of(policies: StackedPolicies) -> StackedPolicies:
            some: StackedPolicies = jax.tree.map(lambda leaf: leaf[lanes], policies)
            return some

        points = [of(policies) for policies in self._waiting.values()]
        finite = np.array([lanes_that_are_finite(policies) for policies in points])
        whole = [jax.tree.map(keep(f), p, of(self._first)) for f, p in zip(finite, points, strict=True)]
        seeds = np.repeat([self.iterations.index(iteration) for iteration in self._waiting], finite.shape[1])
        stacked = jax.tree.map(lambda *leaves: np.concatenate(leaves), *whole)
        played = self._evaluator.play(stacked, seeds if self._outside else int(seeds[0]))
        returns, lengths = (each.reshape(*finite.shape, -1) for each in (played.returns, played.lengths))
        return np.where(finite[..., None], returns, np.nan), lengths

    def curve(self, lanes: slice, seeds: list[int], training: Table, diverged: Mapping[int, Diverged]) -> Table:
        """The table of a config with a line for each point and seed, up to where a run diverged.

        Of the other metrics lines have the means since the point before.
        """
        if self._waiting:
            self._play()
        steps = self.config.env_steps
        ends = [steps * point // POINTS for point in range(1, POINTS + 1)]
        metrics = [name for name in MEANS.values() if name in training]
        lines = []
        for begin, end, iteration in zip([0, *ends], ends, self.iterations, strict=False):
            played = self._played[iteration]
            for lane, seed in zip(range(*lanes.indices(len(played.returns))), seeds, strict=True):
                if seed in diverged and end >= diverged[seed].env_steps:
                    continue
                value, length = played.returns[lane].mean(), played.lengths[lane].mean()
                count = played.returns.shape[1] if np.isfinite(value) else 0
                here = (training["seed"] == seed) & (training["env_steps"] > begin) & (training["env_steps"] <= end)
                lines.append((iteration, end, seed, value, length, count, *(mean(training[m][here]) for m in metrics)))
        return table_of((*INDEX, RETURN, LENGTH, EPISODES, *metrics), lines)


def mean(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else np.nan


def policies_of(states: TrainState) -> StackedPolicies:
    policies: StackedPolicies = jax.device_get(StackedPolicies(states.networks, states.obs_moments))
    return policies


def lanes_that_are_finite(policies: StackedPolicies) -> np.ndarray:
    """[S], whether all numbers of a policy are."""
    leaves = [np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1) for leaf in jax.tree.leaves(policies)]
    finite: np.ndarray = np.logical_and.reduce(leaves)
    return finite


def keep(lanes: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The first of two arrays in these lanes, the second one in the others."""

    def choose(these: np.ndarray, others: np.ndarray) -> np.ndarray:
        return np.where(lanes.reshape(-1, *[1] * (np.ndim(these) - 1)), these, others)

    return choose
