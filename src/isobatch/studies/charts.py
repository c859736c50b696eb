"""What figures and HTML report of a study show, before drawing: which cells together, curves of seeds, gaps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from isobatch.statistics.comparisons import Difference, difference
from isobatch.statistics.normalization import halves
from isobatch.studies.grid import Row, Study
from isobatch.studies.scores import levels, scores, select, shared, unique_cells, with_episodes
from isobatch.studies.summary_table import in_order, variant_name
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
    colors: dict[str, int | None]  # label -> place of its color, the same in all views; None for a reference, the last


def views_of(study: Study, rows: list[Row], factors: list[str], by: str) -> list[View]:
    """One for each value of the factor `by`, together with the cells that are everywhere; without it one."""
    short = [factor for factor in factors if factor != by] or factors
    rows, labels = in_order(rows, factors), labels_of(study, rows, factors, short)
    parts = list(parts_of(study, rows, labels, by)) if by else [View("", "", rows, labels, {})]
    places = colors_of([colored_labels(study, view) for view in parts])
    legend = [labels[row["cell"]] for row in in_order(rows, short)]
    legend.sort(key=lambda label: label not in places)
    return [replace(view, colors={label: places.get(label) for label in legend}) for view in parts]


def parts_of(study: Study, rows: list[Row], labels: dict[str, str], by: str) -> Iterator[View]:
    for value in levels(rows, by):
        others = [row for row in rows if in_all_views(study, row) and row[by] != value]
        chosen = select(rows, **{by: value})
        if all(in_all_views(study, row) for row in chosen) and len(chosen) < len(rows):
            continue  # they are in all the others
        own = {row["cell"] for row in chosen + others}
        of_view = [row for row in rows if row["cell"] in own]
        yield View(str(value), variant_name(chosen[0], [by]), of_view, labels, {})


def labels_of(study: Study, rows: list[Row], factors: list[str], short: list[str]) -> dict[str, str]:
    """What tells a cell from the others of its view, the `short` factors; of a reference what makes it one."""
    meanings: dict[str, set[str]] = {}
    for row in rows:
        if not is_reference(study, row):
            meanings.setdefault(variant_name(row, short), set()).add(variant_name(row, factors))

    def label(row: Row) -> str:
        if is_reference(study, row):
            return variant_name(row, list(study.reference))
        name = variant_name(row, short)
        # What is in every view meets others of the same name there.
        return variant_name(row, factors) if is_everywhere(study, row) and len(meanings[name]) > 1 else name

    return {row["cell"]: label(row) for row in unique_cells(rows)}


def colored_labels(study: Study, view: View) -> list[str]:
    """Those of a view that have a color, what is everywhere first."""
    own = [row for row in view.rows if not is_reference(study, row)]
    ordered = sorted(own, key=lambda row: not is_everywhere(study, row))
    return list(dict.fromkeys(view.labels[row["cell"]] for row in ordered))


def colors_of(pictures: list[list[str]]) -> dict[str, int]:
    """One place for each label in all pictures: the first that no label has which it meets in any."""
    places: dict[str, int] = {}
    for label in dict.fromkeys(each for labels in pictures for each in labels):
        beside = {places.get(other) for labels in pictures if label in labels for other in labels}
        places[label] = next(place for place in count() if place not in beside)
    return places


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
    square_root: bool = False  # the axis

    def variants_on(self, env: str) -> list[str]:
        return [variant for variant in self.variants if (variant, env) in self.differences]


def gaps_of(study: Study, rows: list[Row]) -> Bars | None:
    """The base's batch minus the smallest (figure 3); nothing where there are no two batch sizes, or not yet."""
    rows = with_episodes(rows)
    if not study.divisor or len(levels(rows, study.divisor)) < 2:
        return None
    smallest = levels(rows, study.divisor)[-1]
    at_smallest = select(rows, **{study.divisor: smallest})
    base = scores([row for row in rows if is_everywhere(study, row)])
    variants, envs = levels(at_smallest, study.pictures), [env for env in base if env in levels(at_smallest, "env")]
    differences = {}
    for variant in variants:
        small = scores(at_smallest, **{study.pictures: variant})
        for env in envs:
            if env in small:
                _, differences[variant, env] = difference({env: base[env]}, {env: small[env]})
    if not differences:
        return None
    title = f"the base's batch minus 1/{smallest} of it"
    note = (
        f"Normalized final return of the base's batch minus that of 1/{smallest} of it, with 95 % interval, on a "
        "square-root axis. Near 0 the batch size does not matter."
    )
    return Bars(title, "gap in normalized final return", note, variants, envs, differences, square_root=True)


def pairs_of(study: Study, rows: list[Row]) -> Bars | None:
    """Of the pairs that a study names (figure 4, right); nothing where it names none, or none is finished."""
    rows, differences = with_episodes(rows), {}
    for variant, (x, y) in study.pairs.items():
        first, second = (scores([row for row in rows if has_factors(row, which)]) for which in (x, y))
        first, second = shared(first, second)
        for env in first:
            differences[variant, env] = difference({env: first[env]}, {env: second[env]})[1]
    if not differences:
        return None
    envs = [env for env in levels(rows, "env") if any(env == of for _, of in differences)]
    variants = [variant for variant in study.pairs if any(variant == of for of, _ in differences)]
    note = "Difference in normalized final return, with 95 % interval."
    if halves(envs):
        note += " The paper's settings were tuned on the games left of the line."
    return Bars("by environment", "difference in normalized final return", note, variants, envs, differences)
