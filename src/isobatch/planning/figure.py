"""The U: time to the score over the number of environments, for a few rollout lengths."""

from __future__ import annotations

import math
from pathlib import Path

from isobatch.drawing import COLORS, new_figure, save_figure
from isobatch.formatting import by_magnitude, counted
from isobatch.planning.forecast import Forecast, grid
from isobatch.planning.moves import Shape
from isobatch.planning.planned import Plan

MOST_LENGTHS = 4  # of rollouts, that are drawn
FAINT = 0.3


def draw_plan(plan: Plan, path: Path) -> None:
    """One line for each T, its minibatches as is best at each N; the recommended one's in a band of 95 %."""
    from matplotlib import ticker

    figure, axes = new_figure((10, 5))
    current, best = plan.current.shape, plan.recommended.shape
    for color, length in zip(COLORS, lengths(plan), strict=False):
        line = fastest_by_envs(plan, length)
        inside = [each for each in line if each.origin != "extrapolated"]
        label = f"T = {length}" + (" (the run's)" if length == current.num_steps else "")
        axes.plot(*points(line), "--", color=color, alpha=FAINT, linewidth=1.2)
        axes.plot(*points(inside), "-", color=color, label=label, linewidth=1.8)
        axes.plot(*points(timed(plan, length)), "o", color=color, markersize=5)
        if length == best.num_steps:
            low, high = ([getattr(each.seconds, end) for each in inside] for end in ("low", "high"))
            axes.fill_between(points(inside)[0], low, high, color=color, alpha=0.15, linewidth=0)
    axes.plot(
        current.num_envs,
        plan.current.seconds.value,
        "s",
        color="black",
        markersize=9,
        fillstyle="none",
        label="the run",
    )
    axes.plot(
        best.num_envs, plan.recommended.seconds.value, "*", color="black", markersize=14,
        label=f"recommended: {best.name} in {best.num_minibatches}",
    )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="environments", ylabel="seconds to the score")
    axes.set_ylim(top=min(axes.get_ylim()[1], 30 * plan.recommended.seconds.value))
    envs = sorted({each.shape.num_envs for length in lengths(plan) for each in fastest_by_envs(plan, length)})
    axes.set_xticks(envs, [f"{n:,}" for n in envs])
    axes.tick_params(axis="x", which="minor", bottom=False)
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:g}"))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    run = plan.run
    title = f"{run.algo} on {run.env}: time to a return of {by_magnitude(plan.reached.score)}"
    axes.set_title(f"{title}, {counted(plan.num_seeds, 'seed')}", loc="left")
    note = "lines: the best number of minibatches\ndashed: extrapolated\ndots: timed, of any number\nband: 95 %"
    axes.legend(
        frameon=False, title=note, title_fontsize=8, fontsize=9, loc="upper left", bbox_to_anchor=(1.01, 1),
        alignment="left",
    )  # fmt: skip
    save_figure(figure, path)


def timed(plan: Plan, num_steps: int) -> list[Forecast]:
    """The shapes with this T whose iterations were, with any number of minibatches."""
    lag = plan.current.shape.lag
    shapes = [Shape(*each.sizes, 1, lag) for each in plan.forecaster.seconds.whole if each.num_steps == num_steps]
    return [plan.forecaster.quick(shape) for shape in shapes]


def lengths(plan: Plan) -> list[int]:
    """The recommended T, the run's own, and those of the fastest shapes."""
    there = [
        plan.recommended.shape.num_steps,
        plan.current.shape.num_steps,
        *(row.shape.num_steps for row in plan.rows),
    ]
    return sorted(dict.fromkeys(there).keys() & set(list(dict.fromkeys(there))[:MOST_LENGTHS]))


def fastest_by_envs(plan: Plan, num_steps: int) -> list[Forecast]:
    """At each N the fastest number of minibatches, fewest environments first; measured ones of the same N first."""
    fastest: dict[int, Forecast] = {}
    current = plan.current.shape
    for shape in grid(current, 1, current.lag):
        if shape.num_steps != num_steps or abs(math.log2(shape.num_envs / current.num_envs)) > 5:
            continue
        each = plan.forecaster.quick(shape)
        known = fastest.get(shape.num_envs)
        if known is None or rank(each) < rank(known):
            fastest[shape.num_envs] = each
    return [plan.forecaster.at(fastest[n].shape) for n in sorted(fastest)]


def rank(each: Forecast) -> tuple[bool, float]:
    """What lies inside of what was measured first, then by time."""
    return each.origin == "extrapolated", each.seconds.value


def points(line: list[Forecast]) -> tuple[list[int], list[float]]:
    return [each.shape.num_envs for each in line], [each.seconds.value for each in line]
