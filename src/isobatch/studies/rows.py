"""The rows of rows.csv: one for each cell and seed, with the results of its training and every setting.

Normalized returns are those of `normalization`; a run that diverged, or never ended an episode, counts as 0.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from isobatch.settings.config import Config
from isobatch.settings.parsing import inf_as_text
from isobatch.statistics.normalization import ReturnRange, normalize
from isobatch.studies.grid import Cell, Row
from isobatch.training.metrics import EPISODES, INDEX, RETURN, Table, final_returns

CURVES = (*INDEX, RETURN, "charts/episodic_length", EPISODES, "losses/approx_kl")  # what is kept of a run's metrics
MEANS = {"approx_kl": "losses/approx_kl", "clip_fraction": "losses/clipfrac"}  # column -> metric, its mean over the run
LINES_PER_RUN = 200  # of metrics
POINTS = 20  # of a run, equally far apart, the last one at its end, where policies are evaluated besides
INSIDE, OUTSIDE = 32, 8  # episodes at each point, of environments in JAX and of those where steps cost more


@dataclass(frozen=True)
class Diverged:
    """Where a run stopped being finite, and what did first."""

    env_steps: int
    metric: str


@dataclass(frozen=True)
class Outcome:
    """What training a cell came to."""

    table: Table  # as metrics.csv has it, of all seeds, without lines that are not finite
    diverged: dict[int, Diverged]  # by seed


def rows_of_cell(
    cell: Cell, outcome: Outcome, seeds: list[int], ranges: Mapping[str, ReturnRange] | None = None
) -> list[Row]:
    """One row per seed: factors, results, then every setting."""
    table = outcome.table
    settings = {name: plain(value) for name, value in cell.config.to_dict().items()}
    rows = []
    for seed in seeds:
        curve = {name: values[table["seed"] == seed] for name, values in table.items()}
        divergence = outcome.diverged.get(seed)
        final, mean = final_return(curve, cell.config.env_steps), mean_return(curve)
        row: Row = {
            "cell": cell.name,
            "seed": seed,
            "env": cell.config.env,
            "algo": cell.config.algo,
            **cell.factors,
            "final_return": final if divergence is None else None,
            "mean_return": mean if divergence is None else None,
            "normalized_final": score(cell.config.env, final, divergence, ranges),
            "normalized_mean": score(cell.config.env, mean, divergence, ranges),
            "diverged": divergence is not None,
            "diverged_at": None if divergence is None else divergence.env_steps,
            "diverged_metric": None if divergence is None else divergence.metric,
            **{name: mean_of(curve, metric) for name, metric in MEANS.items() if metric in curve},
            "env_steps": cell.config.env_steps,
            "version": version(),
        }
        rows.append(row | {name: value for name, value in settings.items() if name not in row})
    return rows


def score(
    env: str, value: float | None, divergence: Diverged | None, ranges: Mapping[str, ReturnRange] | None
) -> float:
    return 0.0 if value is None or divergence is not None else float(normalize(env, value, ranges))


def origin_of_returns(evaluated: bool) -> str:
    """What returns of a study are of, in a sentence."""
    if not evaluated:
        return "Returns are of the episodes of training."
    return (
        f"Returns are of {INSIDE} episodes ({OUTSIDE} outside JAX) that the newest policy plays at each of {POINTS} "
        "points of a run, with sampled actions: episodes of training lag behind where there are many environments."
    )


def final_return(curve: Table, env_steps: int) -> float | None:
    """Mean over the episodes that ended in the last tenth of the steps; of the newest line with any if none did."""
    last_tenth = final_returns(curve, env_steps) if len(curve["seed"]) else []
    if last_tenth and last_tenth[0] is not None:
        return last_tenth[0]
    ended = curve[RETURN][curve[EPISODES] > 0]
    return float(ended[-1]) if len(ended) else None


def mean_return(curve: Table) -> float | None:
    """Mean of the learning curve over the run's steps: how soon it learned. Lines without an episode are interpolated.

    Episodes would be the wrong weights: bad ones are short, and many.
    """
    ended = curve[EPISODES] > 0
    if not ended.any():
        return None
    return float(np.mean(np.interp(curve["env_steps"], curve["env_steps"][ended], curve[RETURN][ended])))


def mean_of(curve: Table, metric: str) -> float | None:
    values = curve[metric][np.isfinite(curve[metric])]
    return float(np.mean(values)) if len(values) else None


def plain(value: object) -> object:
    """As CSV and JSON have it: lists as one types them, infinity as a word."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    return inf_as_text(value)


def log_interval_of(config: Config) -> int:
    """Iterations of a line."""
    return -(-config.num_iterations // LINES_PER_RUN)


def version() -> str:
    return importlib.metadata.version("isobatch")
