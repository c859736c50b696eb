"""Pictures of what is kept of a return when the number of environments changes: in the mean over tasks, and by task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from isobatch.drawing import COLORS, new_panels
from isobatch.formatting import fraction_text
from isobatch.statistics.bootstrap import Estimate
from isobatch.studies.figures import finished, panels_for
from isobatch.studies.grid import Row
from isobatch.studies.kept_returns import BASE, kept_at, moved_scores, sizes, tasks, ways
from isobatch.studies.scores import FINAL, levels, scores, select
from isobatch.studies.verdicts import MEASURES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LIMITS = (-30.0, 170.0)  # per cent: what is beyond is not drawn
WHOLE = Estimate(1.0, 1.0, 1.0)


def draw_kept(rows: list[Row]) -> Figure:
    """Means over tasks, of the final return and of that over the run."""
    figure, panels = new_panels(1, 2, (11.5, 4.0))
    for axes, (column, title) in zip(panels, MEASURES.items(), strict=True):
        for index, way in enumerate(ways(rows)):
            kept = {times: kept_at(rows, column, way, [times]) for times in (*sizes(rows), 1)}
            points = {1.0: WHOLE} | {times: both[1] for times, both in kept.items() if both}
            x = sorted(points)
            low, middle, high = (
                100 * np.array([getattr(points[times], name) for times in x]) for name in ("low", "value", "high")
            )
            bars = (middle - low, high - middle)
            axes.errorbar(
                places(x, index, rows), middle, bars, fmt="o-", color=color(index), markersize=4, capsize=2, label=way
            )
        axes.set_title(title)
        frame(axes, rows)
    count = len(tasks(rows, FINAL))
    return finished(figure, panels, f"kept of the base's return, mean over up to {count} tasks (with 95 % interval)")


def draw_kept_by_task(rows: list[Row]) -> Figure:
    """The seeds of every task and way, and lines through their means."""
    figure, panels = panels_for(tasks(rows, FINAL), (3.4, 2.7))
    for env, axes in panels.items():
        in_env = select(rows, env=env)
        base = float(np.mean(scores(in_env, FINAL, way=BASE)[env]))
        for index, way in enumerate(ways(rows)):
            means = {1.0: 100.0}
            for times in (*sizes(in_env), 1):
                values = 100 * moved_scores(in_env, FINAL, way, [times]).get(env, np.array([])) / base
                if len(values):
                    means[times] = float(np.mean(values))
                    place = places([times] * len(values), index, rows)
                    axes.plot(place, values, "o", color=color(index), alpha=0.35, markersize=3)
            x = sorted(means)
            axes.plot(places(x, index, rows), [means[times] for times in x], "-", color=color(index), label=way)
        frame(axes, rows)
    seeds = len(levels(rows, "seed"))
    return finished(figure, panels.values(), f"kept of the base's final return ({seeds} seeds and their mean)")


def color(index: int) -> str:
    return COLORS[index % len(COLORS)]


def places(times: list[float], index: int, rows: list[Row]) -> np.ndarray:
    """On a logarithmic axis, the ways beside each other."""
    return np.log2(times) + 0.08 * (index - (len(ways(rows)) - 1) / 2)


def frame(axes: Axes, rows: list[Row]) -> None:
    everywhere = sorted([*sizes(rows), 1.0])
    axes.axhline(100, color="black", linewidth=0.8, linestyle=":")
    axes.set_xticks([float(np.log2(times)) for times in everywhere], [fraction_text(times) for times in everywhere])
    axes.set(xlabel="environments, times the base's", ylabel="% kept", ylim=LIMITS)
