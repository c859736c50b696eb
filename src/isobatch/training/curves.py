"""Learning curves of runs."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isobatch.drawing import COLORS, new_figure, save_figure
from isobatch.errors import UsageError
from isobatch.training.metrics import RETURN, Table

POINTS = 200  # places along the x-axis at which curves are compared


def learning_curves(
    runs: Mapping[str, Table],
    path: Path,
    title: str,
    metric: str = RETURN,
    window: float = 0.02,
    dashed: Collection[str] = (),
) -> None:
    """One line per run, the mean over its seeds, in a band of one standard deviation.

    Each seed's curve is a running mean over `window` of the run, so that runs with few and with many
    lines of metrics can be compared. The runs named in `dashed` are drawn so.
    """
    from matplotlib import ticker

    figure, axes = new_figure()
    for (name, table), color in zip(runs.items(), itertools.cycle(COLORS), strict=False):
        if metric not in table:
            raise UsageError(f"metric={metric!r} is not in {name!r}: use one of {', '.join(list(table)[3:])}.")
        x, curves = seed_curves(table, metric, window)
        measured = ~np.all(np.isnan(curves), axis=0)
        x, curves = x[measured], curves[:, measured]
        mean, std = np.nanmean(curves, axis=0), np.nanstd(curves, axis=0)
        axes.plot(
            x, mean, color=color, label=as_written(name), linewidth=1.8, linestyle="--" if name in dashed else "-"
        )
        axes.fill_between(x, mean - std, mean + std, color=color, alpha=0.15, linewidth=0)
    seeds = max(len(np.unique(table["seed"])) for table in runs.values())
    over = f" (line and band: mean and standard deviation over {seeds} seeds)" if seeds > 1 else ""
    axes.set(xlabel=f"environment steps{over}", ylabel=AXIS_LABELS.get(metric, metric))
    axes.set_title(as_written(title), loc="left")
    axes.xaxis.set_major_formatter(ticker.EngFormatter(sep=""))
    axes.set_xlim(left=0)
    if len(runs) > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    save_figure(figure, path)


def as_written(text: str) -> str:
    """A text that matplotlib shows as it is: neither formulas between dollars nor labels that it hides."""
    shown = text.replace("$", r"\$").replace("\n", " ")
    return f"\u200a{shown}" if shown.startswith("_") else shown


def distinct_labels(paths: Sequence[Path], settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name for each of several runs: the settings that differ where those are few, else the end of its path."""
    if len(paths) == 1:
        return [paths[0].absolute().name]
    names = list(dict.fromkeys(name for each in settings for name in each))
    differ = [name for name in names if len({str(each.get(name)) for each in settings}) > 1]
    for chosen in (["algo"], differ):
        labels = [
            ", ".join(str(each.get(n)) if n in ("algo", "env") else f"{n}={each.get(n)}" for n in chosen)
            for each in settings
        ]
        if 0 < len(chosen) <= MOST_SETTINGS and len(set(labels)) == len(labels):
            return labels
    parts = [path.resolve().parts for path in paths]
    depth = next(n for n in range(1, max(map(len, parts)) + 1) if len({p[-n:] for p in parts}) == len(parts))
    return [str(Path(*p[-depth:])) for p in parts]


MOST_SETTINGS = 3  # that a label names
AXIS_LABELS = {RETURN: "episodic return", "charts/episodic_length": "episode length"}


def seed_curves(
    table: Table, metric: str, window: float, points: int = POINTS, last: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """x [P], as far as the table goes or to `last`, and one smoothed curve a seed [S, P] on it."""
    last = table["env_steps"].max() if last is None else last
    x = np.linspace(0, last, points + 1)[1:]
    curves = []
    for seed in np.unique(table["seed"]):
        rows = (table["seed"] == seed) & ~np.isnan(table[metric])
        steps, values = table["env_steps"][rows], table[metric][rows]
        begin = np.searchsorted(steps, x - window * last, side="right")
        end = np.searchsorted(steps, x, side="right")
        begin = np.minimum(begin, np.maximum(end - 1, 0))  # at least the newest value
        sums = np.concatenate([[0.0], np.cumsum(values)])
        with np.errstate(invalid="ignore"):
            curves.append((sums[end] - sums[begin]) / np.where(end > begin, end - begin, np.nan))
    return x, np.array(curves)
