"""The critical batch size over training, by branches and by the noise scale: where do they agree?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from isobatch.drawing import new_figure, save_figure
from isobatch.formatting import number, rounded, with_interval
from isobatch.laboratory.known import METHODS, CriticalBatch, Method
from isobatch.laboratory.sections.plotting import INTERVALS, TEXT_SIZE, draw_points
from isobatch.laboratory.sections.section import TextTable
from isobatch.statistics.bootstrap import Estimate


def table_over_training(critical_batches: Sequence[CriticalBatch]) -> TextTable:
    """One line for each policy that was measured."""
    rows = []
    for env_steps in sorted({entry.env_steps for entry in critical_batches}):
        branches, noise = (_estimate(critical_batches, env_steps, method) for method in METHODS)
        cells = ["-" if each is None else with_interval(each, lambda x: number(x, 0)) for each in (branches, noise)]
        rows.append([f"{env_steps:,}", *cells, *_compared(branches, noise)])
    columns = ["after steps", "by branches", "noise scale", "ratio", "intervals"]
    title = "Critical batch size over training, in samples of a gradient step, with 95 % intervals"
    return TextTable(title, columns, rows)


def _compared(branches: Estimate | None, noise: Estimate | None) -> tuple[str, str]:
    """Noise scale / branches, and whether their intervals have anything in common."""
    if branches is None or noise is None or not math.isfinite(noise.value / branches.value):
        return "-", "-"
    return rounded(noise.value / branches.value), "overlap" if branches.overlaps(noise) else "apart"


def _estimate(critical_batches: Sequence[CriticalBatch], env_steps: int, method: Method) -> Estimate | None:
    return next(
        (each.estimate for each in critical_batches if (each.env_steps, each.method) == (env_steps, method)), None
    )


def draw_critical_batches(critical_batches: Sequence[CriticalBatch], own_batch: int, path: Path, title: str) -> None:
    from matplotlib import ticker

    figure, axes = new_figure((8, 4.6))
    axes.set(yscale="log", xlabel="environment steps", ylabel="critical batch size, samples")
    last = max(entry.env_steps for entry in critical_batches)
    axes.set_xlim(0, 1.08 * last)
    for color, (method, style) in enumerate(zip(METHODS, ("o-", "s--"), strict=True)):
        mine = [entry for entry in critical_batches if entry.method == method]
        steps = np.array([entry.env_steps for entry in mine])
        draw_points(axes, steps + 0.006 * color * last, [entry.estimate for entry in mine], style, color, method)
    axes.axhline(own_batch, color="0.4", linestyle=":", linewidth=1.2, label="this run's batch")
    axes.xaxis.set_major_formatter(ticker.EngFormatter(sep=""))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.legend(fontsize=TEXT_SIZE, frameon=False)
    axes.set_title(f"{title}: critical batch size over training\n{INTERVALS}", fontsize=10)
    save_figure(figure, path)
