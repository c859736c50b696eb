"""The critical batch size measured by training: how large can a batch be, from this policy on, and lose nothing?

From one policy the run branches into several batch sizes, rates and all else by rule (`rescaling`), trains each on
equally many samples and several seeds, and plays the policies on the way (`branching`). `statistics.lossless` says what
losing nothing is; its tolerance here is TOLERANCE of what the best size's return is above an untrained policy's.
Merrill et al. (2025), https://arxiv.org/abs/2505.23971.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from isobatch.drawing import COLORS, new_panels, save_figure
from isobatch.formatting import TO, by_magnitude, counted, number, rounded, with_interval
from isobatch.laboratory.branch_sizes import BranchSize
from isobatch.laboratory.branching import MARKS, Branching, BranchReturns
from isobatch.laboratory.landscape import at_geometry, measure
from isobatch.laboratory.partial_results import NOTHING_KEPT, PartialResults
from isobatch.laboratory.sections.plotting import TEXT_SIZE, number_ticks
from isobatch.laboratory.sections.section import TextTable, Watch
from isobatch.laboratory.subject import Subject
from isobatch.settings.schedules import falling_ranges
from isobatch.statistics.aggregates import contrast
from isobatch.statistics.bootstrap import Estimate, of_resamples
from isobatch.statistics.lossless import CriticalSize, critical_size

TOLERANCE = 0.05  # of the return above that of an untrained policy
NOISE_SHARE = 0.1  # of the progress bar, for the noise scale


@dataclass(frozen=True)
class BranchRow:
    """One batch size. Differences are from the best of the smaller ones, seed by seed."""

    factor: float  # of the run's batches
    num_envs: int
    iteration_batch: int
    optimization_batch: int
    learning_rate: float
    iterations: int
    returns: tuple[tuple[float, ...], ...]  # [marks][seeds], at equal distances up to the end of the branch
    diverged: int  # seeds
    over_branch: Estimate  # mean return over these policies
    at_end: Estimate  # of the last one
    difference: Estimate | None = None
    difference_at_end: Estimate | None = None
    verdict: str = ""  # on the mean over the branch
    verdict_at_end: str = ""

    @property
    def name(self) -> str:
        whole = 1 / self.factor
        return f"1/{whole:g}" if self.factor < 1 and math.isclose(whole, round(whole)) else f"{self.factor:g}"


@dataclass(frozen=True)
class Branches:
    samples: int  # environment steps of each branch
    seeds: int
    episodes: int  # that judge a policy
    own_batch: int  # samples of a gradient step of the run
    policy_return: float  # of the policy that all start from
    untrained_return: float
    tolerance: float  # in return
    critical_batch: Estimate  # samples of a gradient step, by the mean over the branch; nan without a tolerance
    critical_batch_at_end: Estimate
    noise_scale: Estimate  # of the same policy: where noise and signal of its gradient are equal
    settled: bool  # whether environments were brought to where training finds them
    whole_episodes: bool
    stopped_schedule: str  # of the learning rate, if there is one
    left_out: tuple[str, ...]
    rows: tuple[BranchRow, ...]
    stopped_ranges: tuple[str, ...] = ()  # of clipping, that the run changes

    @classmethod
    def measure(cls, subject: Subject, parts: PartialResults, watch: Watch) -> Self:
        branching = Branching(subject, parts)
        start, sizes, samples = branching.start(), branching.plan.sizes, branching.plan.samples
        played = []
        for place, size in enumerate(sizes):
            begin = NOISE_SHARE + (1 - NOISE_SHARE) * place / len(sizes)
            share = (1 - NOISE_SHARE) / len(sizes)
            played.append(branching.train(size, lambda done: watch(begin + share * done)))  # noqa: B023
            watch(begin + share)
        noise = parts.load("noise", Estimate) or parts.store("noise", noise_scale(subject, parts))
        batches = [size.config.geometry.optimization_batch for size in sizes]
        returns = np.array([each.returns for each in played])  # [sizes, marks, seeds]
        over, end = returns.mean(axis=1), returns[:, -1]
        best = max(start.policy, float(over.mean(axis=1).max()), float(end.mean(axis=1).max()))
        tolerance = TOLERANCE * max(best - start.untrained, 0.0)
        judged, judged_at_end = (critical_size(batches, scores, tolerance) for scores in (over, end))
        config = subject.config
        return cls(
            samples=samples,
            seeds=len(branching.seeds),
            episodes=subject.options.branch_episodes,
            own_batch=config.geometry.optimization_batch,
            policy_return=start.policy,
            untrained_return=start.untrained,
            tolerance=tolerance,
            critical_batch=judged.size if tolerance > 0 else Estimate(math.nan),
            critical_batch_at_end=judged_at_end.size if tolerance > 0 else Estimate(math.nan),
            noise_scale=noise,
            settled=branching.settles,
            whole_episodes=config.complete_episodes,
            stopped_schedule="" if config.lr_schedule == branching.base.lr_schedule else config.lr_schedule,
            left_out=branching.plan.left_out,
            rows=tuple(_rows(sizes, samples, played, judged, judged_at_end)),
            stopped_ranges=tuple(falling_ranges(config)),
        )

    def interpret(self) -> Iterator[str]:
        critical, unit = self.critical_batch, "samples a gradient step"
        smallest, largest = self.rows[0].optimization_batch, self.rows[-1].optimization_batch
        from_here = f"From this policy on, over {self.samples:,} environment steps"
        if self.tolerance <= 0:
            yield (
                f"{from_here}, no batch size gets more than a policy that has learned nothing "
                f"({by_magnitude(self.untrained_return)}): nothing can be said about what a batch loses here; measure "
                "a later checkpoint, or longer branches (--branch-samples)."
            )
        elif not math.isfinite(critical.high) and critical.value >= largest:
            sure = "" if critical.low >= largest else f" (in doubt above {number(critical.low, 0)})"
            yield f"{from_here}, no batch up to {largest:,} {unit} loses{sure}: the critical batch is not below it."
        else:
            ends = TO.format(number(critical.low, 0), number(critical.high, 0))
            yield (
                f"{from_here}, batches of up to {number(critical.value, 0)} {unit} {ends} lose nothing; the run's own "
                f"are {self.own_batch:,}."
            )
            if critical.low <= smallest:
                yield f"Whether {smallest:,}, the smallest batch that was tried, loses itself cannot be seen."
        best = max(max(row.over_branch.value, row.at_end.value) for row in self.rows)
        if best - self.policy_return < self.tolerance:
            yield (
                f"The policy that all start from, with a return of {by_magnitude(self.policy_return)}, is as good as "
                "any that comes of it: this measures what a batch spoils, not how much more slowly it learns."
            )
        yield from self._on_noise()
        if self.tolerance > 0 and self.critical_batch_at_end.value != critical.value:
            end = _samples(self.critical_batch_at_end, largest)
            yield f"By the return at the end of the branch alone it is {end}."
        yield from self._on_what_was_done()

    def _on_noise(self) -> Iterator[str]:
        noise, critical = self.noise_scale, self.critical_batch
        if math.isnan(noise.value) or not math.isfinite(noise.value):
            yield "The noise scale of the same policy cannot be told: its gradient is smaller than what noise leaves."
            return
        ratio = noise.value / critical.value
        if math.isnan(ratio):
            how = "there is nothing to compare it with"
        elif critical.overlaps(noise):
            how = "the two agree within their intervals"
        else:
            how = f"{rounded(max(ratio, 1 / ratio), 2)} times {'more' if ratio > 1 else 'less'} than the branches say"
        yield f"The noise scale of the same policy is {with_interval(noise, lambda x: number(x, 0), TO)}: {how}."

    def _on_what_was_done(self) -> Iterator[str]:
        diverged = [f"{row.diverged} at {row.name}" for row in self.rows if row.diverged]
        if diverged:
            yield (
                f"Of the {self.seeds} seeds of a size some diverged ({', '.join(diverged)} times the batch): they "
                "count as policies that have learned nothing."
            )
        if self.stopped_schedule:
            yield (
                f"The learning rate stays in each branch what it was here (lr_schedule={self.stopped_schedule} does "
                "not go on)."
            )
        for name in self.stopped_ranges:
            yield f"{name} stays in each branch what it was here (its linear schedule does not go on)."
        if self.whole_episodes:
            yield "Batches count what is collected: whole episodes (complete_episodes) use a part of it."
        elif not self.settled:
            yield (
                "Environments outside JAX begin anew in each branch, all at once: with many of them and short rollouts "
                "a large batch first sees the beginnings of episodes only."
            )
        yield from self.left_out

    def tables(self) -> list[TextTable]:
        sizes = [
            [
                row.name,
                f"{row.num_envs:,}",
                f"{row.optimization_batch:,}",
                rounded(row.learning_rate),
                f"{row.iterations:,}",
            ]
            for row in self.rows
        ]
        over = [[by_magnitude(r.over_branch.value), *_compared(r.difference, r.verdict)] for r in self.rows]
        end = [[by_magnitude(r.at_end.value), *_compared(r.difference_at_end, r.verdict_at_end)] for r in self.rows]
        title = (
            f"Return over branches of {self.samples:,} environment steps, {self.seeds} seeds, from a policy with "
            f"{by_magnitude(self.policy_return)} (untrained: {by_magnitude(self.untrained_return)}). Differences are "
            f"from the best smaller batch, with 95 % intervals; to lose is to be more than "
            f"{by_magnitude(self.tolerance)} below it"
        )
        columns = ["x batch", "envs", "samples a step", "learning rate", "iterations"]
        scores = ["return", "difference", "it"]
        return [
            TextTable(title, [*columns, *scores], [size + score for size, score in zip(sizes, over, strict=True)]),
            TextTable(
                "Return at the end of the branches",
                ["x batch", *scores],
                [[row.name, *score] for row, score in zip(self.rows, end, strict=True)],
            ),
        ]

    def draw(self, path: Path, title: str) -> None:
        """Returns against batch size, with both critical batch sizes, and against samples."""
        from matplotlib import ticker

        figure, (left, right) = new_panels(1, 2, (12, 5.4))
        sizes = np.array([row.optimization_batch for row in self.rows])
        left.set(xscale="log", xlim=(sizes.min() / 1.6, sizes.max() * 1.6))
        for shift, color, style, label in ((1 / 1.04, 0, "o-", "over the branch"), (1.04, 1, "s--", "at its end")):
            scores = np.array([self._scores(row, label) for row in self.rows])  # [sizes, seeds]
            x = np.repeat(sizes[:, None] * shift, self.seeds, axis=1)
            left.plot(x.ravel(), scores.ravel(), style[0], color=COLORS[color], markersize=3.5, alpha=0.35)
            left.plot(sizes * shift, scores.mean(axis=1), style, color=COLORS[color], label=f"return {label}")
        left.axhline(self.policy_return, color="0.5", linestyle=":", linewidth=1.2, label="policy they start from")
        for estimate, color, label in (
            (self.critical_batch, 2, "critical batch by branches, and its interval"),
            (self.noise_scale, 3, "noise scale, and its interval"),
        ):
            if math.isfinite(estimate.value):
                left.axvline(estimate.value, color=COLORS[color], linewidth=1.6, label=label)
                low, high = np.clip([estimate.low, estimate.high], *left.get_xlim())
                left.axvspan(low, high, color=COLORS[color], alpha=0.1, linewidth=0)
        left.set(xlabel="samples of a gradient step", ylabel="return", title="Equal samples, other batches")
        number_ticks(left, sizes)
        right.set(xlabel="environment steps of the branch", ylabel="return", title="On the way")
        marks = self.samples * np.arange(MARKS + 1) / MARKS
        for color, row in enumerate(self.rows):
            curves = np.array([[self.policy_return] * self.seeds, *row.returns])
            style = "o-." if row.factor == 1 else "o-"
            label = f"{row.name} x the batch"
            right.plot(marks, curves.mean(axis=1), style, color=COLORS[color % len(COLORS)], markersize=4, label=label)
            right.fill_between(
                marks,
                curves.min(axis=1),
                curves.max(axis=1),
                color=COLORS[color % len(COLORS)],
                alpha=0.08,
                linewidth=0,
            )
        right.xaxis.set_major_formatter(ticker.EngFormatter(sep=""))
        for axes, note in ((left, "small: seeds, line: mean"), (right, "line: mean, band: all seeds")):
            fonts = dict(title=note, title_fontsize=TEXT_SIZE, fontsize=TEXT_SIZE)
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, frameon=False, **fonts)
        heading = f"{title}: branches of {self.samples:,} steps, {counted(self.seeds, 'seed')}"
        figure.suptitle(heading, fontweight="bold")
        save_figure(figure, path)

    @staticmethod
    def _scores(row: BranchRow, which: str) -> np.ndarray:
        """[seeds]"""
        returns = np.array(row.returns)
        return returns[-1] if which == "at its end" else returns.mean(axis=0)


def _rows(
    sizes: Sequence[BranchSize],
    samples: int,
    played: Sequence[BranchReturns],
    judged: CriticalSize,
    judged_at_end: CriticalSize,
) -> Iterator[BranchRow]:
    comparisons = zip([None, *judged.comparisons], [None, *judged_at_end.comparisons], strict=True)
    for size, each, (over, end) in zip(sizes, played, comparisons, strict=True):
        returns = np.array(each.returns)
        yield BranchRow(
            factor=size.factor,
            num_envs=size.config.num_envs,
            iteration_batch=size.batch,
            optimization_batch=size.config.geometry.optimization_batch,
            learning_rate=size.config.hypers.learning_rate,
            iterations=samples // size.batch,
            returns=each.returns,
            diverged=each.diverged,
            over_branch=contrast([(1.0, returns.mean(axis=0))])[0],
            at_end=contrast([(1.0, returns[-1])])[0],
            difference=over.difference if over else None,
            difference_at_end=end.difference if end else None,
            verdict=over.verdict if over else "",
            verdict_at_end=end.verdict if end else "",
        )


def noise_scale(subject: Subject, parts: PartialResults = NOTHING_KEPT) -> Estimate:
    """The critical batch size by the gradient noise of this policy, at the run's rollout length or the nearest one."""
    config, (num_envs, own_steps) = subject.config, subject.own_geometry
    lam = config.hypers.gae_lambda
    steps = min((t for _, t in subject.geometries), key=lambda t: abs(math.log(t / own_steps)))
    products, _ = measure(config, subject.policy, subject.chains, [(steps, lam)], parts=parts)
    point = at_geometry(products[steps, lam], num_envs, (steps, lam), config.staggered_resets, subject.weights)
    return of_resamples(point.critical_batch)


def _compared(difference: Estimate | None, verdict: str) -> list[str]:
    return ["-" if difference is None else with_interval(difference, by_magnitude), verdict or "-"]


def _samples(estimate: Estimate, largest: int) -> str:
    if not math.isfinite(estimate.high) and estimate.value >= largest:
        return f"not below {largest:,}"
    return with_interval(estimate, lambda x: number(x, 0), TO)
