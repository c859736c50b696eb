"""What figures and HTML report of a study show, before drawing: which cells together, curves of seeds, gaps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from isobatch.statistics.comparisons import Difference, difference
from isobatch.statistics.normalization import halves
from isobatch.studies.grid import Row, Study
from isobatch.studies.scores import levels, scores, select, shared
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


def views_of(study: Study, rows: list[Row], factors: list[str], by: str) -> list[View]:
    """One for each value of the factor `by`, together with the cells that are everywhere; without it one."""
    if not by:
        return [View("", "", rows, {row["cell"]: variant_name(row, factors) for row in rows})]
    views = []
    short = [factor for factor in factors if factor != by] or factors
    for value in levels(rows, by):
        others = [row for row in rows if in_all_views(study, row) and row[by] != value]
        chosen = select(rows, **{by: value})
        if all(in_all_views(study, row) for row in chosen) and len(chosen) < len(rows):
            continue  # they are in all the others
        labels = {row["cell"]: variant_name(row, factors) for row in others}
        labels |= {row["cell"]: variant_name(row, short) for row in chosen}
        views.append(View(str(value), variant_name(chosen[0], [by]), others + chosen, labels))
    return views


def in_all_views(study: Study, row: Row) -> bool:
    return is_everywhere(study, row) or is_reference(study, row)


def is_everywhere(study: Study, row: Row) -> bool:
    return has_factors(row, study.everywhere)


def is_reference(study: Study, row: Row) -> bool:
    return has_factors(row, study.reference)


def has_factors(row: Row, factors: Mapping[str, object]) -> bool:
    """Whether a row is of cells that are named by some factors; nothing is where none are."""
    return bool(factors) and all(row[name] == value for name, value in factors.items())


def seed_lines(
    table: Table, metric: str, points: int = POINTS, last: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """x [P] and a smooth curve for each seed [S, P]; one that diverged ends where it did, and is not a number after."""
    x, lines = seed_curves(table, metric, WINDOW, points, last)
    ends = [table["env_steps"][table["seed"] == seed].max() for seed in np.unique(table["seed"])]
    return x, np.where(x[None] <= np.array(ends)[:, None], lines, np.nan)


def longest_run(curves: dict[str, Table]) -> int:
    """In lines; more points than that would draw steps."""
    return max((int(np.unique(table["seed"], return_counts=True)[1].max()) for table in curves.values()), default=1)


@dataclass(frozen=True)
class Bars:
    """Differences in normalized final return, by environment and variant."""

    title: str
    axis: str
    note: str
    variants: list[str]
    envs: list[str]
    differences: dict[tuple[str, str], Difference]  # by variant and environment


def gaps_of(study: Study, rows: list[Row]) -> Bars | None:
    """The largest batch minus the smallest (figure 3); nothing where there are no two batch sizes, or not yet."""
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
    if not differences:
        return None
    title = f"the largest batch minus 1/{smallest} of it"
    note = (
        f"Normalized final return of the largest batch minus that of 1/{smallest} of it, with 95 % interval, on a "
        "square-root axis. Near 0 the batch size does not matter."
    )
    return Bars(title, "gap in normalized final return", note, variants, envs, differences)


def pairs_of(study: Study, rows: list[Row]) -> Bars | None:
    """Of the pairs that a study names (figure 4, right); nothing where it names none, or none is finished."""
    differences = {}
    for variant, (x, y) in study.pairs.items():
        first, second = (scores([row for row in rows if has_factors(row, which)]) for which in (x, y))
        first, second = shared(first, second)
        for env in first:
            differences[variant, env] = difference({env: first[env]}, {env: second[env]})[1]
    if not differences:
        return None
    envs = [env for env in levels(rows, "env") if any(env == of for _, of in differences)]
    variants = [variant for variant in study.pairs if any(variant == of for of, _ in differences)]
    note = "Difference in normalized final return, with 95 % interval, on a square-root axis."
    if halves(envs):
        note += " The paper's settings were tuned on the games left of the line."
    return Bars("by environment", "difference in normalized final return", note, variants, envs, differences)
