"""Learning curves as the paper draws them: normalized return, averaged over environments, in panels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from isobatch.errors import UsageError
from isobatch.statistics.normalization import ReturnRange, bounds_of, normalize, within
from isobatch.studies.charts import in_all_views, seed_lines, views_of
from isobatch.studies.grid import Row, Study
from isobatch.studies.scores import levels, select
from isobatch.training.curves import POINTS
from isobatch.training.metrics import RETURN, Table


@dataclass(frozen=True)
class MeanLine:
    """Mean over seeds and the ends of a band of one standard deviation, [P], of each seed's mean over environments."""

    label: str
    color: int | None  # its place; None for the reference
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class MeanPanel:
    title: str
    lines: list[MeanLine]


@dataclass(frozen=True)
class Averages:
    x: np.ndarray  # [P]
    x_label: str
    envs: list[str]
    panels: list[MeanPanel]
    colors: dict[str, int | None]  # of all labels, in the order of the legend
    left_out: list[str]  # panels and lines, since not every environment has them


def averages_of(
    study: Study, rows: list[Row], curves: Mapping[str, Table], factors: list[str], points: int = POINTS
) -> Averages | None:
    """Of the lines that all environments have; nothing where none has, or returns cannot be normalized."""
    envs, by = levels(rows, "env"), study.panels or study.pictures
    lengths = {row["env_steps"] for row in rows}
    x = np.linspace(0, lengths.pop() if len(lengths) == 1 else 1.0, points + 1)[1:]
    x_label = "share of the run" if lengths else "environment steps"
    panels: list[MeanPanel] = []
    without_panel: list[str] = []
    missing: dict[str, list[str]] = {}  # label -> titles of panels
    views = views_of(study, rows, factors, by)
    for view in views:
        lines: dict[str, dict[str, str]] = {}  # label -> environment -> cell
        of_cell = {row["cell"]: row for row in view.rows}
        for cell, row in of_cell.items():
            lines.setdefault(view.labels[cell], {})[row["env"]] = cell
        of_panel, lacking = [], []
        of_view = False  # whether a line is there that is not in every view
        for label, cells in lines.items():
            if list(cells) != envs:
                lacking.append(label)
                continue
            try:
                each = [
                    normalized(select(rows, cell=cell), curves.get(cell), points, study.ranges)
                    for cell in cells.values()
                ]
            except UsageError:  # an environment whose returns have no range
                return None
            bounds = np.mean([normalize(env, bounds_of(env), study.ranges) for env in envs], axis=0)
            line = mean_line(label, view.colors[label], np.mean(each, axis=0), bounds)
            if np.all(np.isnan(line.mean)):
                lacking.append(label)
                continue
            of_panel.append(line)
            of_view |= not in_all_views(study, of_cell[cells[envs[0]]])
        if of_view:
            panels.append(MeanPanel(view.title, of_panel))
            for label in lacking:
                missing.setdefault(label, []).append(view.title)
        else:
            without_panel.append(view.title)
    if not panels:
        return None
    drawn = {line.label for panel in panels for line in panel.lines}
    colors = {label: place for label, place in views[0].colors.items() if label in drawn}
    # A line is named with its panels where others have one of that name.
    lines_out = [f"{label} of {', '.join(titles)}" if label in drawn else label for label, titles in missing.items()]
    return Averages(x, x_label, envs, panels, colors, [*without_panel, *lines_out])


def normalized(runs: list[Row], table: Table | None, points: int, ranges: Mapping[str, ReturnRange]) -> np.ndarray:
    """[seeds, P]: not a number before the first episode ended; 0 from where a run diverged."""
    env, last = runs[0]["env"], max(row["env_steps"] for row in runs)
    lines = np.full((len(runs), points), np.nan)
    if table is not None and len(table["seed"]):
        seeds = np.unique(table["seed"]).tolist()
        _, returns = seed_lines(table, RETURN, points, last)
        for place, row in enumerate(runs):
            if row["seed"] in seeds:
                lines[place] = normalize(env, returns[seeds.index(row["seed"])], ranges)
    x = np.linspace(0, last, points + 1)[1:]
    for place, row in enumerate(runs):
        if row["diverged"]:
            lines[place, x >= row["diverged_at"]] = 0.0
    return lines


def mean_line(label: str, color: int | None, seeds: np.ndarray, bounds: np.ndarray) -> MeanLine:
    """Of lines [S, P]; the band goes no further than episodes can, `bounds`."""
    known = ~np.all(np.isnan(seeds), axis=0)
    mean, deviation = np.full(seeds.shape[1], np.nan), np.full(seeds.shape[1], np.nan)
    mean[known], deviation[known] = np.nanmean(seeds[:, known], axis=0), np.nanstd(seeds[:, known], axis=0)
    return MeanLine(label, color, mean, *within(mean, deviation, *bounds))
