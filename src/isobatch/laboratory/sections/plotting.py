"""What the drawings of several sections share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from isobatch.drawing import COLORS
from isobatch.statistics.bootstrap import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INTERVALS = "bars: 95 % intervals; arrow: no upper end; open triangle: below this"
TEXT_SIZE = 8  # points, of legends and of tick labels that are many


def draw_points(axes: Axes, x: np.ndarray, estimates: Sequence[Estimate], style: str, color: int, label: str) -> None:
    """Values with their intervals. On a logarithmic axis one that may be zero is an open triangle at its upper end.

    An interval without an upper end is an arrow to the upper edge.
    """
    x, log = np.asarray(x), axes.get_yscale() == "log"
    known = [i for i, e in enumerate(estimates) if not math.isnan(e.value)]
    below = [i for i in known if log and estimates[i].low <= 0]
    shown = [i for i in known if i not in below]
    axes.errorbar(
        x[shown], np.array([estimates[i].value for i in shown]), yerr=bar_lengths([estimates[i] for i in shown]),
        fmt=style, color=COLORS[color], label=label, capsize=2, markersize=4.5, linewidth=1.4, elinewidth=1,
    )  # fmt: skip
    arrow = dict(arrowstyle="->", color=COLORS[color], linewidth=1, shrinkA=0, shrinkB=0)
    for place, e in zip(x, estimates, strict=True):
        begin = e.low if e.low > (0 if log else -math.inf) else e.value
        if e.high == math.inf and math.isfinite(begin):
            edge = ("data", "axes fraction")
            axes.annotate("", (place, 1), (place, begin), xycoords=edge, textcoords="data", arrowprops=arrow)
            axes.plot(place, begin, "_", color=COLORS[color], markersize=5)  # which makes room for it, too
    ends = [(x[i], estimates[i].high) for i in below if math.isfinite(estimates[i].high)]
    if ends:
        axes.plot(*zip(*ends, strict=True), "v", color=COLORS[color], markerfacecolor="none", markersize=5, alpha=0.8)


def draw_level(axes: Axes, estimate: Estimate, color: int, label: str) -> None:
    """One value that belongs to no place on the horizontal axis: a dashed line, its interval as a band."""
    axes.axhline(estimate.value, color=COLORS[color], linestyle="--", linewidth=1.4, label=label)
    if math.isfinite(estimate.low) and math.isfinite(estimate.high):
        axes.axhspan(estimate.low, estimate.high, color=COLORS[color], alpha=0.12, linewidth=0)


def draw_bars(axes: Axes, names: Sequence[str], estimates: Sequence[Estimate], color: str | list[str]) -> None:
    """Values as horizontal bars with their intervals, the first on top."""
    y, values = np.arange(len(names))[::-1], np.array([estimate.value for estimate in estimates])
    axes.barh(y, values, color=color, alpha=0.75)
    axes.errorbar(values, y, xerr=bar_lengths(estimates), fmt="none", ecolor="0.2", capsize=2)
    axes.set_yticks(y, names)


def bar_lengths(estimates: Sequence[Estimate]) -> np.ndarray:
    """Distances to the ends of the intervals, [2, n]; none where an end is not known."""
    bars = [(e.value - e.low, e.high - e.value) for e in estimates]
    return np.maximum(np.array([b if np.isfinite(b).all() else (0.0, 0.0) for b in bars], float).reshape(-1, 2).T, 0.0)


def number_ticks(axes: Axes, values: Sequence[int] | np.ndarray) -> None:
    """Ticks of a logarithmic axis at these values and nowhere else."""
    axes.set_xticks(values, [str(value) for value in values])
    axes.minorticks_off()


def plain_numbers(axes: Axes) -> None:
    """A logarithmic axis with few powers of ten on it, labeled in between as well."""
    from matplotlib import ticker

    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if high > 10 * low else (1, 1.5, 2, 3, 4, 5, 6, 8)))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_minor_locator(ticker.NullLocator())
