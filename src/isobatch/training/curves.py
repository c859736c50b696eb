"""Learning curves of runs."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from isobatch.drawing import COLORS, new_figure, save_figure
from isobatch.errors import UsageError
from isobatch.statistics.normalization import band
from isobatch.training.metrics import RETURN, Table

FEW_LINES = 30  # lines of metrics, which are marked in a picture: a curve alone would promise more than it has
POINTS = 200  # places along the x-axis at which curves are compared
WIDTH, HEIGHT, LEFT, BOTTOM = 480, 180, 56, 22  # of an SVG, in pixels, and the room for the numbers at its axes


class Run(NamedTuple):
    """What a picture needs of one."""

    path: Path
    settings: Mapping[str, object]  # with its seeds
    metrics: Table


def draw_runs(runs: Sequence[Run], out: Path, metric: str = RETURN) -> None:
    """One picture of several runs, each named by what tells it from the others."""
    labels = distinct_labels([run.path for run in runs], [run.settings for run in runs])
    algos, envs = (", ".join(sorted({str(run.settings[name]) for run in runs})) for name in ("algo", "env"))
    curves = {label: run.metrics for label, run in zip(labels, runs, strict=True)}
    learning_curves(curves, out, f"{algos} on {envs}", metric, env=envs)


def learning_curves(
    runs: Mapping[str, Table],
    path: Path,
    title: str,
    metric: str = RETURN,
    window: float = 0.02,
    dashed: Collection[str] = (),
    env: str = "",
) -> None:
    """One line per run, the mean over its seeds, in a band of one standard deviation: no further than `env` can return.

    Each seed's curve is a running mean over `window` of the run, so that runs with few and with many
    lines of metrics can be compared. The runs named in `dashed` are drawn so.
    """
    from matplotlib import ticker

    figure, axes = new_figure()
    for (name, table), color in zip(runs.items(), itertools.cycle(COLORS), strict=False):
        if metric not in table:
            raise UsageError(f"metric={metric!r} is not in {name!r}: use one of {', '.join(list(table)[3:])}.")
        x, curves = seed_curves(table, metric, window)
        places, measured = places_of_lines(table, metric, x), where_drawn(table, metric, x, curves)
        x, curves = x[measured], curves[:, measured]
        mean, std = np.nanmean(curves, axis=0), np.nanstd(curves, axis=0)
        line, marker = "--" if name in dashed else "-", "o" if len(places) <= FEW_LINES else ""
        axes.plot(x, mean, line, marker=marker, markersize=4, color=color, label=as_written(name), linewidth=1.8)
        low, high = band(env if metric == RETURN else "", mean, std)
        axes.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
    seeds = max(len(np.unique(table["seed"])) for table in runs.values())
    over = f" (line and band: mean and standard deviation over {seeds} seeds)" if seeds > 1 else ""
    axes.set(xlabel=f"environment steps{over}", ylabel=AXIS_LABELS.get(metric, metric))
    axes.set_title(as_written(title), loc="left")
    axes.xaxis.set_major_formatter(ticker.EngFormatter(sep=""))
    axes.set_xlim(left=0)
    if len(runs) > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    save_figure(figure, path)


def places_of_lines(table: Table, metric: str, x: np.ndarray) -> np.ndarray:
    """Which places of `x` stand for lines of metrics: with fewer lines than places there would be steps in between."""
    steps = np.unique(table["env_steps"][~np.isnan(table[metric])])
    return np.unique(np.searchsorted(x, steps[steps <= x[-1]]))


def where_drawn(table: Table, metric: str, x: np.ndarray, curves: np.ndarray) -> np.ndarray:
    """[P], the places of `x` at which curves [S, P] are drawn: of few lines those alone, so that there are no steps."""
    measured = ~np.all(np.isnan(curves), axis=0)
    places = places_of_lines(table, metric, x)
    if len(places) <= POINTS // 2:  # else every place along the axis stands for one
        measured &= np.isin(np.arange(len(x)), places)
    return measured


def as_written(text: str) -> str:
    """A text that matplotlib shows as it is: neither formulas between dollars nor labels that it hides."""
    shown = text.replace("$", r"\$").replace("\n", " ")
    return f"\u200a{shown}" if shown.startswith("_") else shown


def distinct_labels(paths: Sequence[Path], settings: Sequence[Mapping[str, object]]) -> list[str]:
    """A name for each of several runs: the settings that differ where those are few, else the end of its path."""
    if len(paths) == 1:
        return [paths[0].absolute().name]
    names = list(dict.fromkeys(name for each in settings for name in each))
    differ = [name for name in names if len({str(each.get(name)) for each in settings}) > 1]
    for chosen in (["algo"], ["env"], ["algo", "env"], differ):
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


def curve_svg(table: Table) -> str:
    """Return against environment steps, one line for each seed; empty where no episode has ended."""
    if not table or np.all(np.isnan(table[RETURN])):
        return ""
    steps, curves = seed_curves(table, RETURN, window=0.02)
    low, high = float(np.nanmin(curves)), float(np.nanmax(curves))
    x = LEFT + (WIDTH - LEFT) * steps / steps[-1]
    y = (HEIGHT - BOTTOM) * (1 - (curves - low) / ((high - low) or 1))
    lines = "".join(
        f'<polyline fill="none" stroke="{COLORS[i % len(COLORS)]}" stroke-width="1.5" points="{_points(x, each)}"/>'
        for i, each in enumerate(y)
    )
    return (
        f'<svg width="{WIDTH + 10}" height="{HEIGHT + 8}" viewBox="-2 -4 {WIDTH + 12} {HEIGHT + 12}" '
        'font-family="sans-serif" font-size="11" fill="currentColor">'
        f'<path d="M{LEFT} 0V{HEIGHT - BOTTOM}H{WIDTH}" fill="none" stroke="currentColor" opacity="0.4"/>{lines}'
        f'<text x="{LEFT - 4}" y="10" text-anchor="end">{high:,.4g}</text>'
        f'<text x="{LEFT - 4}" y="{HEIGHT - BOTTOM}" text-anchor="end">{low:,.4g}</text>'
        f'<text x="{WIDTH}" y="{HEIGHT - 4}" text-anchor="end">{steps[-1]:,.0f} environment steps</text>'
        f'<text x="{LEFT}" y="{HEIGHT - 4}">episodic return</text></svg>'
    )


def _points(x: np.ndarray, y: np.ndarray) -> str:
    shown = ~np.isnan(y)
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x[shown], y[shown], strict=True))
