"""What a run tells while it goes on, and what it leaves."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from isobatch.learning.state import TrainState
from isobatch.settings.config import Config
from isobatch.settings.options import Options
from isobatch.training.metrics import RETURN, Table, final_returns


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a run is, told to whoever watches."""

    env_steps: int  # per seed
    total_steps: int
    steps_per_second: float  # of all seeds together
    seconds_left: float
    columns: tuple[str, ...]
    lines: list[tuple]  # the metrics since the last report

    @property
    def episodic_return(self) -> float:
        """Mean over the seeds' newest lines with an episode in them; NaN without one."""
        place, seed_place = self.columns.index(RETURN), self.columns.index("seed")
        newest = {line[seed_place]: line[place] for line in self.lines if not np.isnan(line[place])}
        return float(np.mean(list(newest.values()))) if newest else float("nan")


@dataclasses.dataclass(frozen=True)
class Result:
    """A finished run, or one that was interrupted."""

    config: Config
    options: Options
    run_dir: Path | None
    metrics: Table
    states: TrainState  # of all seeds, stacked
    env_steps: int  # per seed
    steps_per_second: float  # of all seeds together, without compilation
    compile_seconds: float
    interrupted: bool

    @property
    def final_return(self) -> list[float | None]:
        """One number a seed: mean return of the episodes that ended in the last tenth of the steps."""
        if not self.metrics:  # interrupted before the first line
            return [None] * self.options.num_seeds
        return final_returns(self.metrics, self.config.env_steps)

    def to_json(self) -> dict[str, Any]:
        return {
            "run_dir": None if self.run_dir is None else str(self.run_dir),
            "env": self.config.env,
            "algo": self.config.algo,
            "env_steps": self.env_steps,
            "seeds": self.options.seeds,
            "final_return": self.final_return,
            "steps_per_second": self.steps_per_second,
            "compile_seconds": self.compile_seconds,
            "interrupted": self.interrupted,
        }
