"""Evaluations during training: whole episodes by the policies as they are, kept in a file beside the metrics.

They have environments, random keys and a program of their own, so training gives the same bits with and without them. A
seed is evaluated once a line of its training return has reached a threshold. That depends on nothing but the lines
before, so a resumed run leaves the same file as an undisturbed one.
"""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np

from isobatch.learning.state import TrainState
from isobatch.rollouts.evaluation import Evaluator, StackedPolicies
from isobatch.settings.config import Config
from isobatch.settings.options import Options
from isobatch.training.metrics import INDEX, RETURN, Table
from isobatch.training.metrics_file import Mark

EVALUATIONS = "evaluations.csv"
COLUMNS = (*INDEX, "eval/episodic_return", "eval/return_std", "eval/episodic_length")
EPISODES_SEED = 0  # of initial states and environments, as `isobatch eval` has it


class Evaluations:
    """When a run is evaluated, and the lines that come of it."""

    def __init__(self, config: Config, options: Options) -> None:
        self.interval = options.eval_iterations(config.num_iterations)
        self._config, self._options = config, options
        self._evaluator: Evaluator | None = None

    def is_due(self, iteration: int) -> bool:
        return bool(self.interval) and (iteration % self.interval == 0 or iteration == self._config.num_iterations)

    def ready(self, metrics: Table) -> np.ndarray:
        """[S], whether a seed's training return has reached the threshold."""
        threshold = self._options.eval_threshold
        if threshold is None:
            return np.ones(self._options.num_seeds, bool)
        reached = metrics["seed"][metrics[RETURN] >= threshold]
        return np.isin(self._options.seeds, reached)

    def lines(self, iteration: int, states: TrainState, ready: np.ndarray) -> list[tuple]:
        """Of the seeds that are ready; RunError if an environment fails."""
        if self._evaluator is None:
            options = self._options
            self._evaluator = Evaluator(self._config, options.eval_episodes, True, EPISODES_SEED, options.env_timeout)
        played = self._evaluator(jax.device_get(StackedPolicies(states.networks, states.obs_moments)))
        steps = iteration * self._config.geometry.iteration_batch
        numbers = np.stack([played.return_mean, played.return_std, played.length_mean], axis=1)
        seeds = zip(self._options.seeds, ready, numbers, strict=True)
        return [(iteration, steps, seed, *of_seed) for seed, is_ready, of_seed in seeds if is_ready]


def lines_until(path: Path, iteration: int) -> tuple[Mark, list[tuple]]:
    """The lines of `evaluations.csv` up to an iteration, as the file and as numbers; what a kill cut short is none."""
    content = path.read_bytes() if path.is_file() else b""
    header, *lines = content.splitlines(keepends=True) or [b""]
    size = 0
    kept: list[tuple] = []
    for line in lines:
        numbers = numbers_of(line)
        if numbers is None or numbers[0] > iteration:
            break
        size += len(line)
        kept.append(numbers)
    return Mark(len(header) + size if kept else 0, ""), kept


def numbers_of(line: bytes) -> tuple[float, ...] | None:
    """Of a whole line."""
    try:
        numbers = tuple(map(float, line.split(b",")))
    except ValueError:
        return None
    return numbers if line.endswith(b"\n") and len(numbers) == len(COLUMNS) else None
