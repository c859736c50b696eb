"""Variance, bias and error at every N x T, predicted from chains and, for some, measured directly; and the time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from isobatch.drawing import COLORS, new_panels, save_figure
from isobatch.formatting import TO, number, with_interval
from isobatch.gradients.variance import direct_variance
from isobatch.laboratory.batches import gradient_seconds
from isobatch.laboratory.chains import Chains
from isobatch.laboratory.landscape import at_geometry, measure
from isobatch.laboratory.partial_results import MadePiece, PartialResults, Piece
from isobatch.laboratory.sections.plotting import INTERVALS, TEXT_SIZE, draw_points, plain_numbers
from isobatch.laboratory.sections.points import (
    COLUMNS,
    WORTH_SAYING,
    Point,
    cell,
    in_units,
    point_fields,
    positive_part,
    ratio_of,
    times,
    unit_of,
)
from isobatch.laboratory.sections.section import TextTable, Watch
from isobatch.laboratory.subject import Subject
from isobatch.statistics.bootstrap import Estimate

if TYPE_CHECKING:
    from isobatch.laboratory.diagnosis import Diagnosis

TERMS = ("individual", "within", "across")
OVER_TRAINING = {
    "error": "mean squared error of the gradient",
    "effective_samples": "effective samples",
    "critical_batch": "critical batch size",
}
MOST_GEOMETRIES = 5  # that are drawn over training


@dataclass(frozen=True, kw_only=True)
class GeometryRow(Point):
    other_resets_variance: Estimate  # if environments were reset in the other arrangement, together or staggered
    error_to_best: Estimate  # ratio to the lowest error
    seconds_per_batch: float  # to collect it, and one gradient
    current: bool = False  # whether it is the run's
    error_to_current: Estimate | None = None  # ratios to the run's
    variance_to_current: Estimate | None = None
    measured_variance: Estimate | None = None  # directly, on whole batches

    def error_in_equal_time(self, best: GeometryRow) -> float:
        """Error of the mean of as many batches as the time of one of `best` allows; they do not lower the bias."""
        batches = best.seconds_per_batch / self.seconds_per_batch
        return self.variance.value / batches + self.squared_bias.value


@dataclass(frozen=True)
class Geometries:
    gae_lambda: float
    bootstrap: bool
    complete_episodes: bool
    chains: int
    staggered_resets: bool
    sets_clocks: bool
    unseen_limits: int  # time limits in the chains behind which nothing can be seen
    time_limit: int
    waited: int  # steps after a reset before chains begin
    budget: int
    rows: tuple[GeometryRow, ...]

    @classmethod
    def measure(cls, subject: Subject, parts: PartialResults, watch: Watch) -> Self:
        config, source, chains = subject.config, subject.source, subject.chains
        lam = config.hypers.gae_lambda
        return cls(
            gae_lambda=lam,
            bootstrap=config.bootstrap,
            complete_episodes=config.complete_episodes,
            chains=chains.count,
            staggered_resets=config.staggered_resets,
            sets_clocks=source.sets_clocks,
            unseen_limits=0 if source.sets_clocks or not config.bootstrap else _count_limits(chains),
            time_limit=source.known_limit,
            waited=source.time_limit,
            budget=subject.budget,
            rows=tuple(_measure_rows(subject, lam, parts, watch)),
        )

    @property
    def best(self) -> GeometryRow:
        return min(self.rows, key=lambda row: row.error.value)

    @property
    def run_row(self) -> GeometryRow | None:
        """The run's, where it is among them."""
        return next((row for row in self.rows if row.current), None)

    def interpret(self) -> Iterator[str]:
        if self.complete_episodes:
            yield (
                "This run's own updates use whole episodes only (complete_episodes); the geometries here are rollouts, "
                "begun in the middle of episodes, of which all steps count. For whole episodes see the aggregations."
            )
        yield from self._on_error()
        yield from self._on_time()
        yield from self._on_effective_samples()
        yield from self._on_resets()
        yield from self._on_bias()
        yield from self._on_what_is_not_seen()
        yield from self._on_noise()

    def _on_error(self) -> Iterator[str]:
        best, run_row = self.best, self.run_row
        other = (
            run_row if run_row is not None and run_row is not best else max(self.rows, key=lambda row: row.error.value)
        )
        if run_row is best and len(self.rows) > 1:
            yield f"Of the geometries of {self.budget:,} samples this run's own, {run_row.name}, has the lowest error."
        if other is best:  # there is nothing to compare it with
            return
        whose = " (this run's)" if other is run_row else ""
        to_best = other.error_to_best
        if to_best.low > 1:
            yield (
                f"At this policy {best.name} has {times(to_best)} lower gradient mean squared error than "
                f"{other.name}{whose}."
            )
        else:
            yield (
                f"{best.name} has the lowest gradient error, but {other.name}{whose} cannot be told from it "
                f"({times(to_best)}): measure more chains, or choose by time."
            )

    def _on_time(self) -> Iterator[str]:
        best = self.best
        quick = min(self.rows, key=lambda row: row.error_in_equal_time(best))
        error = quick.error_in_equal_time(best)
        gain = best.error.value / error if error > 0 else 0.0
        if gain > 1 + WORTH_SAYING:
            taken, of_best = (1e3 * row.seconds_per_batch for row in (quick, best))
            yield (
                f"Weighed against time {quick.name} is best: a batch takes {taken:.1f} ms (to collect, and one "
                f"gradient) and {of_best:.1f} ms at {best.name}; what is collected in equal time has {gain:.1f} times "
                "less error."
            )

    def _on_effective_samples(self) -> Iterator[str]:
        best = self.best
        known = [row for row in self.rows if not math.isnan(row.effective_samples.value)]
        worst = min(known, key=lambda row: row.effective_samples.value, default=best)
        if worst.effective_samples.high < (1 - WORTH_SAYING) * self.budget:
            than = "" if worst is best else f"; those of {best.name} {_samples(best.effective_samples)}"
            worth = _samples(worst.effective_samples)
            yield f"The {self.budget:,} samples of {worst.name} are worth {worth} independent ones{than}."

    def _on_resets(self) -> Iterator[str]:
        """Whether environments that reach their time limit together make a difference."""
        if self.staggered_resets:
            return
        gains = [
            (row.variance.value / row.other_resets_variance.value, row)
            for row in self.rows
            if row.across.low > WORTH_SAYING * row.other_resets_variance.value > 0
        ]
        if gains:
            gain, row = max(gains, key=lambda pair: pair[0])
            others = "staggered resets (--staggered-resets)" if self.sets_clocks else "resets at different times"
            yield (
                f"Environments that were reset together are correlated: at {row.name} {others} would lower the "
                f"variance {gain:.1f} times."
            )

    def _on_bias(self) -> Iterator[str]:
        biased = [row for row in self.rows if row.squared_bias.low > row.variance.value]
        if not biased:
            return
        everywhere = len(biased) == len(self.rows)
        where = "At every rollout length" if everywhere else f"Up to T = {max(row.num_steps for row in biased)}"
        cause = "of the value function" if self.bootstrap else "of returns that are cut off (bootstrap=False)"
        remedies = ([] if everywhere else ["longer rollouts"]) + (["a larger lambda"] if self.gae_lambda < 1 else [])
        then = f"; try {' or '.join(remedies)}" if remedies else ""
        yield (
            f"{where}, at lambda {self.gae_lambda:g}, the error is mostly bias {cause}: more environments do not help "
            f"there{then}."
        )

    def _on_what_is_not_seen(self) -> Iterator[str]:
        """What environments outside JAX do not let one see."""
        if self.unseen_limits:
            yield (
                f"The value function stands in for what would follow the {self.unseen_limits:,} time limits in the "
                "chains, since environments outside JAX do not go on there: its error at them is not part of the bias."
            )
        if self.waited != self.time_limit:
            long = f"The time limit of {self.time_limit:,} steps is long"
            limit = long if self.time_limit else "No time limit is known"
            yield (
                f"{limit}: chains and batches were begun {self.waited:,} to {2 * self.waited:,} steps after a "
                "reset, which may be earlier in an episode than training finds its environments."
            )

    def _on_noise(self) -> Iterator[str]:
        row = self.run_row or self.rows[-1]
        critical = row.critical_batch
        if math.isnan(critical.value) or not math.isfinite(critical.high):
            at_least = f" (at least {number(critical.low, 0)} samples)" if critical.low > 0 else ""
            yield f"The gradient cannot be told from its noise here: the critical batch size is out of reach{at_least}."
            return
        yield (
            f"At {row.name} noise and signal are equal at a batch of {number(critical.value, 0)} samples "
            f"{TO.format(number(critical.low, 0), number(critical.high, 0))}, the critical batch size."
        )
        if row.across.value > WORTH_SAYING * row.variance.value:
            yield "That counts independent batches: environments that are reset together share noise, however many."

    def tables(self) -> list[TextTable]:
        unit, resets = unit_of(self.rows), "staggered" if self.staggered_resets else "together"
        errors = []
        for row in self.rows:
            direct = "-" if row.measured_variance is None else cell(row.measured_variance, unit)
            worth, taken = cell(row.effective_samples, digits=0), f"{1e3 * row.seconds_per_batch:.1f}"
            errors.append([row.name, *row.cells(COLUMNS, unit), direct, worth, taken])
        return [
            TextTable(
                f"Batches of {self.budget:,} samples, lambda {self.gae_lambda:g}, environments reset {resets}; "
                f"{in_units(unit)}with 95 % intervals",
                ["N x T", "variance", "squared bias", "error", "variance, direct", "effective samples", "ms/batch"],
                errors,
            ),
            TextTable(
                f"The variance is the sum of ({in_units(unit)}from {self.chains} chains)",
                ["N x T", "single samples", "pairs within an environment", "pairs of two environments"],
                [[row.name, *row.cells(TERMS, unit)] for row in self.rows],
            ),
        ]

    def draw(self, path: Path, title: str) -> None:
        """Variance, squared bias and error against T at equal data, effective samples, and time."""
        figure, (left, middle, right) = new_panels(1, 3, (13, 4.2))
        steps = np.array([row.num_steps for row in self.rows])
        for axes in (left, middle, right):  # the range first: of a single known point matplotlib makes none
            axes.set(xscale="log", xlim=(steps.min() / 1.3, steps.max() * 1.3))
        left.set(yscale="log", ylabel="squared length of gradients", title="Error at equal data")
        middle.set(yscale="log", ylabel="effective samples", title="What the batch is worth")
        series = (("variance", 0, "o-"), ("squared_bias", 1, "s--"), ("error", 6, "D-"))
        for i, (name, color, style) in enumerate(series):
            estimates = [getattr(row, name) for row in self.rows]
            draw_points(left, steps * 1.05 ** (i - 1), estimates, style, color, name.replace("_", " "))
        directly = [(row.num_steps, row.measured_variance) for row in self.rows if row.measured_variance is not None]
        if directly:
            x, variances = zip(*directly, strict=True)
            draw_points(left, np.array(x) * 1.12, variances, "^", 2, "variance, measured on whole batches")
        draw_points(middle, steps, [row.effective_samples for row in self.rows], "o-", 5, "_nolegend_")
        middle.axhline(self.budget, color="0.4", linestyle=":", linewidth=1.2, label="samples of the batch")
        times = np.array([row.seconds_per_batch for row in self.rows])
        unit, name = (1.0, "seconds") if times.max() >= 1 else (1e-3, "milliseconds")
        right.plot(steps, times / unit, "o-", color=COLORS[3], markersize=4.5, linewidth=1.4)
        right.set(ylabel=name, title="Time to collect it, and one gradient")
        right.set_ylim(bottom=0)
        for axes in (left, middle, right):
            axes.set_xticks(steps, [row.name for row in self.rows], rotation=50, fontsize=TEXT_SIZE)
            axes.tick_params(axis="x", which="minor", bottom=False)
            axes.set_xlabel("environments x steps (bold: this run's)" if self.run_row else "environments x steps")
            for row, label in zip(self.rows, axes.get_xticklabels(), strict=True):
                label.set(fontweight="bold" if row.current else "normal", ha="right", rotation_mode="anchor")
        note = dict(title=INTERVALS, title_fontsize=TEXT_SIZE)
        figure.legend(loc="outside lower center", ncols=5, fontsize=TEXT_SIZE, frameon=False, **note)
        plain_numbers(middle)
        resets = "staggered resets" if self.staggered_resets else "environments reset together"
        figure.suptitle(f"{title}: batches of {self.budget:,} samples, {resets}", fontweight="bold")
        save_figure(figure, path)


def _measure_rows(subject: Subject, lam: float, parts: PartialResults, watch: Watch) -> Iterator[GeometryRow]:
    config, weights = subject.config, subject.weights
    variants = [(steps, lam) for _, steps in subject.geometries]
    products, _ = measure(config, subject.policy, subject.chains, variants, lambda done: watch(0.4 * done), parts)
    arrangements = {
        staggered: [at_geometry(products[t, lam], n, (t, lam), staggered, weights) for n, t in subject.geometries]
        for staggered in (False, True)
    }
    points, others = arrangements[config.staggered_resets], arrangements[not config.staggered_resets]
    best = min(points, key=lambda point: point.error[0])
    of_the_run = next((p for p in points if (p.num_envs, p.num_steps) == subject.own_geometry), None)
    directly = worth_measuring(subject)
    seconds = _seconds(subject, parts, lambda done: watch(0.4 + 0.2 * done))
    for i, (point, other) in enumerate(zip(points, others, strict=True)):
        n, t = point.num_envs, point.num_steps
        yield GeometryRow(
            **point_fields(point),
            other_resets_variance=positive_part(other.variance),
            error_to_best=ratio_of(point.error, best.error),
            seconds_per_batch=seconds[i],
            current=point is of_the_run,
            error_to_current=None if of_the_run is None else ratio_of(point.error, of_the_run.error),
            variance_to_current=None if of_the_run is None else ratio_of(point.variance, of_the_run.variance),
            measured_variance=direct_variance(subject.batch_products(n, t, 1, parts)) if (n, t) in directly else None,
        )
        watch(0.6 + 0.4 * (i + 1) / len(points))


def _seconds(subject: Subject, parts: PartialResults, watch: Watch) -> list[float]:
    """To collect a batch of each geometry, and one gradient."""

    def make(first: int, last: MadePiece | None) -> Iterator[Piece]:
        gradient = (
            gradient_seconds(subject.policy, subject.chains, subject.budget)
            if last is None
            else float(last["gradient"])
        )
        for n, t in subject.geometries[first:]:
            yield {"collected": subject.source.seconds(n, t), "gradient": gradient}

    seconds = []
    for made in parts.pieces("seconds", make):
        seconds.append(float(made["collected"] + made["gradient"]))
        watch(len(seconds) / len(subject.geometries))
    return seconds


def worth_measuring(subject: Subject) -> list[tuple[int, int]]:
    """The run's own geometry and some others that are spread over the list, where environments are started cheaply."""
    if not subject.options.direct:
        return []
    steps_per_env = subject.options.batches * 1.5 * subject.source.time_limit
    cheap = [g for g in subject.geometries if g[0] * steps_per_env <= subject.source.cheap_steps]
    places = np.linspace(0, len(cheap) - 1, min(subject.options.direct, len(cheap))).round().astype(int)
    return [g for g in cheap if g == subject.own_geometry] + [cheap[i] for i in places]


def _count_limits(chains: Chains) -> int:
    """How often an episode was cut off by a time limit."""
    return int(np.sum(np.asarray(chains.segment.truncated & ~chains.segment.terminated)))


def _samples(estimate: Estimate) -> str:
    """A number of samples in words; without an interval where that has no end."""
    if math.isnan(estimate.value):
        return "more than can be told"
    known = estimate if math.isfinite(estimate.high) else Estimate(estimate.value)
    return with_interval(known, lambda x: number(x, 0), TO)


def draw_over_training(diagnoses: Sequence[Diagnosis], path: Path) -> None:
    """Error, effective samples and critical batch size of some geometries over the checkpoints of a run."""
    from matplotlib import ticker

    figure, panels = new_panels(1, len(OVER_TRAINING), (13, 4))
    steps = np.array([diagnosis.env_steps for diagnosis in diagnoses])
    by_checkpoint = [diagnosis.get(Geometries).rows for diagnosis in diagnoses]
    count = len(by_checkpoint[0])
    shown = np.unique(np.linspace(0, count - 1, min(MOST_GEOMETRIES, count)).round().astype(int))
    for axes, (quantity, title) in zip(panels, OVER_TRAINING.items(), strict=True):
        axes.set(yscale="log", xlabel="environment steps", title=title)
        for color, place in enumerate(shown):
            estimates = [getattr(rows[place], quantity) for rows in by_checkpoint]
            draw_points(axes, steps, estimates, "o-", color, by_checkpoint[0][place].name)
        axes.xaxis.set_major_formatter(ticker.EngFormatter(sep=""))
    panels[0].legend(fontsize=TEXT_SIZE, frameon=False)
    figure.suptitle(f"{diagnoses[0].title}: over training ({INTERVALS})", fontsize=10)
    save_figure(figure, path)
