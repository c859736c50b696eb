"""A run besides its config: seeds, logging, checkpoints. The docstring under a field is its help text."""

from __future__ import annotations

import math
from dataclasses import dataclass

from isobatch.errors import UsageError

MAX_LINES = 1000  # a run logs at most about so many lines a seed, each the mean over the iterations between
LEAST = {"seed": 0, "num_seeds": 1, "log_interval": 0, "checkpoint_interval": 0, "keep_checkpoints": 1}


@dataclass(frozen=True)
class Options:
    seed: int = 0
    """First seed."""
    num_seeds: int = 1
    """Seeds trained at once: seed, seed + 1, ..."""
    log_interval: int = 0
    """Iterations per line of metrics, which are their means; 0 chooses one that gives at most 1000 lines."""
    checkpoint_interval: int = 0
    """Iterations between checkpoints; 0 makes ten of them."""
    keep_checkpoints: int = 3
    """How many of the newest checkpoints stay, besides the best one."""
    env_timeout: float = 60.0
    """Gymnasium and EnvPool: seconds that a step may take before the run is stopped."""
    tensorboard: bool = False
    """Also write TensorBoard event files into the run directory (extra: tensorboard)."""
    wandb_project: str | None = None
    """Also log to this project of Weights & Biases (extra: wandb)."""

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise UsageError(f"{name}={getattr(self, name)} must be at least {least}.")

        if not 0 < self.env_timeout < math.inf:
            raise UsageError(f"env_timeout={self.env_timeout:g} must be a positive number of seconds.")

    @property
    def seeds(self) -> list[int]:
        return list(range(self.seed, self.seed + self.num_seeds))

    def line_iterations(self, num_iterations: int) -> int:
        """Iterations per line of metrics."""
        return self.log_interval or max(1, math.ceil(num_iterations / MAX_LINES))

    def checkpoint_iterations(self, num_iterations: int) -> int:
        """Iterations between checkpoints: whole lines, so that a resumed run logs the same ones."""
        line = self.line_iterations(num_iterations)
        return math.ceil((self.checkpoint_interval or math.ceil(num_iterations / 10)) / line) * line
