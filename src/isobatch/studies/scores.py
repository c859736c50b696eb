"""From rows of results to scores by environment, as the modules of `statistics` take them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from isobatch.studies.grid import Row

FINAL: Final = "normalized_final"
MEAN: Final = "normalized_mean"


def unique_cells(rows: list[Row]) -> list[Row]:
    """The first row of each cell."""
    return list({row["cell"]: row for row in reversed(rows)}.values())[::-1]


def select(rows: list[Row], **factors: object) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in factors.items())]


def with_episodes(rows: list[Row]) -> list[Row]:
    """Without cells in which no episode ended: they have no return, and the 0 that they count as says nothing."""
    heard = {row["cell"] for row in rows if row["final_return"] is not None or row["diverged"]}
    return [row for row in rows if row["cell"] in heard]


def levels(rows: Iterable[Mapping[str, object]], factor: str) -> list[Any]:
    """The values of a factor, in the order of the grid."""
    return list(dict.fromkeys(row[factor] for row in rows))


def scores(rows: list[Row], column: str = FINAL, **factors: object) -> dict[str, np.ndarray]:
    """Environment -> one score a seed, of the rows with these factors."""
    by_env: dict[str, list[float]] = {}
    for row in select(rows, **factors):
        by_env.setdefault(row["env"], []).append(row[column])
    return {env: np.array(values, dtype=float) for env, values in by_env.items()}


def shared(first: dict[str, np.ndarray], *others: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """The same scores, of the environments that all of them have."""
    envs = [env for env in first if all(env in other for other in others)]
    return [{env: each[env] for env in envs} for each in (first, *others)]
