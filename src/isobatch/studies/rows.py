"""What training a cell came to: its curves, and one row per seed with the results and every setting.

Normalized returns are those of `normalization`; a run that diverged, or never ended an episode, counts as 0.
"""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from isobatch.statistics.normalization import Range, normalize
from isobatch.studies.grid import Cell, Row
from isobatch.training.metrics import EPISODES, INDEX, RETURN, Table, final_returns

CURVES = (*INDEX, RETURN, "charts/episodic_length", EPISODES, "losses/approx_kl")  # what is kept of a run's metrics
# column -> metric, its mean over the run
MEANS = {
    "approx_kl": "losses/approx_kl",
    "clip_fraction": "losses/clipfrac",
}


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
    cell: Cell, outcome: Outcome, seeds: list[int], ranges: Mapping[str, Range] | None = None
) -> list[Row]:
    """One row per seed: factors, results, then every setting."""
    table = outcome.table
    settings = {name: plain(value) for name, value in cell.config.to_dict().items()}
    rows = []
    for seed in seeds:
        own = {name: values[table["seed"] == seed] for name, values in table.items()}
        gone = outcome.diverged.get(seed)
        final, mean = final_return(own, cell.config.env_steps), mean_return(own)
        row: Row = {
            "cell": cell.name,
            "seed": seed,
            "env": cell.config.env,
            "algo": cell.config.algo,
            **cell.factors,
            "final_return": final if gone is None else None,
            "mean_return": mean if gone is None else None,
            "normalized_final": score(cell.config.env, final, gone, ranges),
            "normalized_mean": score(cell.config.env, mean, gone, ranges),
            "diverged": gone is not None,
            "diverged_at": None if gone is None else gone.env_steps,
            "diverged_metric": None if gone is None else gone.metric,
            **{name: mean_of(own, metric) for name, metric in MEANS.items() if metric in own},
            "env_steps": cell.config.env_steps,
            "version": version(),
        }
        rows.append(row | {name: value for name, value in settings.items() if name not in row})
    return rows


def score(env: str, value: float | None, gone: Diverged | None, ranges: Mapping[str, Range] | None) -> float:
    return 0.0 if value is None or gone is not None else float(normalize(env, value, ranges))


def final_return(own: Table, env_steps: int) -> float | None:
    """Mean over the episodes that ended in the last tenth of the steps; of the newest line with any if none did."""
    found = final_returns(own, env_steps) if len(own["seed"]) else []
    if found and found[0] is not None:
        return found[0]
    ended = own[RETURN][own[EPISODES] > 0]
    return float(ended[-1]) if len(ended) else None


def mean_return(own: Table) -> float | None:
    """Mean of the learning curve over the run's steps: how soon it learned. Lines without an episode are interpolated.

    Episodes would be the wrong weights: bad ones are short, and many.
    """
    ended = own[EPISODES] > 0
    if not ended.any():
        return None
    return float(np.mean(np.interp(own["env_steps"], own["env_steps"][ended], own[RETURN][ended])))


def mean_of(own: Table, metric: str) -> float | None:
    values = own[metric][np.isfinite(own[metric])]
    return float(np.mean(values)) if len(values) else None


def plain(value: Any) -> Any:
    """As CSV and JSON have it: lists as one types them, infinity as a word."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def version() -> str:
    return importlib.metadata.version("isobatch")
