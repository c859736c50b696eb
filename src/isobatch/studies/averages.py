"""Learning curves as the paper draws them: normalized return, averaged over environments, in panels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from isobatch.errors import UsageError
from isobatch.statistics.normalization import ReturnRange, bounds_of, normalize, within
from isobatch.studies.charts import in_all_views, is_reference, seed_lines, views_of
from isobatch.studies.grid import Row, Study
from isobatch.studies.scores import levels, select
from isobatch.studies.summary_table import variant_name
from isobatch.training.curves import POINTS
from isobatch.training.metrics import RETURN, Table


@dataclass(frozen=True)
class MeanLine:
    """Mean over seeds and the ends of a band of one standard deviation, [P], of each seed's mean over environments."""

    label: str
    reference: bool
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

    @property
    def labels(self) -> list[str]:
        """Of all lines; a label has one color in all panels."""
        return list(dict.fromkeys(line.label for panel in self.panels for line in panel.lines))


def averages_of(
    study: Study, rows: list[Row], curves: Mapping[str, Table], factors: list[str], points: int = POINTS
) -> Averages | None:
    """Of the lines that all environments have; nothing where none has, or returns cannot be normalized."""
    envs, by = levels(rows, "env"), study.panels or study.pictures
    lengths = {row["env_steps"] for row in rows}
    x = np.linspace(0, lengths.pop() if len(lengths) == 1 else 1.0, points + 1)[1:]
    x_label = "share of the run" if lengths else "environment steps"
    panels = []
    for view in views_of(study, rows, factors, by):
        lines: dict[str, dict[str, str]] = {}  # label -> environment -> cell
        of_cell = {row["cell"]: row for row in view.rows}
        for cell, row in of_cell.items():
            lines.setdefault(label_of(study, row, factors, by), {})[row["env"]] = cell
        drawn, of_view = [], False  # whether a line is there that is not in every view
        for label, cells in lines.items():
            if list(cells) != envs:
                continue
            try:
                each = [
                    normalized(select(rows, cell=cell), curves.get(cell), points, study.ranges)
                    for cell in cells.values()
                ]
            except UsageError:  # an environment whose returns have no range
                return None
            bounds = np.mean([normalize(env, bounds_of(env), study.ranges) for env in envs], axis=0)
            line = mean_line(label, is_reference(study, of_cell[cells[envs[0]]]), np.mean(each, axis=0), bounds)
            if not np.all(np.isnan(line.mean)):
                drawn.append(line)
                of_view |= not in_all_views(study, of_cell[cells[envs[0]]])
        if of_view:
            panels.append(MeanPanel(view.title, drawn))
    return Averages(x, x_label, envs, panels) if panels else None


def label_of(study: Study, row: Row, factors: list[str], by: str) -> str:
    """What tells a line from the others of its panel; a reference is called by what makes it one."""
    if is_reference(study, row):
        return variant_name(row, list(study.reference))
    return variant_name(row, [factor for factor in factors if factor != by] or factors)


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


def mean_line(label: str, reference: bool, seeds: np.ndarray, bounds: np.ndarray) -> MeanLine:
    """Of lines [S, P]; the band goes no further than episodes can, `bounds`."""
    known = ~np.all(np.isnan(seeds), axis=0)
    mean, deviation = np.full(seeds.shape[1], np.nan), np.full(seeds.shape[1], np.nan)
    mean[known], deviation[known] = np.nanmean(seeds[:, known], axis=0), np.nanstd(seeds[:, known], axis=0)
    return MeanLine(label, reference, mean, *within(mean, deviation, *bounds))
