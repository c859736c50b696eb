"""The geometry of a run as a picture: environments x steps, permuted, cut into minibatches, passed over.

Rows of the rollout have a color each, so that one sees what a minibatch is made of; below, every length of the run on
one ruler in environment steps. Drawn to scale where that can be seen, with the numbers where it cannot.
"""

from __future__ import annotations

import math
import random
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from isobatch.formatting import counted
from isobatch.rescaling.rules import advantage_decay
from isobatch.settings.accounting import samples_used
from isobatch.settings.config import Config
from isobatch.settings.geometry import span

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN_ENVS, SHOWN_STEPS = 8, 16  # environments and time steps that are drawn at most
SHOWN_MINIBATCHES = 8  # minibatches that are drawn at most
SHOWN_GRADIENT_STEPS = 8  # gradient steps per epoch that are drawn at most
SHOWN_EPOCHS = 4
TIMES = "\N{MULTIPLICATION SIGN}"
INK, FAINT, ACCENT = "#1b2a38", "#8796a5", "#d1495b"
COLORS = ("#00496b", "#0a7e8c", "#3aa6a0", "#8cc8a0", "#e9c46a", "#f4a261", "#e76f51", "#b5485a")


class Panel(NamedTuple):
    """A rectangle of the picture."""

    left: float
    bottom: float
    width: float
    height: float


def plot_geometry(config: Config, path: Path, time_limit: int | None = None) -> None:
    """Draw `config` into a PNG, SVG or PDF file; of whole episodes, with the samples in use."""
    import matplotlib

    matplotlib.use("Agg", force=False)
    from matplotlib import pyplot

    from isobatch.drawing import save_figure

    with pyplot.rc_context({"font.family": "sans-serif", "font.size": 12, "text.color": INK, "svg.fonttype": "none"}):
        figure = pyplot.figure(figsize=(13.33, 7.5), facecolor="white")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, 133.3), ylim=(0, 75))
        axes.axis("off")
        _title(axes, config)
        _rollout(axes, config, Panel(5, 31, 32, 26), time_limit)
        _arrow(axes, 39, 47, 44, "group rows" if config.minibatch_scheme == "envs" else "permute")
        _minibatches(axes, config, Panel(49, 31, 34, 26), time_limit)
        _arrow(axes, 85, 93, 44, "optimize")
        _gradient_steps(axes, config, Panel(95, 31, 33, 26))
        _ruler(axes, config, left=9, right=124, y=10)
        save_figure(figure, path)


def _title(axes: Axes, config: Config) -> None:
    g = config.geometry
    axes.text(5, 69.5, f"{config.algo} on {config.env}", fontsize=22, weight="bold", va="center")
    caption = (
        f"{counted(config.num_iterations, 'iteration')}: {counted(g.iteration_batch, 'environment step')} become "
        f"{counted(g.gradient_steps, 'gradient step')} in each"
    )
    if g.phase_batch:
        epochs = counted(config.aux_epochs, "epoch")
        caption += f", with an auxiliary phase of {epochs} after every {g.policy_iterations_per_phase:,}"
    axes.text(5, 65, caption, fontsize=13, color=FAINT, va="center")


def _label(axes: Axes, panel: Panel, heading: str, big: str, small: str) -> None:
    """What stands above and below a panel."""
    x, top = panel.left + panel.width / 2, panel.bottom + panel.height
    axes.text(x, top + 1.6, heading, fontsize=13.5, weight="bold", ha="center", va="bottom")
    axes.text(x, panel.bottom - 2.6, big, fontsize=13.5, ha="center", va="top", color=ACCENT, weight="bold")
    axes.text(x, panel.bottom - 5.6, small, fontsize=11, ha="center", va="top", color=FAINT)


def _square(axes: Axes, x: float, y: float, width: float, height: float, color: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    pad = 0.12 * min(width, height)
    axes.add_patch(
        FancyBboxPatch(
            (x + pad, y + pad), width - 2 * pad, height - 2 * pad, boxstyle=f"round,pad=0,rounding_size={pad}",
            facecolor=color, edgecolor="none",
        )
    )  # fmt: skip


def _shown_rows(config: Config) -> list[int | None]:
    """Environments to draw, from the top; None is a gap."""
    n = config.num_envs
    return list(range(1, n + 1)) if n <= SHOWN_ENVS else [*range(1, SHOWN_ENVS - 1), None, n]


def _color(row: int) -> str:
    return COLORS[row % len(COLORS)]


def _rollout(axes: Axes, config: Config, panel: Panel, time_limit: int | None) -> None:
    left, bottom, width, height = panel
    g, rows = config.geometry, _shown_rows(config)
    cells = min(g.num_steps, SHOWN_STEPS)
    high, wide = height / max(len(rows), 6), width / max(cells, 8)
    top = bottom + height / 2 + high * len(rows) / 2
    start = left + (width - wide * cells) / 2
    for i, row in enumerate(rows):
        y = top - (i + 1) * high
        if row is None:
            axes.text(left + width / 2, y + high / 2, "⋮", fontsize=16, ha="center", va="center", color=FAINT)
            continue
        axes.text(start - 0.8, y + high / 2, f"{row:,}", fontsize=10, ha="right", va="center", color=FAINT)
        for k in range(cells):
            _square(axes, start + k * wide, y, wide, high, _color(i))
    axes.annotate(
        "", (start + wide * cells, top - len(rows) * high - 1.2), (start, top - len(rows) * high - 1.2),
        arrowprops={"arrowstyle": "-|>", "color": FAINT, "lw": 1.2},
    )  # fmt: skip
    axes.text(start + wide * cells + 0.4, top - len(rows) * high - 1.2, "time", fontsize=10, color=FAINT, va="center")
    heading = f"{counted(g.num_envs, 'environment')} {TIMES} {counted(g.num_steps, 'step')}"
    big, small = f"iteration batch  {g.iteration_batch:,}", "samples per rollout, one row per environment"
    used = samples_used(config, time_limit)
    if used.bound:
        small = f"of which whole episodes use {used.per_iteration}"
    _label(axes, panel, heading, big, small)


def _cells_of_minibatches(config: Config, blocks: int, each: int) -> list[list[str]]:
    """Colors of the samples of each minibatch, in the proportions of the rows that are drawn."""
    rows = [i for i, row in enumerate(_shown_rows(config)) if row is not None]
    total = blocks * each
    cells = [_color(rows[k * len(rows) // total]) for k in range(total)]
    if config.minibatch_scheme != "envs":
        random.Random(3).shuffle(cells)
    return [cells[i * each : (i + 1) * each] for i in range(blocks)]


def _minibatches(axes: Axes, config: Config, panel: Panel, time_limit: int | None) -> None:
    left, bottom, width, height = panel
    g = config.geometry
    blocks = min(g.num_minibatches, SHOWN_MINIBATCHES)
    columns = min(blocks, 2 if blocks <= 4 else 4)
    lines = -(-blocks // columns)
    side = 4 if blocks > 1 else 8
    gap = 2.0
    cell = min((width - gap * (columns - 1)) / (columns * side), (height - gap * (lines - 1)) / (lines * side))
    start = left + (width - columns * side * cell - gap * (columns - 1)) / 2
    top = bottom + height / 2 + (lines * side * cell + gap * (lines - 1)) / 2
    for b, colors in enumerate(_cells_of_minibatches(config, blocks, side * side)):
        x = start + (b % columns) * (side * cell + gap)
        y = top - (b // columns) * (side * cell + gap)
        for k, color in enumerate(colors):
            _square(axes, x + (k % side) * cell, y - (k // side + 1) * cell, cell, cell, color)
    if g.num_minibatches > blocks:
        more = f"and {g.num_minibatches - blocks:,} more"
        axes.text(left + width / 2, bottom + 0.5, more, fontsize=10, color=FAINT, ha="center", va="bottom")
    big = f"optimization batch  {samples_used(config, time_limit).per_minibatch}"
    _label(axes, panel, counted(g.num_minibatches, "minibatch"), big, "samples per gradient step")


def _gradient_steps(axes: Axes, config: Config, panel: Panel) -> None:
    """A dot for each gradient step, a row for each epoch; around them their weights in the proximal average."""
    left, bottom, width, height = panel
    g = config.geometry
    dots, epochs = min(g.num_minibatches, SHOWN_GRADIENT_STEPS), min(g.update_epochs, SHOWN_EPOCHS)
    wide, high = width / max(dots, 8), height / max(epochs, 4)
    start = left + (width - wide * dots) / 2
    top = bottom + height / 2 + high * epochs / 2
    places = [(start + (k % dots + 0.5) * wide, top - (k // dots + 0.5) * high) for k in range(dots * epochs)]
    for (x0, y0), (x1, y1) in pairwise(places):
        (line,) = axes.plot([x0, x1], [y0, y1], color="#cfd8df", lw=2, zorder=1, solid_capstyle="round")
        if y0 != y1:
            line.set(linewidth=1.2, linestyle=(0, (2, 3)))
    size = 0.28 * min(wide, high)
    decay = config.hypers.beta_prox if config.proximal_policy == "ewma" else None
    for age, (x, y) in enumerate(reversed(places)):
        if decay is not None:
            _dot(axes, x, y, size * 1.7, ACCENT, alpha=0.06 + 0.44 * decay**age)
        _dot(axes, x, y, size, COLORS[0])
    for (x, y), name in ((places[0], "first"), (places[-1], "last")):
        if len(places) > 1:
            axes.text(x, y - 2.4 * size, name, fontsize=10, ha="center", va="top", color=FAINT)
    note = f"proximal policy: {config.proximal_policy}"
    if decay is not None:
        note = "halo: weight in the EWMA proximal policy"
    elif config.objective == "policy-gradient":
        note = "no proximal policy"
    fewer = " (some drawn)" if len(places) < g.gradient_steps else ""
    heading = f"{counted(g.num_minibatches, 'minibatch')} {TIMES} {counted(g.update_epochs, 'epoch')}"
    _label(axes, panel, heading, counted(g.gradient_steps, "gradient step") + fewer, note)


def _dot(axes: Axes, x: float, y: float, radius: float, color: str, alpha: float = 1.0) -> None:
    from matplotlib.patches import Circle

    axes.add_patch(Circle((x, y), radius, facecolor=color, edgecolor="none", alpha=alpha, zorder=2))


def _arrow(axes: Axes, start: float, end: float, y: float, text: str) -> None:
    axes.annotate(
        "", (end, y), (start, y), arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 2, "mutation_scale": 18}
    )
    axes.text((start + end) / 2, y + 1.6, text, fontsize=11, ha="center", va="bottom", color=INK)


def lengths(config: Config) -> list[tuple[str, float]]:
    """Every length of the run in environment steps, shortest first; equal ones share a line."""
    g = config.geometry
    named = [("gradient step", g.env_steps_per_gradient_step), ("iteration", float(g.iteration_batch))]
    if config.proximal_policy == "ewma" and config.objective != "policy-gradient":
        named.append(("proximal age", g.proximal_age(config.hypers.beta_prox)))
    if config.advantage_norm == "ewma":
        named.append(("advantage moments", span(advantage_decay(config)) * g.iteration_batch))
    if g.phase_batch:
        named.append(("phase", float(g.phase_batch)))
    named.append(("run", float(config.env_steps)))
    joined: dict[int, str] = {}
    for name, value in sorted(named, key=lambda pair: pair[1]):
        joined[round(value)] = f"{joined[round(value)]} = {name}" if round(value) in joined else name
    return [(name, float(value)) for value, name in joined.items()]


def _ruler(axes: Axes, config: Config, left: float, right: float, y: float) -> None:
    """All lengths on one logarithmic axis."""
    marks = lengths(config)
    low = math.floor(math.log10(max(1.0, marks[0][1])))
    high = max(low + 1, math.ceil(math.log10(marks[-1][1])))

    def place(value: float) -> float:
        return left + (math.log10(value) - low) / (high - low) * (right - left)

    axes.plot([left, right], [y, y], color=FAINT, lw=1.4, zorder=1)
    for power in range(low, high + 1):
        axes.plot([place(10**power)] * 2, [y - 0.5, y + 0.5], color=FAINT, lw=1.2)
        axes.text(place(10**power), y - 1.4, _power(power), fontsize=10, ha="center", va="top", color=FAINT)
    axes.text((left + right) / 2, y - 5.4, "environment steps", fontsize=11, ha="center", va="center", color=FAINT)
    ends = [-math.inf] * 3  # where the labels of each level end
    for name, value in marks:
        x, text = place(max(1.0, value)), f"{name}  {value:,.0f}"
        half = 0.58 * len(text) + 1
        x_text = min(max(x, half), 133 - half)
        level = next((i for i, end in enumerate(ends) if x_text - half > end), len(ends) - 1)
        ends[level] = x_text + half
        label = y + 2.6 + 3.2 * level
        axes.plot([x, x], [y, label], color=ACCENT, lw=1.2, zorder=1)
        _dot(axes, x, y, 0.65, ACCENT)
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        axes.text(x_text, label, text, fontsize=11, ha="center", va="bottom", bbox=box, zorder=3)


def _power(power: int) -> str:
    return f"{10**power:,}" if power < 6 else f"{10 ** (power - 6):,}M" if power < 9 else f"{10 ** (power - 9):,}B"
