"""How much of its return a setting keeps when its number of environments changes: from rows to estimates.

A way is how the other settings follow, `times` the number of environments in multiples of the base's own. A task whose
base cannot be told from random actions has nothing to keep, and is left out.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from isobatch.statistics.bootstrap import Estimate
from isobatch.statistics.retention import kept, learned
from isobatch.studies.grid import Row
from isobatch.studies.scores import FINAL, MEAN, levels, scores, select

BASE = "base"
KEPT = "kept"
DIRECTIONS = {"fewer": "with fewer environments", "more": "with more environments"}
Kept = tuple[dict[str, Estimate], Estimate]  # by task, and in the mean


def tasks(rows: list[Row], column: str) -> list[str]:
    """Those whose base learned something, by this score."""
    return [env for env, values in scores(rows, column, way=BASE).items() if learned(values)]


def ways(rows: list[Row]) -> list[str]:
    return [way for way in levels(rows, "way") if way != BASE]


def sizes(rows: list[Row]) -> list[float]:
    """The multiples of the base's number of environments, from the smallest."""
    return sorted(set(levels(rows, "times")) - {1})


def of_direction(rows: list[Row], direction: str) -> list[float]:
    return [times for times in sizes(rows) if (times < 1) == (direction == "fewer")]


def moved_scores(rows: list[Row], column: str, way: str, times: Iterable[float]) -> dict[str, np.ndarray]:
    """Task -> one score a seed, in the mean over those of these sizes that the task has."""
    chosen = [row for row in select(rows, way=way) if row["times"] in set(times)]
    by_env = {}
    for env in (env for env in tasks(rows, column) if env in levels(chosen, "env")):
        in_env = select(chosen, env=env)
        by_env[env] = np.array(
            [np.mean([row[column] for row in select(in_env, seed=s)]) for s in levels(in_env, "seed")]
        )
    return by_env


def kept_at(rows: list[Row], column: str, way: str, times: Iterable[float]) -> Kept | None:
    """What a way keeps at these sizes; nothing where no task was moved so."""
    moved = moved_scores(rows, column, way, times)
    bases = scores(rows, column, way=BASE)
    return kept(moved, {env: bases[env] for env in moved}) if moved else None


def relative_rows(rows: list[Row]) -> list[Row]:
    """One row for each score, task, way, direction and seed: KEPT is the score in units of the base's mean."""
    relative: list[Row] = []
    for column in (FINAL, MEAN):
        base = {env: np.mean(values) for env, values in scores(rows, column, way=BASE).items()}
        for way in ways(rows):
            for direction in DIRECTIONS:
                for env, values in moved_scores(rows, column, way, of_direction(rows, direction)).items():
                    place = {"score": column, "env": env, "way": way, "direction": direction}
                    relative += [place | {KEPT: value / base[env]} for value in values]
    return relative
