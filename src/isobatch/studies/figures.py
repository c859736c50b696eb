"""Figures of a study with matplotlib: learning curves with bands, scores, gaps; PNG and SVG."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from isobatch.drawing import COLORS, new_figure, new_panels, save_figure
from isobatch.errors import RunError, UsageError
from isobatch.settings.presets import bare_id
from isobatch.statistics.aggregates import contrast
from isobatch.statistics.bootstrap import Estimate
from isobatch.statistics.normalization import band, halves, possible
from isobatch.studies.averages import Averages, averages_of
from isobatch.studies.charts import Bars, View, gaps_of, longest_run, pairs_of, seed_lines, views_of
from isobatch.studies.grid import Row, Study
from isobatch.studies.scores import FINAL, MEAN, levels, scores, select, unique_cells, with_episodes
from isobatch.studies.summary_table import by_variant
from isobatch.training.curves import POINTS, where_drawn
from isobatch.training.metrics import RETURN, Table

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg")
PANEL_INCHES = (4.6, 3.6)
SCORES = {FINAL: "in the end", MEAN: "over the run"}


def draw_study(
    study: Study, rows: list[Row], measured: list[Row], curves: dict[str, Table], factors: list[str], out: Path
) -> list[Path]:
    """All figures of the finished cells, and of what the laboratory measured."""
    made = []
    averages = averages_of(study, rows, curves, factors, min(POINTS, longest_run(curves)))
    if averages:
        made += save(draw_averages(averages, study.name, len({row["seed"] for row in rows})), out / "averages")
    envs = levels(rows, "env")
    for view in views_of(study, rows, factors, study.pictures):
        title = f"{study.name}: {view.title}" if view.title else study.name
        name = f"curves-{file_name(view.name)}" if view.name else "curves"
        made += save(draw_curves(view, curves, envs, title), out / name)
    for name, bars in (("gaps", gaps_of(study, rows)), ("pairs", pairs_of(study, rows))):
        if bars:
            made += save(draw_bars(bars, study.name), out / name)
    if study.surface:
        made += save(draw_surface(rows, study.surface, study.name), out / "surface")
    for name, draw in study.drawings.items():
        made += save(draw(rows), out / name)
    if len({(row["num_envs"], row["num_steps"]) for row in measured}) > 1:
        made += save(draw_variance(measured, study.name), out / "variance")
    return [*made, *save(draw_scores(rows, factors, study.name), out / "scores")]


def draw_averages(averages: Averages, title: str, seeds: int) -> Figure:
    """Figures 1, 2 and 4 (left) of the paper: a panel for each treatment, mean and deviation of the seeds."""
    from matplotlib import ticker

    panels = averages.panels
    columns = min(len(panels), 3) if len(panels) != 4 else 2
    rows = -(-len(panels) // columns)
    width, height = PANEL_INCHES
    figure, axes = new_panels(rows, columns, (width * columns + 2, height * rows))
    for unused in axes[len(panels) :]:
        unused.set_axis_off()
    highest = max(float(np.nanmax(line.high)) for panel in panels for line in panel.lines)
    lowest = min(float(np.nanmin(line.low)) for panel in panels for line in panel.lines)
    for panel, place in zip(panels, axes, strict=False):
        for line in panel.lines:
            style, color = look(line.color)
            place.plot(averages.x, line.mean, style, color=color, linewidth=1.8, label=line.label)
            place.fill_between(averages.x, line.low, line.high, color=color, alpha=0.15, linewidth=0)
        place.set(xlabel=averages.x_label, title=panel.title)
        place.set(ylim=(lowest - 0.03, highest + 0.03))
        place.set_xlim(left=0)
        if averages.x[-1] > 1:  # steps, not shares of a run
            place.xaxis.set_major_formatter(ticker.EngFormatter(sep=""))
    for place in axes[::columns]:
        place.set_ylabel("normalized return")
    where = averages.envs[0] if len(averages.envs) == 1 else f"mean over {len(averages.envs)} environments"
    if averages.left_out:
        words = f"Left out, since not every environment has them: {'; '.join(averages.left_out)}."
        letters = int(13 * figure.get_size_inches()[0])
        figure.supxlabel(textwrap.fill(words, letters), x=0.01, ha="left", fontsize=9, color="0.3")
    return finished(figure, axes, f"{title}: {where} (mean and standard deviation of {seeds} seeds)", averages.colors)


def look(place: int | None) -> tuple[str, str]:
    """Line style and color of a line by the place of its color: dashed gray for what others are compared with."""
    if place is None:
        return "--", "0.45"
    again, hue = divmod(place, len(COLORS))
    return ("-", ":", "-.")[min(again, 2)], COLORS[hue]  # where there are more lines than colors


def draw_curves(view: View, curves: dict[str, Table], envs: list[str], title: str) -> Figure:
    """Mean over seeds in a band of one standard deviation; a run that diverged counts as far as it came."""
    from matplotlib import ticker

    there = levels(view.rows, "env")
    figure, panels = panels_for([env for env in envs if env in there], PANEL_INCHES)
    for env, axes in panels.items():
        for row in unique_cells(select(view.rows, env=env)):
            table = curves.get(row["cell"])
            if table is None or not len(table["seed"]):
                continue
            label = view.labels[row["cell"]]
            line, color = look(view.colors[label])
            x, lines = seed_lines(table, RETURN)
            known = where_drawn(table, RETURN, x, lines)
            mean, std = np.nanmean(lines[:, known], axis=0), np.nanstd(lines[:, known], axis=0)
            axes.plot(x[known], mean, line, color=color, linewidth=1.8, label=label)
            axes.fill_between(x[known], *band(env, mean, std), color=color, alpha=0.15, linewidth=0)
        axes.set(xlabel="environment steps", ylabel="episodic return")
        axes.xaxis.set_major_formatter(ticker.EngFormatter(sep=""))
        axes.set_xlim(left=0)
    seeds = len({row["seed"] for row in view.rows})
    return finished(figure, panels.values(), f"{title} (mean and standard deviation of {seeds} seeds)", view.colors)


def draw_scores(rows: list[Row], factors: list[str], title: str) -> Figure:
    """Normalized returns of every variant, in the end and over the run: seeds, and their mean with 95 % interval.

    Each panel has the variants of its environment, with names where they are not those to its left.
    """
    each = {env: by_variant(select(rows, env=env), factors) for env in levels(rows, "env")}
    figure, panels = panels_for(list(each), PANEL_INCHES)
    left: list[str] = []
    for env, axes in panels.items():
        variants, place = list(each[env]), axes.get_subplotspec()
        for y, chosen in enumerate(each[env].values()):
            draw_variant(axes, y, with_episodes(chosen), env)
        axes.set(xlabel="normalized return", yticks=range(len(variants)), ylim=(len(variants) - 0.5, -0.5))
        first = place is not None and place.is_first_col()
        axes.set_yticklabels(variants if first or variants != left else [""] * len(variants))
        left = variants
    set_heights(figure, list(panels.values()), [1.6 + 0.3 * len(variants) for variants in each.values()])
    return finished(figure, panels.values(), f"{title} (seeds, and their mean with 95 % interval)")


def draw_variant(axes: Axes, y: float, rows: list[Row], env: str) -> None:
    """Its seeds and their mean, in the end above over the run; of no rows that there is nothing."""
    if not rows:
        words = "no episode ended"
        axes.text(0.02, y, words, transform=axes.get_yaxis_transform(), va="center", fontsize=8, color="0.4")
    for (column, label), color, shift in zip(SCORES.items() if rows else (), COLORS, (-0.15, 0.15), strict=False):
        values = np.array([row[column] for row in rows])
        axes.plot(values, np.full(len(values), y + shift), "o", color=color, alpha=0.3, markersize=3)
        mean = possible(contrast([(1.0, values)])[0], [env])
        axes.errorbar(mean.value, y + shift, xerr=ends(mean), fmt="D", color=color, markersize=4, label=label)


def set_heights(figure: Figure, panels: list[Axes], inches: list[float]) -> None:
    """Each row of panels as high as its highest."""
    grid = panels[0].get_gridspec()
    if grid is not None:
        heights = [max(inches[at : at + grid.ncols]) for at in range(0, len(inches), grid.ncols)]
        grid.set_height_ratios(heights)
        figure.set_size_inches(figure.get_size_inches()[0], sum(heights))


def draw_bars(bars: Bars, title: str) -> Figure:
    """By environment, those of each side by side in its middle (figure 3, and figure 4 right)."""
    turned = len(bars.envs) > 5
    size = (min(16.0, 4 + len(bars.envs) * (0.4 + 0.3 * len(bars.variants))), PANEL_INCHES[1] + turned)
    figure, axes = new_figure(size)
    width = 0.8 / len(bars.variants)
    for (variant, env), one in bars.differences.items():
        there = bars.variants_on(env)
        x = bars.envs.index(env) + (there.index(variant) - (len(there) - 1) / 2) * width
        color = COLORS[bars.variants.index(variant) % len(COLORS)]
        axes.bar(x, one.value.value, width, yerr=ends(one.value), color=color, label=variant, capsize=2)
    if bars.square_root:
        axes.set_yscale("function", functions=(lambda y: np.sign(y) * np.sqrt(np.abs(y)), lambda y: np.sign(y) * y**2))
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set(xticks=range(len(bars.envs)), ylabel=bars.axis)
    names = [bare_id(env) for env in bars.envs]
    axes.set_xticklabels(names, rotation=35 * turned, ha="right" if turned else "center")
    parts = halves(bars.envs)
    if parts:
        first = len(next(iter(parts.values())))
        axes.axvline(first - 0.5, color="0.4", linestyle=":", linewidth=1.2)
        for name, x in zip(parts, (first / 2 - 0.5, (first + len(bars.envs)) / 2 - 0.5), strict=True):
            axes.text(x, 1.0, name, transform=axes.get_xaxis_transform(), ha="center", va="bottom", fontsize=9)
    return finished(figure, [axes], f"{title}: {bars.title} (with 95 % interval)", bars.variants)


def ends(estimate: Estimate) -> np.ndarray:
    """Lengths of the bars below and above a value, [2, 1]."""
    return np.array([[estimate.value - estimate.low], [estimate.high - estimate.value]])


def draw_surface(rows: list[Row], factors: tuple[str, str], title: str) -> Figure:
    """Normalized return over the run, of every pair of two factors' values."""
    figure, panels = panels_for(levels(rows, "env"), PANEL_INCHES)
    for env, axes in panels.items():
        down, along = (levels(select(rows, env=env), factor) for factor in factors)
        means = np.array(
            [[np.mean(scores(rows, MEAN, env=env, **{factors[0]: y, factors[1]: x})[env]) for x in along] for y in down]
        )
        image = axes.imshow(means, cmap="viridis", origin="lower", aspect="auto")
        for (y, x), value in np.ndenumerate(means):
            dark = value < (means.min() + means.max()) / 2
            axes.text(x, y, f"{value:.2f}", ha="center", va="center", color="white" if dark else "black", fontsize=9)
        axes.grid(visible=False)
        axes.set(xlabel=factors[1].replace("_", " "), ylabel=factors[0].replace("_", " "))
        axes.set(xticks=range(len(along)), xticklabels=[f"{x:g}" for x in along])
        axes.set(yticks=range(len(down)), yticklabels=[f"{y:g}" for y in down])
        figure.colorbar(image, ax=axes)
    return finished(figure, panels.values(), f"{title} (normalized return over the run)")


def draw_variance(measured: list[Row], title: str) -> Figure:
    """Variance of the batch gradient at every shape, of the same policies, early and late in training."""
    figure, panels = panels_for(levels(measured, "env"), PANEL_INCHES)
    for env, axes in panels.items():
        in_env = select(measured, env=env)
        checkpoints = levels(in_env, "env_steps")
        for index, (steps, color) in enumerate(zip(checkpoints, COLORS, strict=False), 1):
            points = select(in_env, env_steps=steps)
            middle, low, high = (
                np.array([row[name] for row in points]) for name in ("variance", "variance_low", "variance_high")
            )
            x, label = np.arange(len(points)), f"{index}/{len(checkpoints)} of the run"
            axes.errorbar(x, middle, (middle - low, high - middle), fmt="o-", color=color, capsize=2, label=label)
        axes.set(xlabel="environments x steps", ylabel="variance of the gradient", yscale="log")
        axes.set(xticks=x, xticklabels=[f"{row['num_envs']} x {row['num_steps']}" for row in points])
    return finished(figure, panels.values(), f"{title}: the laboratory (with 95 % intervals)")


def panels_for(envs: list[str], size: tuple[float, float]) -> tuple[Figure, dict[str, Axes]]:
    """A figure with a panel of a size for each environment: up to three in a row, more of them in a square."""
    columns = len(envs) if len(envs) <= 3 else math.ceil(len(envs) ** 0.5)
    rows = -(-len(envs) // columns)
    figure, panels = new_panels(rows, columns, (size[0] * columns + 2, size[1] * rows))
    for unused in panels[len(envs) :]:
        unused.set_axis_off()
    for env, axes in zip(envs, panels, strict=False):
        axes.set_title(env)
    return figure, dict(zip(envs, panels, strict=False))


def finished(figure: Figure, panels: Iterable[Axes], title: str, order: Iterable[str] = ()) -> Figure:
    """With a title, and a legend outside the data that has each label once, in this order."""
    handles: dict[str, Artist] = {}
    for axes in panels:
        handles |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    handles = {label: handles[label] for label in (*order, *handles) if label in handles}
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside right center", frameon=False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def save(figure: Figure, base: Path) -> list[Path]:
    """Both formats."""
    from matplotlib import rc_context

    paths = []
    for ending in ENDINGS:
        path = base.with_name(base.name + ending)
        try:
            with rc_context({"svg.hashsalt": base.name}):
                save_figure(figure, path)
        except (RunError, UsageError) as error:
            raise RunError(f"{error} What was trained is kept: `isobatch study report` draws it again.") from None
        paths.append(path)
    return paths


def file_name(value: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in value)
