"""What the charts of a study's page are drawn from, as plain JSON: the curves of all seeds, scores and gaps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from isobatch.errors import UsageError
from isobatch.statistics.normalization import range_of
from isobatch.studies.grid import Row, Study
from isobatch.studies.scores import FINAL, MEAN, levels
from isobatch.studies.summary import ALL, Line, by_variant, variant_name
from isobatch.studies.views import WINDOW, View, gaps_of, seed_lines, views_of
from isobatch.training.curves import POINTS
from isobatch.training.metrics import LENGTH, RETURN, Table

KL = "losses/approx_kl"
NORMALISED = "normalized"  # made of the return in the browser
METRICS = {
    RETURN: "episodic return",
    NORMALISED: "normalized return",
    LENGTH: "episode length",
    KL: "KL to the behavior policy",
}
VALUES = 150_000  # numbers of curves on a page, which keeps it around a megabyte
FEWEST_POINTS = 40


def page_data(
    study: Study, rows: list[Row], curves: dict[str, Table], factors: list[str], table: list[Line]
) -> dict[str, Any]:
    """`table` is what `summary.summarise_rows` made of the rows."""
    measured = [metric for metric in METRICS if metric != NORMALISED]
    runs = len({(row["cell"], row["seed"]) for row in rows})
    points = min(POINTS, longest_run(curves), max(FEWEST_POINTS, VALUES // (runs * len(measured))))
    ends: dict[str, int] = {}
    for row in rows:
        ends[row["env"]] = max(ends.get(row["env"], 0), row["env_steps"])
    cells = {
        row["cell"]: cell_data(row["cell"], rows, curves.get(row["cell"]), measured, points, ends[row["env"]])
        for row in rows
    }
    environments = [{"name": env, "last": last, "range": known_range(study, env)} for env, last in ends.items()]
    normalized = any(env["range"] for env in environments)
    return {
        "metrics": [[name, label] for name, label in METRICS.items() if name != NORMALISED or normalized],
        "normalized": [NORMALISED, RETURN],
        "points": points,
        "window": WINDOW,
        "environments": environments,
        "cells": cells,
        "views": [view_data(view) for view in all_views(study, rows, factors)],
        "scores": scores_data(rows, factors, table),
        "gaps": gaps_data(study, rows),
    }


def longest_run(curves: dict[str, Table]) -> int:
    """In lines; more points than that would draw steps."""
    return max((int(np.unique(table["seed"], return_counts=True)[1].max()) for table in curves.values()), default=1)


def cell_data(
    cell: str, rows: list[Row], table: Table | None, metrics: list[str], points: int, last: int
) -> dict[str, Any]:
    """The curves of its seeds on a common x-axis, and the seeds that diverged."""
    own = [row for row in rows if row["cell"] == cell]
    lines: dict[str, list[list[float | None]]] = {metric: [] for metric in metrics}
    seeds: list[int] = []
    if table is not None and len(table["seed"]):
        seeds = np.unique(table["seed"]).tolist()
        for metric in metrics:
            _, found = seed_lines(table, metric, points, last)
            lines[metric] = [[short(value) for value in line] for line in found]
    diverged = {str(row["seed"]): row["diverged_at"] for row in own if row["diverged"]}
    return {"runs": len(own), "seeds": seeds, "lines": lines, "diverged": diverged}


def known_range(study: Study, env: str) -> list[float] | None:
    try:
        found = range_of(env, study.ranges)
    except UsageError:
        return None
    return [found.low, found.high]


def all_views(study: Study, rows: list[Row], factors: list[str]) -> list[View]:
    """Those of the pictures, and everything at once where there are several."""
    views = views_of(study, rows, factors)
    labels = {row["cell"]: variant_name(row, factors) for row in rows}
    return [*views, View("", "everything", rows, labels)] if len(views) > 1 else views


def view_data(view: View) -> dict[str, Any]:
    """Lines by their labels, each with its cell in every environment that has one."""
    lines: dict[str, dict[str, str]] = {}
    for row in view.rows:
        lines.setdefault(view.labels[row["cell"]], {})[row["env"]] = row["cell"]
    return {"title": view.title, "lines": [{"label": label, "cells": cells} for label, cells in lines.items()]}


def scores_data(rows: list[Row], factors: list[str], table: list[Line]) -> list[dict[str, Any]]:
    """Seeds and mean with interval, for each line of the table; all environments first."""
    found = []
    for line in sorted(table, key=lambda line: line["env"] != ALL):
        own = by_variant([row for row in rows if line["env"] in (ALL, row["env"])], factors)[line["variant"]]
        entry: dict[str, Any] = {"env": line["env"], "variant": line["variant"], "diverged": line["diverged"]}
        for column in (FINAL, MEAN):
            estimate = {name: short(line[column][name]) for name in ("value", "low", "high")}
            entry[column] = estimate | {"seeds": [short(row[column]) for row in own]}
        found.append(entry)
    return found


def gaps_data(study: Study, rows: list[Row]) -> dict[str, Any] | None:
    found = gaps_of(study, rows)
    if found is None:
        return None
    bars = [
        {"variant": variant, "env": env, "value": short(gap.value.value), "error": short(gap.error)}
        for (variant, env), gap in found.found.items()
    ]
    return {"divisor": found.divisor, "variants": found.variants, "envs": found.envs, "bars": bars}


def varying_settings(rows: list[Row], factors: list[str]) -> tuple[list[str], list[str]]:
    """Names of the settings that differ between cells, and of those that all share."""
    columns = list(rows[0])
    settings = ["algo", *factors, *columns[columns.index("version") + 1 :]]
    names = [name for name in dict.fromkeys(settings) if name in columns]
    vary = [name for name in names if len(levels(rows, name)) > 1]
    return vary, [name for name in names if name not in vary]


def short(value: float) -> float | None:
    """Four digits, and nothing for what is not a number."""
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.4g}")
    return int(rounded) if rounded.is_integer() else rounded
