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
from isobatch.learning.state import TrainState
from isobatch.rollouts.evaluation import Episodes, Evaluator, StackedPolicies
from isobatch.settings.config import Config
from isobatch.studies.rows import INSIDE, MEANS, OUTSIDE, POINTS, Diverged
from isobatch.training.metrics import EPISODES, INDEX, LENGTH, RETURN, Table, table_of


class PolicyReturns:
    """Plays the policies of all lanes at POINTS points of a run; actions are sampled, as in training."""

    def __init__(self, config: Config, states: TrainState, log_interval: int) -> None:
        """`states` are those of the beginning; training stops at multiples of `log_interval` only, and at the end."""
        self.config, total = config, config.num_iterations
        newest = [total * point // POINTS for point in range(1, POINTS + 1)]
        self.iterations = [n if n == total else n // log_interval * log_interval for n in newest]
        self._evaluator = Evaluator(config, INSIDE, deterministic=False, seed=0)
        if isinstance(self._evaluator.env, HostEnvironment):
            self._evaluator.episodes = OUTSIDE
        self._first = policies_of(states)
        self._played: dict[int, Episodes] = {}
        self.note(0, states)

    @property
    def pauses(self) -> list[int]:
        """The iterations at which `note` must be told about the states."""
        return sorted({*self.iterations} - {0})

    def note(self, iteration: int, states: TrainState) -> None:
        if iteration not in self.iterations or iteration in self._played:
            return
        policies = policies_of(states)
        finite = lanes_that_are_finite(policies)
        played = self._evaluator.play(
            jax.tree.map(keep(finite), policies, self._first), self.iterations.index(iteration)
        )
        self._played[iteration] = Episodes(np.where(finite[:, None], played.returns, np.nan), played.lengths)

    def curve(self, lanes: slice, seeds: list[int], training: Table, diverged: Mapping[int, Diverged]) -> Table:
        """The table of a config with a line for each point and seed, up to where a run diverged.

        Of the other metrics lines have the means since the point before.
        """
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
