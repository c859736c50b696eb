"""Evaluations during training: whole episodes by the policies as they are, kept in columns of `metrics.csv`.

They have environments, random keys and a program of their own, so training gives the same bits with and without them. A
seed is evaluated once a line of its training return has reached a threshold. That depends on nothing but the lines
before, so a resumed run leaves the same file as an undisturbed one.
"""

from __future__ import annotations

import jax
import numpy as np

from isobatch.learning.state import TrainState
from isobatch.rollouts.evaluation import Evaluator, StackedPolicies
from isobatch.settings.config import Config
from isobatch.settings.options import Options
from isobatch.training.metrics import EVALUATION_COLUMNS, RETURN, Table

EPISODES_SEED = 0  # of initial states and environments, as `isobatch eval` has it


class Evaluations:
    """When a run is evaluated, and what comes of it."""

    def __init__(self, config: Config, options: Options) -> None:
        self.interval = options.eval_iterations(config.num_iterations)
        self.columns = EVALUATION_COLUMNS if self.interval else ()
        self._config, self._options = config, options
        self._evaluator: Evaluator | None = None

    def is_due(self, iteration: int) -> bool:
        return bool(self.interval) and (iteration % self.interval == 0 or iteration == self._config.num_iterations)

    def ready(self, metrics: Table) -> np.ndarray:
        """[S], whether a seed's training return has reached the threshold."""
        threshold = self._options.eval_threshold
        if threshold is None:
            return np.ones(self._options.num_seeds, bool)
        returns = metrics[RETURN].astype(np.float32).astype(np.float64)  # a resumed run has read their shortest text
        reached = metrics["seed"][returns >= threshold]
        return np.isin(self._options.seeds, reached)

    def values(self, states: TrainState, ready: np.ndarray) -> np.ndarray:
        """[S, columns], NaN for seeds that are not ready; RunError if an environment fails."""
        if self._evaluator is None:
            options = self._options
            self._evaluator = Evaluator(self._config, options.eval_episodes, True, EPISODES_SEED, options.env_timeout)
        played = self._evaluator(jax.device_get(StackedPolicies(states.networks, states.obs_moments)))
        numbers = np.stack([played.return_mean, played.return_std, played.length_mean], axis=1)
        return np.where(ready[:, None], numbers, np.nan).astype(np.float32)  # as the file has them
