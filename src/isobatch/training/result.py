"""What a run tells while it goes on, and what it leaves."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from isobatch.formatting import html_table, number, plain_table
from isobatch.learning.state import TrainState
from isobatch.settings.config import Config
from isobatch.settings.options import Options
from isobatch.training.agent import Agent, learned_of
from isobatch.training.curves import curve_svg
from isobatch.training.metrics import EVALUATION_COLUMNS, RETURN, Table, evaluations_of, final_returns

if TYPE_CHECKING:
    import pandas


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


@dataclasses.dataclass(frozen=True, repr=False)
class Result:
    """A finished run, or one that was interrupted.

    `metrics` maps the name of each column of `metrics.csv` to an array with one value for each line and seed.

    Example:
        >>> import isobatch as ib
        >>> result = ib.train(ib.preset("a2c", "Probe-Constant", num_envs=4, num_steps=8, total_timesteps=64))
        >>> result
        a2c on Probe-Constant, 64 steps per seed
        seed  final return
        0              1.0
        >>> result.metrics["env_steps"].tolist()
        [32, 64]
    """

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

    @property
    def evaluations(self) -> Table:
        """What the metrics have of evaluations: one line for each of them and seed, none without any."""
        return evaluations_of(self.metrics)

    @property
    def newest_evaluation(self) -> list[float | None]:
        """One number a seed: mean return of the episodes of its last evaluation, if there was one."""
        table = self.evaluations
        newest = dict(zip(table["seed"].tolist(), table[EVALUATION_COLUMNS[0]].tolist(), strict=True))
        return [newest.get(seed) for seed in self.seeds]

    @property
    def seeds(self) -> list[int]:
        return self.options.seeds

    @property
    def iteration(self) -> int:
        """Iterations that were completed."""
        return self.env_steps // self.config.geometry.iteration_batch

    def agent(self, seed: int | None = None) -> Agent:
        """The policy of one of the seeds, by default the first, ready to act on observations."""
        return Agent(learned_of(self, seed))

    def to_pandas(self) -> pandas.DataFrame:
        """The metrics as a `pandas.DataFrame`."""
        import pandas

        return pandas.DataFrame(self.metrics)

    def _summary(self) -> tuple[str, list[list[str]]]:
        kept = "" if self.run_dir is None else f", in {self.run_dir.name}"
        ended = ", interrupted" if self.interrupted else ""
        title = f"{self.config.algo} on {self.config.env}, {self.env_steps:,} steps per seed{ended}{kept}"
        return title, [[str(seed), number(value)] for seed, value in zip(self.seeds, self.final_return, strict=True)]

    def __repr__(self) -> str:
        title, rows = self._summary()
        return f"{title}\n{plain_table(['seed', 'final return'], rows)}"

    def _repr_html_(self) -> str:
        title, rows = self._summary()
        return html_table(title, ["seed", "final return"], rows) + curve_svg(self.metrics)

    def to_json(self) -> dict[str, object]:
        return {
            "run_dir": None if self.run_dir is None else str(self.run_dir),
            "env": self.config.env,
            "algo": self.config.algo,
            "env_steps": self.env_steps,
            "seeds": self.options.seeds,
            "final_return": self.final_return,
            **({"evaluation": self.newest_evaluation} if self.options.eval_interval else {}),
            "steps_per_second": self.steps_per_second,
            "compile_seconds": self.compile_seconds,
            "interrupted": self.interrupted,
        }
