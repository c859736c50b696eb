"""Pictures of what is kept of a return when the number of environments changes: in the mean over tasks, and by task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from isobatch.drawing import COLORS, new_figure
from isobatch.statistics.bootstrap import Estimate
from isobatch.studies.figures import finished, panels_for
from isobatch.studies.grid import Row
from isobatch.studies.kept_returns import kept_at, sizes, tasks, times_text, ways
from isobatch.studies.scores import FINAL, levels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HIGHEST = 150  # per cent: what is above is not drawn to scale


def draw_kept(rows: list[Row]) -> Figure:
    """Mean over tasks."""
    figure, axes = new_figure((7.4, 4.2))
    draw_lines(axes, rows, None)
    count = len(tasks(rows, FINAL))
    return finished(figure, [axes], f"final return kept, mean over {count} tasks (with 95 % interval)")


def draw_kept_by_task(rows: list[Row]) -> Figure:
    figure, panels = panels_for(tasks(rows, FINAL), (3.4, 2.7))
    for env, axes in panels.items():
        draw_lines(axes, rows, env)
    seeds = len(levels(rows, "seed"))
    return finished(figure, panels.values(), f"final return kept ({seeds} seeds, with 95 % interval)")


def draw_lines(axes: Axes, rows: list[Row], env: str | None) -> None:
    """A line for each way over the sizes, on one task or in the mean; its own size is 100 % by definition."""
    everywhere = sorted([*sizes(rows), 1.0])
    for index, way in enumerate(ways(rows)):
        points: dict[float, Estimate] = {}
        for times in everywhere:
            found = kept_at(rows, FINAL, way, [times])
            if found is not None and (env is None or env in found[0]):
                points[times] = found[1] if env is None else found[0][env]
        points.setdefault(1.0, Estimate(1.0, 1.0, 1.0))
        x = np.array(sorted(points))
        low, middle, high = (100 * np.array([getattr(points[t], name) for t in x]) for name in ("low", "value", "high"))
        place = np.log2(x) + 0.08 * (index - (len(ways(rows)) - 1) / 2)  # beside each other
        color = COLORS[index % len(COLORS)]
        axes.errorbar(place, middle, (middle - low, high - middle), fmt="o-", color=color, capsize=2, label=way,
                      markersize=4, linewidth=1.5, elinewidth=0.9)  # fmt: skip
    axes.axhline(100, color="black", linewidth=0.8, linestyle=":")
    axes.set_xticks([float(np.log2(times)) for times in everywhere], [times_text(times) for times in everywhere])
    axes.set(xlabel="environments, times the base's", ylabel="% of the base's return")
    axes.set_ylim(min(-10.0, max(axes.get_ylim()[0], -60.0)), min(max(axes.get_ylim()[1], 110.0), HIGHEST))
