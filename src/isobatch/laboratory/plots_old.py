"""Pictures of a diagnosis. They read the JSON of `diagnosis` and draw, nothing more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from isobatch.drawing import COLORS, new_figure, save_figure

Found = dict[str, Any]
INTERVALS = "bars: 95 % intervals; open triangle: below this"


def draw_all(result: Found, folder: Path, title: str) -> list[Path]:
    """One picture a section, into `folder`."""
    drawn = []
    for section, draw in DRAW.items():
        if section in result:
            path = folder / f"{result['iteration']:09d}-{section}.png"
            draw(result[section], path, title)
            drawn.append(path)
    return drawn


def geometries(found: Found, path: Path, title: str) -> None:
    """Variance, squared bias and error against T at equal data, effective samples, and time."""
    figure, (left, middle, right) = new_figure(1, 3, (13, 4.2))
    left.set(xscale="log", yscale="log", ylabel="squared length of gradients", title="Error at equal data")
    middle.set(xscale="log", yscale="log", ylabel="independent samples", title="What the batch is worth")
    rows = found["rows"]
    steps = np.array([row["num_steps"] for row in rows])
    series = (("variance", 0, "o-"), ("squared_bias", 1, "s--"), ("error", 6, "D-"))
    for i, (name, color, style) in enumerate(series):
        _points(left, steps * 1.05 ** (i - 1), [row[name] for row in rows], style, color, name.replace("_", " "))
    measured = [(t, row["measured_variance"]) for t, row in zip(steps, rows, strict=True) if "measured_variance" in row]
    if measured:
        x, values = zip(*measured, strict=True)
        _points(left, np.array(x) * 1.12, list(values), "^", 2, "variance, measured on whole batches")
    _points(middle, steps, [row["effective_samples"] for row in rows], "o-", 0, "effective samples")
    middle.axhline(found["budget"], color="0.4", linestyle=":", linewidth=1.2, label="samples")
    right.plot(steps, [1e3 * row["seconds_per_batch"] for row in rows], "o-", color=COLORS[3])
    right.set(xscale="log", ylabel="milliseconds", title="Time to collect it, and one gradient")
    right.set_ylim(bottom=0)
    for axes in (left, middle, right):
        axes.set_xticks(steps, [f"{row['num_envs']}x{row['num_steps']}" for row in rows], rotation=60, fontsize=8)
        axes.minorticks_off()
        axes.set_xlabel("environments x steps")
    left.legend(fontsize=8, frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.3))
    middle.legend(fontsize=8, frameon=False, loc="lower right")
    plain_numbers(middle)
    resets = "staggered resets" if found["staggered_resets"] else "environments reset together"
    figure.suptitle(f"{title}: {found['budget']:,} samples, {resets} ({INTERVALS})", fontsize=10)
    save_figure(figure, path)


def plain_numbers(axes: Any) -> None:
    """A logarithmic axis with few powers of ten on it, labeled in between as well."""
    from matplotlib import ticker

    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.0f}"))


def lambdas(found: Found, path: Path, title: str) -> None:
    """Variance, squared bias and error against lambda, for each rollout length."""
    lengths = sorted({row["num_steps"] for row in found["rows"]})
    figure, panels = new_figure(1, len(lengths), (4.4 * len(lengths), 4))
    for axes, steps in zip(np.atleast_1d(panels), lengths, strict=True):
        rows = [row for row in found["rows"] if row["num_steps"] == steps]
        x = np.arange(len(rows))
        axes.set(yscale="log", xlabel="lambda", title=f"{rows[0]['num_envs']}x{steps}")
        for i, (name, color) in enumerate((("variance", 0), ("squared_bias", 1), ("error", 6))):
            _points(axes, x + 0.06 * (i - 1), [row[name] for row in rows], "o-", color, name.replace("_", " "))
        axes.set_xticks(x, [f"{row['gae_lambda']:g}" for row in rows])
    np.atleast_1d(panels)[0].set_ylabel("squared length of gradients")
    np.atleast_1d(panels)[0].legend(fontsize=8, frameon=False)
    figure.suptitle(f"{title}: the effect of lambda ({INTERVALS})", fontsize=10)
    save_figure(figure, path)


def lags(found: Found, path: Path, title: str) -> None:
    """Covariance form of the correlation against lag, and where the variance of a rollout comes from."""
    figure, (left, right) = new_figure(1, 2, (11, 4))
    x = [row["lag"] for row in found["correlation"]]
    _points(left, np.array(x), [row["estimate"] for row in found["correlation"]], "o-", 0, "within a trajectory")
    left.axhline(0, color="0.4", linewidth=1)
    left.set(xscale="log", xlabel="lag", ylabel="covariance / variance of one sample", title="Correlation against lag")
    left.set_xticks(x, [str(lag) for lag in x])
    left.minorticks_off()
    parts = found["shares"]
    y = np.arange(len(parts))[::-1]
    values = np.array([part["estimate"]["value"] for part in parts])
    right.barh(y, values, color=[COLORS[0] if v >= 0 else COLORS[1] for v in values], alpha=0.75)
    right.errorbar(values, y, xerr=_bars([part["estimate"] for part in parts]), fmt="none", ecolor="0.2", capsize=2)
    right.set_yticks(y, [part["part"] for part in parts], fontsize=8)
    right.axvline(0, color="0.4", linewidth=1)
    right.set(xlabel="share", title=f"Variance of a rollout of {found['num_steps']} steps: where it comes from")
    figure.suptitle(f"{title}, lambda {found['gae_lambda']:g} ({INTERVALS})", fontsize=10)
    save_figure(figure, path)


def cosines(found: Found, path: Path, title: str) -> None:
    """Histograms of cosines within and across trajectories and with the batch mean; cosines between batches."""
    figure, (left, middle, right) = new_figure(1, 3, (13, 4))
    histograms(left, found, tuple(found["within"]), "Pairs of samples")
    middle.stairs(found["with_mean"]["density"], found["edges"], color=COLORS[0], fill=True, alpha=0.6)
    middle.set(xlabel="cosine", title="Samples with the mean of their batch")
    heatmap(right, np.array(found["batches"])[:12, :12], "Gradients of independent batches")
    figure.suptitle(f"{title}, batches of {found['num_envs']}x{found['num_steps']}", fontsize=10)
    save_figure(figure, path)


def histograms(axes: Any, found: Found, lags: tuple[str, ...], title: str) -> None:
    """Cosines of pairs within a trajectory at these lags, and across trajectories."""
    for i, lag in enumerate(lags):
        if lag in found["within"]:
            density = found["within"][lag]["density"]
            axes.stairs(density, found["edges"], color=COLORS[i], label=f"lag {lag}", linewidth=1.4)
    if found["across"]:
        density = found["across"]["density"]
        axes.stairs(density, found["edges"], color="0.3", linestyle="--", label="across", linewidth=1.6)
    axes.set(xlabel="cosine of centered gradients", ylabel="density", title=title)
    axes.legend(fontsize=8, frameon=False)


def heatmap(axes: Any, matrix: np.ndarray, title: str) -> None:
    """A matrix of cosines; each cell with its number where there is room."""
    image = axes.imshow(matrix, vmin=-1, vmax=1, cmap="RdBu_r")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(title)
    if len(matrix) <= 6:
        for (i, j), value in np.ndenumerate(matrix):
            color = "white" if abs(value) > 0.6 else "black"
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=8, color=color)
    axes.figure.colorbar(image, ax=axes, fraction=0.046)


def minibatches(found: Found, path: Path, title: str) -> None:
    """The variance that minibatches add."""
    figure, axes = new_figure()
    rows = [row for row in found["rows"] if row["added"]["value"] > 0]
    sizes = np.array([row["size"] for row in rows])
    _points(axes, sizes, [row["added"] for row in rows], "o-", 0, "shuffled samples")
    whole = [row for row in rows if "added_by_rows" in row]
    if whole:
        x = np.array([row["size"] for row in whole]) * 1.04
        _points(axes, x, [row["added_by_rows"] for row in whole], "s--", 1, "whole environment rows")
    squared = found["rows"][0]["squared_batch_gradient"]["value"]
    axes.axhline(squared, color="0.4", linestyle=":", label="|gradient of the batch|²")
    axes.set(
        xscale="log", yscale="log", xlabel="samples in a minibatch", ylabel="variance added to the batch's gradient"
    )
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.legend(frameon=False)
    axes.set_title(f"{title}, batches of {found['num_envs']}x{found['num_steps']}", fontsize=10)
    save_figure(figure, path)


def restraint(found: Found, path: Path, title: str) -> None:
    """What clipping, or the KL penalty, does over the epochs."""
    figure, (left, right) = new_figure(1, 2, (11, 4))
    epochs = np.array([row["epoch"] for row in found["rows"]])
    _points(left, epochs, [row["cosine"] for row in found["rows"]], "o-", 0, "cosine")
    _points(left, epochs, [row["length_ratio"] for row in found["rows"]], "s--", 1, "ratio of lengths")
    left.set(xlabel="epochs on the same batch", title="Gradient with the restraint against the one without")
    left.legend(frameon=False)
    _points(right, epochs, [row["clip_fraction"] for row in found["rows"]], "o-", 2, "samples out of range")
    _points(right, epochs, [row["kl"] for row in found["rows"]], "s--", 3, "KL from the behavior policy")
    right.set(xlabel="epochs on the same batch", title="How far the policy has moved")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.set_xticks(epochs)
    figure.suptitle(f"{title}, objective {found['objective']}", fontsize=10)
    save_figure(figure, path)


def training_time(results: list[Found], path: Path, title: str) -> None:
    """Error, effective samples and critical batch size of some geometries over the checkpoints of a run."""
    from matplotlib import ticker

    figure, panels = new_figure(1, 3, (13, 4))
    for axes in panels:
        axes.set(yscale="log", xlabel="environment steps")
    steps = np.array([result["env_steps"] for result in results])
    first = results[0]["geometries"]["rows"]
    shown = np.unique(np.linspace(0, len(first) - 1, min(5, len(first))).round().astype(int))
    for color, place in enumerate(shown):
        rows = [result["geometries"]["rows"][place] for result in results]
        name = f"{first[place]['num_envs']}x{first[place]['num_steps']}"
        for axes, quantity in zip(panels, ("error", "effective_samples", "critical_batch"), strict=True):
            _points(axes, steps, [row[quantity] for row in rows], "o-", color, name)
    titles = ("mean squared error of the gradient", "effective samples", "critical batch size")
    for axes, words in zip(panels, titles, strict=True):
        axes.set_title(words)
        axes.xaxis.set_major_formatter(ticker.EngFormatter(sep=""))
    panels[0].legend(fontsize=8, frameon=False)
    figure.suptitle(f"{title}: over training ({INTERVALS})", fontsize=10)
    save_figure(figure, path)


def _points(axes: Any, x: np.ndarray, estimates: list[Found], style: str, color: int, label: str) -> None:
    """Values with their intervals. On a logarithmic axis one that may be zero is an open triangle at its upper end."""
    x, log = np.asarray(x), axes.get_yscale() == "log"
    there = [i for i, e in enumerate(estimates) if e["value"] is not None]
    small = [i for i in there if log and (estimates[i]["low"] or 0) <= 0 and estimates[i]["low"] is not None]
    shown = [i for i in there if i not in small]
    values = np.array([estimates[i]["value"] for i in shown])
    axes.errorbar(
        x[shown], values, yerr=_bars([estimates[i] for i in shown]), fmt=style, color=COLORS[color], label=label,
        capsize=2, markersize=4.5, linewidth=1.4, elinewidth=1,
    )  # fmt: skip
    ends = [(x[i], estimates[i]["high"]) for i in small if estimates[i]["high"] is not None]
    if ends:
        axes.plot(*zip(*ends, strict=True), "v", color=COLORS[color], markerfacecolor="none", markersize=5, alpha=0.8)


def _bars(estimates: list[Found]) -> np.ndarray:
    """Distances to the ends of the intervals, [2, n]; none where an end is not known."""
    ends = [
        (e["value"] - e["low"], e["high"] - e["value"]) if None not in (e["low"], e["high"]) else (0.0, 0.0)
        for e in estimates
    ]
    return np.maximum(np.array(ends, float).T, 0.0)


DRAW = {
    "geometries": geometries,
    "lambdas": lambdas,
    "lags": lags,
    "cosines": cosines,
    "minibatches": minibatches,
    "restraint": restraint,
}
