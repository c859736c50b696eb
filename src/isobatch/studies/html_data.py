"""The data of the charts in a study's HTML report, as plain JSON: the curves of all seeds, means, scores and bars."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypedDict

import numpy as np

from isobatch.errors import UsageError
from isobatch.settings.parsing import plain_json
from isobatch.statistics.normalization import bounds_of, halves, range_of
from isobatch.studies.averages import Averages, averages_of
from isobatch.studies.charts import WINDOW, Bars, View, gaps_of, longest_run, pairs_of, seed_lines, views_of
from isobatch.studies.grid import Row, Study
from isobatch.studies.scores import FINAL, MEAN, levels, select, with_episodes
from isobatch.studies.summary_table import ALL, SummaryLine, by_variant
from isobatch.training.curves import POINTS
from isobatch.training.metrics import LENGTH, RETURN, Table

KL = "losses/approx_kl"
NORMALIZED = "normalized"  # made of the return in the browser
METRICS = {
    RETURN: "episodic return",
    NORMALIZED: "normalized return",
    LENGTH: "episode length",
    KL: "KL to the behavior policy",
}
CURVE_NUMBERS = 150_000  # on a page, which keeps it around a megabyte
FEWEST_POINTS = 40


class ChartData(TypedDict):
    metrics: list[list[str]]  # name and label
    normalized: list[str]  # the metric that is made in the browser, and the one that it is made of
    points: int  # of a curve
    window: float
    environments: list[dict[str, object]]
    cells: dict[str, dict[str, object]]
    views: list[dict[str, object]]
    scores: list[dict[str, object]]
    averages: dict[str, object] | None
    gaps: dict[str, object] | None
    pairs: dict[str, object] | None


def chart_data(
    study: Study, rows: list[Row], curves: dict[str, Table], factors: list[str], table: list[SummaryLine]
) -> ChartData:
    """`table` is what `summary_table.summarize_rows` made of the rows."""
    measured = [metric for metric in METRICS if metric != NORMALIZED]
    runs = len({(row["cell"], row["seed"]) for row in rows})
    points = min(POINTS, longest_run(curves), max(FEWEST_POINTS, CURVE_NUMBERS // (runs * len(measured))))
    ends: dict[str, int] = {}
    for row in rows:
        ends[row["env"]] = max(ends.get(row["env"], 0), row["env_steps"])
    cells = {
        row["cell"]: cell_data(row["cell"], rows, curves.get(row["cell"]), measured, points, ends[row["env"]])
        for row in rows
    }
    environments = [
        {"name": env, "last": last, "range": known_range(study, env), "bounds": plain_json(bounds_of(env))}
        for env, last in ends.items()
    ]
    normalized = any(env["range"] for env in environments)
    return {
        "metrics": [[name, label] for name, label in METRICS.items() if name != NORMALIZED or normalized],
        "normalized": [NORMALIZED, RETURN],
        "points": points,
        "window": WINDOW,
        "environments": environments,
        "cells": cells,
        "views": [view_data(view) for view in all_views(study, rows, factors)],
        "scores": scores_data(rows, factors, table),
        "averages": averages_data(averages_of(study, rows, curves, factors, points)),
        "gaps": bars_data(gaps_of(study, rows)),
        "pairs": bars_data(pairs_of(study, rows)),
    }


def cell_data(
    cell: str, rows: list[Row], table: Table | None, metrics: list[str], points: int, last: int
) -> dict[str, object]:
    """The curves of its seeds on a common x-axis, and the seeds that diverged."""
    runs = select(rows, cell=cell)
    lines: dict[str, list[list[float | None]]] = {metric: [] for metric in metrics}
    seeds: list[int] = []
    if table is not None and len(table["seed"]):
        seeds = np.unique(table["seed"]).tolist()
        for metric in metrics:
            _, curves = seed_lines(table, metric, points, last)
            lines[metric] = [[short(value) for value in curve] for curve in curves]
    diverged = {str(row["seed"]): row["diverged_at"] for row in runs if row["diverged"]}
    return {"runs": len(runs), "seeds": seeds, "lines": lines, "diverged": diverged}


def known_range(study: Study, env: str) -> list[float] | None:
    try:
        limits = range_of(env, study.ranges)
    except UsageError:
        return None
    return [limits.low, limits.high]


def all_views(study: Study, rows: list[Row], factors: list[str]) -> list[View]:
    """Those of the pictures, and everything at once where there are several."""
    views = views_of(study, rows, factors, study.pictures)
    everything = [replace(view, title="everything") for view in views_of(study, rows, factors, "")]
    return [*views, *everything] if len(views) > 1 else views


def view_data(view: View) -> dict[str, object]:
    """Lines by their labels, each with the place of its color and its cell in every environment that has one."""
    lines: dict[str, dict[str, str]] = {}
    for row in view.rows:
        lines.setdefault(view.labels[row["cell"]], {})[row["env"]] = row["cell"]
    drawn = [{"label": label, "place": view.colors[label], "cells": cells} for label, cells in lines.items()]
    return {"title": view.title, "lines": drawn}


def scores_data(rows: list[Row], factors: list[str], table: list[SummaryLine]) -> list[dict[str, object]]:
    """Seeds and mean with interval, for each line of the table; all environments first."""
    entries = []
    for line in sorted(table, key=lambda line: line["env"] != ALL):
        chosen = by_variant([row for row in rows if line["env"] in (ALL, row["env"])], factors)[line["variant"]]
        entry: dict[str, object] = {"env": line["env"], "variant": line["variant"], "diverged": line["diverged"]}
        for column in (FINAL, MEAN):
            estimate = {name: short(line[column][name]) for name in ("value", "low", "high")}
            entry[column] = estimate | {"seeds": [short(row[column]) for row in with_episodes(chosen)]}
        entries.append(entry)
    return entries


def averages_data(averages: Averages | None) -> dict[str, object] | None:
    if averages is None:
        return None
    panels = [
        {
            "title": panel.title,
            "lines": [
                {"label": line.label, "place": line.color}
                | {name: [short(value) for value in getattr(line, name)] for name in ("mean", "low", "high")}
                for line in panel.lines
            ],
        }
        for panel in averages.panels
    ]
    x = {"last": float(averages.x[-1]), "label": averages.x_label}
    labels = [{"label": label, "place": place} for label, place in averages.colors.items()]
    return {"x": x, "envs": averages.envs, "labels": labels, "left_out": averages.left_out, "panels": panels}


def bars_data(figure: Bars | None) -> dict[str, object] | None:
    if figure is None:
        return None
    bars = [
        {"variant": variant, "env": env} | {end: short(getattr(one.value, end)) for end in ("value", "low", "high")}
        for (variant, env), one in figure.differences.items()
    ]
    sides = [{"name": name, "count": len(envs)} for name, envs in halves(figure.envs).items()]
    drawn = {"variants": figure.variants, "envs": figure.envs, "bars": bars, "sides": sides}
    return {"axis": figure.axis, "square_root": figure.square_root, "note": figure.note} | drawn


def varying_settings(rows: list[Row], factors: list[str]) -> tuple[list[str], list[str]]:
    """Names of the settings that differ between cells, and of those that all share."""
    columns = list(rows[0])
    settings = ["algo", *factors, *columns[columns.index("version") + 1 :]]
    names = [name for name in dict.fromkeys(settings) if name in columns]
    vary = [name for name in names if len(levels(rows, name)) > 1]
    return vary, [name for name in names if name not in vary]


def short(value: float | None) -> float | None:
    """Four digits, and nothing for what is not a number."""
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.4g}")
    return int(rounded) if rounded.is_integer() else rounded
