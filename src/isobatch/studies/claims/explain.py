"""Why the decoupled objective fails on Pendulum's stale data, and LunarLander's smallest batch without Adam's rule.

Each harm is trained with one thing changed at a time, at several levels, and so is the same setting without the harm,
since what is changed may help or hurt by itself. What makes the difference is what takes the harm away: the learning
rate, the KL that an iteration moves the policy by, ratios of Gaussians without a bound, the lag in environment steps
or in iterations, or the noise of Adam's steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import stats

from isobatch.drawing import COLORS, new_panels
from isobatch.rescaling import rescale
from isobatch.settings.config import Config
from isobatch.settings.presets import with_stale_objective
from isobatch.statistics.aggregates import contrast
from isobatch.statistics.bootstrap import Estimate
from isobatch.statistics.normalization import possible
from isobatch.studies.figures import ends, finished
from isobatch.studies.grid import Cell, Grid, Row, Study
from isobatch.studies.scores import MEAN, levels, scores, select
from isobatch.studies.searched_bases import SEEDS, searched
from isobatch.studies.verdicts import MEASURES, estimate_text, would_tell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Change = tuple[str, str]  # what is changed, and to what level
Pairs = dict[Change, tuple[Config, Config]]  # without the harm and with it
Terms = list[tuple[float, np.ndarray]]  # as `contrast` takes them

QUICK_STEPS = 98_304  # of which what staleness leaves unused is less than a tenth
STALENESS, DIVISOR = 8, 64
AS_THEY_ARE: Change = ("all settings", "as they are")
FEWER, FEWER_BOUNDS = (4,), (2.0,)  # at quick scale
TIMES = (2, 4, 8)  # by how much rates, clip ranges and lags are smaller, and KL coefficients larger
BOUNDS = (10.0, 5.0, 2.0, 1.2)  # on importance ratios, in place of 100
KL, CLIPPED = "approx_kl", "clip_fraction"


def stale_pairs(fresh: Config, times: Sequence[int], bounds: Sequence[float]) -> Pairs:
    """Fresh and stale data, decoupled."""

    def stale(config: Config, staleness: int = STALENESS) -> Config:
        return with_stale_objective(config.replace(staleness=staleness), "decoupled")

    rate, clip = fresh.hypers.learning_rate, fresh.hypers.clip_eps
    changed = {
        AS_THEY_ARE: fresh,
        **{("learning rate", f"1/{by}"): fresh.replace(learning_rate=rate / by) for by in times},
        **{("clip range", f"1/{by}"): fresh.replace(clip_eps=clip / by) for by in times},
        **{("ratios", f"up to {bound:g}"): fresh.replace(importance_cap=bound) for bound in bounds},
        # Smaller iterations, at the rate of the smaller minibatch: as many of them late, fewer steps.
        **{("lag in steps", f"1/{by}"): rescale(fresh, factor=by).after for by in times},
    }
    fewer_late = {("lag in iterations", f"1/{by}"): (fresh, stale(fresh, STALENESS // by)) for by in times}
    return {change: (config, stale(config)) for change, config in changed.items()} | fewer_late


def rule_pairs(largest: Config, times: Sequence[int], bounds: Sequence[float]) -> Pairs:
    """1/64 of a batch, with Adam's rule and without it. No bounds: the KL objective does not clip what it weights."""
    rule = rescale(largest, factor=DIVISOR).after
    pair = (rule, rescale(largest, factor=DIVISOR, without=["adam-sqrt"]).after)

    def both(**settings: float) -> tuple[Config, Config]:
        first, second = (config.replace(**settings) for config in pair)
        return first, second

    def slower(by: int) -> tuple[Config, Config]:
        first, second = (config.replace(learning_rate=config.hypers.learning_rate / by) for config in pair)
        return first, second

    averages = {name: getattr(largest.hypers, name) ** (1 / DIVISOR) for name in ("beta1", "beta2")}
    return {
        AS_THEY_ARE: pair,
        **{("learning rate", f"1/{by}"): slower(by) for by in times},  # 1/8 without the rule is the rule
        **{("KL coefficient", f"times {by}"): both(kl_coef=by * largest.hypers.kl_coef) for by in times},
        ("Adam's averages", f"{DIVISOR} times as long"): both(**averages),
    }


class Harm(NamedTuple):
    """Something that spoils learning, and where."""

    name: str
    env: str
    search: str  # of the settings that it is done to
    without: str  # what runs without it are called, and those with it
    having: str
    pairs: Callable[[Config, Sequence[int], Sequence[float]], Pairs]


HARMS = (
    Harm("stale data", "Pendulum-v1", "ppo", "fresh", "stale", stale_pairs),
    Harm(
        "no Adam rule", "envpool/LunarLander-v3", "divided", "with Adam's rule", "without Adam's rule", rule_pairs
    ),
)  # fmt: skip


def grid(scale: str) -> Grid:
    times, bounds = (FEWER, FEWER_BOUNDS) if scale == "quick" else (TIMES, BOUNDS)
    cells = []
    for harm in HARMS if scale != "quick" else HARMS[:1]:  # the others need EnvPool
        base = at_scale(searched(harm.env, harm.search), scale)
        for (kind, level), pair in harm.pairs(base, times, bounds).items():
            for name, config in zip((harm.without, harm.having), pair, strict=True):
                cells.append(Cell(config, {"kind": kind, "level": level, "harm": name}))
    return Grid(cells, SEEDS[scale], evaluated=True)


def at_scale(config: Config, scale: str) -> Config:
    """The settings of the studies that have the harms."""
    return config.replace(total_timesteps=QUICK_STEPS) if scale == "quick" else config


def verdict(rows: list[Row]) -> list[str]:
    """What a harm costs, what each change does to the runs that have it and to those that have not, and their KL."""
    sentences, short = [], []
    for harm, of_harm in harms_in(rows):
        name, changes = title(harm), changes_of(of_harm)
        for column, score in MEASURES.items():
            costs = ", ".join(
                f"{words(change)} {estimate_text(contrast(cost_terms(harm, of_harm, change, column))[0])}"
                for change in (AS_THEY_ARE, *changes)
            )
            sentences.append(f"{name}, what it costs in normalized {score}: {costs}.")
            for kind in dict.fromkeys(kind for kind, _ in changes):
                effects = "; ".join(
                    f"{level}: {effect(harm, of_harm, (kind, level), column)}" for of, level in changes if of == kind
                )
                sentences.append(f"{name}, {kind}, in normalized {score}: {effects}.")
        gains = {change: contrast(gain_terms(of_harm, change, MEAN, harm.having))[0] for change in changes}
        most = max(gains, key=lambda change: gains[change].value)
        sentences += distances(harm, of_harm, gains, most)
        whole = contrast(cost_terms(harm, of_harm, AS_THEY_ARE, MEAN))[0]
        short.append(
            f"{harm.name} costs {estimate_text(whole)}, and runs with it gain most from {words(most)}, "
            f"{estimate_text(gains[most])}"
        )
    return [f"In short, in normalized return over the run: {'; '.join(short)}.", *sentences]


def effect(harm: Harm, rows: list[Row], change: Change, column: str) -> str:
    """Of a change on both, what that means, and how far the policy is from its data then."""
    more = [
        *gain_terms(rows, change, column, harm.having),
        *gain_terms(rows, change, column, harm.without, -1.0),
    ]
    having, others = (contrast(gain_terms(rows, change, column, name))[0] for name in (harm.having, harm.without))
    what = meaning(having, others, contrast(more)[0]) or f"cannot be told from what the others gain, {would_tell(more)}"
    far = measures_text(of_change(rows, change, harm.having))
    return f"{harm.having} {estimate_text(having)}, {harm.without} {estimate_text(others)}, which {what}{far}"


def meaning(having: Estimate, others: Estimate, more: Estimate) -> str:
    """What gains of the runs with a harm, of those without it, and their difference say; nothing where that has 0.

    A change explains a harm if it helps the runs that have it, and more than it spoils the others.
    """
    if more.low > 0:
        if having.low > 0:
            return "explains it in part" if having.value > -others.value else "helps them, and spoils the others more"
        if having.high < 0:
            return "spoils both, and explains nothing"
        if others.high < 0:
            return "spoils the others, and whether it helps them cannot be told"
        return "helps them more than the others, though their gain by itself cannot be told from 0"
    if more.high < 0:
        if having.high < 0:
            return "makes it worse"
        if having.low > 0:
            return "helps both, and the others more"
        if others.low > 0:
            return "helps the others, and whether it harms them cannot be told"
        return "does them more harm than the others, though their loss by itself cannot be told from 0"
    return ""


def distances(harm: Harm, rows: list[Row], gains: dict[Change, Estimate], most: Change) -> list[str]:
    """Whether runs with a harm return more where the policy stays nearer to its data, and which do not though it does.

    Settings in which nothing is known of the KL, since all seeds diverged at once, are left out.
    """
    each = {change: mean_of(of_change(rows, change, harm.having), KL) for change in (AS_THEY_ARE, *gains)}
    kl = {change: value for change, value in each.items() if value is not None}
    returned = [float(np.mean(returns(rows, change, MEAN, harm.having))) for change in kl]
    name, sentences = title(harm), []
    if len(set(kl.values())) > 1 and len(set(returned)) > 1:
        rank = stats.spearmanr(list(kl.values()), returned)
        sentences.append(
            f"{name}: over the {len(kl)} settings with it, the rank correlation of KL and normalized return over the "
            f"run is {rank.statistic:.2f} (p = {rank.pvalue:.2g})."
        )
    if most in kl:
        near = [change for change in gains if change in kl and change != most and kl[change] <= kl[most]]
        others = ", ".join(f"{words(change)} (KL {kl[change]:.2g}) {estimate_text(gains[change])}" for change in near)
        sentences.append(
            f"{name}: over the run most is gained by {words(most)}, {estimate_text(gains[most])} at a KL of "
            f"{kl[most]:.2g}. {f'At no larger a KL gain: {others}.' if near else 'No other change has as small a KL.'}"
        )
    return sentences


def measures_text(rows: list[Row]) -> str:
    """KL from the policy that collected, and share of samples out of the clip range; nothing where neither is known."""
    kl, clipped = mean_of(rows, KL), mean_of(rows, CLIPPED)
    parts = [] if kl is None else [f"KL {kl:.2g}"]
    parts += [] if clipped is None else [f"{clipped:.0%} clipped"]
    return f" ({', '.join(parts)})" if parts else ""


def mean_of(rows: list[Row], column: str) -> float | None:
    """Over the seeds that have it."""
    values = [row[column] for row in rows if row.get(column) is not None]
    return float(np.mean(values)) if values else None


def harms_in(rows: list[Row]) -> list[tuple[Harm, list[Row]]]:
    """Harms that were trained, with their rows."""
    each = [(harm, [row for row in rows if row["harm"] in (harm.without, harm.having)]) for harm in HARMS]
    return [(harm, of_harm) for harm, of_harm in each if of_harm]


def changes_of(rows: list[Row]) -> list[Change]:
    found = dict.fromkeys((row["kind"], row["level"]) for row in rows)
    return [change for change in found if change != AS_THEY_ARE]


def title(harm: Harm) -> str:
    return harm.name[0].upper() + harm.name[1:]


def words(change: Change) -> str:
    return " ".join(change[1:] if change == AS_THEY_ARE else change)


def of_change(rows: list[Row], change: Change, harm: str) -> list[Row]:
    return select(rows, kind=change[0], level=change[1], harm=harm)


def cost_terms(harm: Harm, rows: list[Row], change: Change, column: str) -> Terms:
    """Without the harm minus with it."""
    return [(sign, returns(rows, change, column, name)) for sign, name in ((1.0, harm.without), (-1.0, harm.having))]


def gain_terms(rows: list[Row], change: Change, column: str, harm: str, sign: float = 1.0) -> Terms:
    """With the change minus without it."""
    return [(sign, returns(rows, change, column, harm)), (-sign, returns(rows, AS_THEY_ARE, column, harm))]


def returns(rows: list[Row], change: Change, column: str, harm: str) -> np.ndarray:
    (found,) = scores(of_change(rows, change, harm), column).values()  # a harm has one environment
    return found


def draw_changes(rows: list[Row]) -> Figure:
    """Returns over the run and KL, level by level; colors are what is changed, full points runs without the harm."""
    present = harms_in(rows)
    figure, panels = new_panels(len(present), 2, (12.0, 1.2 + sum(0.28 * len(changes_of(r)) + 1 for _, r in present)))
    places = panels[0].get_gridspec()
    assert places is not None
    places.set_height_ratios([len(changes_of(of_harm)) + 3 for _, of_harm in present])
    for (harm, of_harm), left, right in zip(present, panels[::2], panels[1::2], strict=True):
        changes = [AS_THEY_ARE, *changes_of(of_harm)]
        kinds = list(dict.fromkeys(kind for kind, _ in changes))
        for name, line, shift in ((harm.without, "-", -0.13), (harm.having, "--", 0.13)):
            means, far = [], []
            for change in changes:
                mean = contrast([(1.0, returns(of_harm, change, MEAN, name))])[0]
                means.append(possible(mean, levels(of_harm, "env")))
                far.append(mean_of(of_change(of_harm, change, name), KL) or np.nan)  # 0 has no place on its axis
            left.axvline(means[0].value, color="0.6", linestyle=line, linewidth=0.8)
            for place, (kind, _) in enumerate(changes):
                color = "black" if not place else COLORS[kinds.index(kind) - 1]
                face, y = color if line == "-" else "white", place + shift
                left.errorbar(means[place].value, y, xerr=ends(means[place]), fmt="o", color=color, mfc=face, ms=5)
                label = "" if place else name
                right.plot(far[place], y, line, marker="o", color=color, mfc=face, ms=5, label=label)
            for (before, (kind, _)), (after, (again, _)) in pairwise(enumerate(changes)):
                if kind == again:
                    color, ys = COLORS[kinds.index(kind) - 1], (before + shift, after + shift)
                    left.plot((means[before].value, means[after].value), ys, line, color=color, linewidth=1.4)
                    right.plot((far[before], far[after]), ys, line, color=color, linewidth=1.4)
        for axes in (left, right):
            axes.set(yticks=range(len(changes)), ylim=(len(changes) - 0.5, -0.5), yticklabels=[""] * len(changes))
        left.set_yticklabels([words(change) for change in changes])
        left.set(xlabel="normalized return over the run, with 95 % interval")
        left.set_title(f"{harm.name}, {harm.env}", loc="left")
        right.set(xlabel="KL between the policy that collected and the one that learns", xscale="log")
        right.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False)
    return finished(figure, [], "explain: one thing changed at a time")


CLAIM = "What makes Pendulum fail on stale data, and LunarLander at the smallest batch without Adam's rule?"
STUDY = Study(
    "explain", CLAIM, grid, verdict, pictures="kind", everywhere={"kind": AS_THEY_ARE[0]},
    drawings={"changes": draw_changes}, minutes=9,
)  # fmt: skip
