"""What figures and HTML report of a study show, before drawing: which cells together, curves of seeds, gaps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isobatch.statistics.comparisons import Difference, difference
from isobatch.studies.grid import Row, Study
from isobatch.studies.scores import levels, scores, select
from isobatch.studies.summary_table import variant_name
from isobatch.training.curves import POINTS, seed_curves
from isobatch.training.metrics import Table

WINDOW = 0.05  # share of the run that a point of a curve is the mean of


@dataclass(frozen=True)
class View:
    """Cells that are seen together."""

    name: str  # value of the factor that has a view for each of its values; empty where there is none
    title: str
    rows: list[Row]
    labels: dict[str, str]  # cell -> what its line is called; cells of different environments may share one


def views_of(study: Study, rows: list[Row], factors: list[str]) -> list[View]:
    """One for each value of the factor `study.pictures`, together with the cells that are everywhere."""
    if not study.pictures:
        return [View("", "", rows, {row["cell"]: variant_name(row, factors) for row in rows})]
    views = []
    short = [factor for factor in factors if factor != study.pictures] or factors
    for value in levels(rows, study.pictures):
        others = [row for row in rows if is_everywhere(study, row) and row[study.pictures] != value]
        chosen = select(rows, **{study.pictures: value})
        if all(is_everywhere(study, row) for row in chosen) and len(chosen) < len(rows):
            continue  # they are in all the others
        labels = {row["cell"]: variant_name(row, factors) for row in others}
        labels |= {row["cell"]: variant_name(row, short) for row in chosen}
        views.append(View(str(value), variant_name(chosen[0], [study.pictures]), others + chosen, labels))
    return views


def is_everywhere(study: Study, row: Row) -> bool:
    return bool(study.everywhere) and all(row[name] == value for name, value in study.everywhere.items())


def seed_lines(
    table: Table, metric: str, points: int = POINTS, last: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """x [P] and a smooth curve for each seed [S, P]; one that diverged ends where it did, and is not a number after."""
    x, lines = seed_curves(table, metric, WINDOW, points, last)
    ends = [table["env_steps"][table["seed"] == seed].max() for seed in np.unique(table["seed"])]
    return x, np.where(x[None] <= np.array(ends)[:, None], lines, np.nan)


@dataclass(frozen=True)
class Gaps:
    """Final return of the largest batch minus that of the smallest."""

    divisor: int  # of the smallest batch
    variants: list[str]
    envs: list[str]
    differences: dict[tuple[str, str], Difference]  # by variant and environment


def gaps_of(study: Study, rows: list[Row]) -> Gaps | None:
    """By environment and variant; nothing where a study divides no batch, or has not finished two batch sizes yet."""
    if not study.divisor or len(levels(rows, study.divisor)) < 2:
        return None
    smallest = levels(rows, study.divisor)[-1]
    at_smallest = select(rows, **{study.divisor: smallest})
    largest = scores([row for row in rows if is_everywhere(study, row)])
    variants, envs = levels(at_smallest, study.pictures), [env for env in largest if env in levels(at_smallest, "env")]
    differences = {}
    for variant in variants:
        small = scores(at_smallest, **{study.pictures: variant})
        for env in envs:
            if env in small:
                _, differences[variant, env] = difference({env: largest[env]}, {env: small[env]})
    return Gaps(smallest, variants, envs, differences) if differences else None
