"""Correlation of gradients within a trajectory against lag, and what each lag adds to the variance of a rollout."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from isobatch.drawing import COLORS, new_figure, save_figure
from isobatch.laboratory.lag_sums import lag_sums
from isobatch.laboratory.sections.plotting import INTERVALS, TEXT_SIZE, bar_lengths, draw_level, draw_points
from isobatch.laboratory.sections.points import cell
from isobatch.laboratory.sections.section import TextTable, Watch
from isobatch.laboratory.subject import Subject
from isobatch.statistics.bootstrap import Estimate, of_resamples

LAGS = (1, 2, 3, 5, 7, 10, 20, 40, 80, 160, 320)
NEGLIGIBLE_CORRELATION = 0.01  # as good as none


@dataclass(frozen=True)
class LagCorrelation:
    lag: int
    estimate: Estimate


@dataclass(frozen=True)
class VarianceShare:
    part: str  # which pairs of samples
    estimate: Estimate


@dataclass(frozen=True)
class Lags:
    gae_lambda: float
    num_steps: int
    correlation: tuple[LagCorrelation, ...]
    across: Estimate  # the same for two trajectories at equal times since their reset
    shares: tuple[VarianceShare, ...]

    @classmethod
    def measure(cls, subject: Subject, watch: Watch) -> Self:
        lam, length = subject.config.hypers.gae_lambda, subject.chains.length
        sums = lag_sums(subject.config, subject.policy, subject.chains, lam, watch)
        correlations = sums.correlation(subject.weights)
        lags = [lag for lag in LAGS if lag < length and np.isfinite(correlations[0, lag])]
        edges = [2**k for k in range((length - 1).bit_length())] + [length]
        shares = sums.shares(edges, subject.weights)
        parts = ["single samples", *(_span(a, b) for a, b in itertools.pairwise(edges)), "other trajectories"]
        return cls(
            lam,
            length,
            tuple(LagCorrelation(lag, of_resamples(correlations[:, lag])) for lag in lags),
            of_resamples(sums.across(subject.weights)),
            tuple(VarianceShare(part, of_resamples(shares[:, i])) for i, part in enumerate(parts)),
        )

    def interpret(self) -> Iterator[str]:
        known = [row for row in self.correlation if not math.isnan(row.estimate.low)]
        if not known:
            return
        clear = [row for row in known if row.estimate.low > 0 or row.estimate.high < 0]
        if not clear:
            widest = max(max(abs(row.estimate.low), abs(row.estimate.high)) for row in known)
            yield f"Gradients along a trajectory are not measurably correlated at any lag (all within {widest:.2g})."
            return
        most = max(clear, key=lambda row: abs(row.estimate.value))
        value, low, high = most.estimate.value, most.estimate.low, most.estimate.high
        if abs(value) < NEGLIGIBLE_CORRELATION:
            yield f"Gradients along a trajectory are hardly correlated: by {value:+.1g} at most, at lag {most.lag}."
            return
        alone = self.shares[0].estimate.value
        yield (
            f"Gradients along a trajectory are correlated most at lag {most.lag}, by {value:+.3f} "
            f"({low:+.3f} to {high:+.3f}); single samples alone would make {alone:.0%} of the variance of a rollout of "
            f"{self.num_steps} steps."
        )

    def tables(self) -> list[TextTable]:
        shares = [[row.part, cell(row.estimate)] for row in self.shares]
        title = f"Where the variance of a rollout of {self.num_steps} steps comes from, lambda {self.gae_lambda:g}"
        tables = [TextTable(title, ["pairs of samples", "share"], shares)]
        if self.correlation:
            rows = [[str(row.lag), cell(row.estimate, digits=3)] for row in self.correlation]
            rows.append(["two trajectories, equal times", cell(self.across, digits=3)])
            title = "Correlation of gradients within a trajectory, and of two"
            tables.insert(0, TextTable(title, ["lag", "covariance / variance of one sample"], rows))
        return tables

    def draw(self, path: Path, title: str) -> None:
        """Covariance form of the correlation against lag, and where the variance of a rollout comes from."""
        figure, (left, right) = new_figure(1, 2, (11, 4))
        x = [row.lag for row in self.correlation]
        draw_points(left, np.array(x), [row.estimate for row in self.correlation], "o-", 0, "within a trajectory")
        draw_level(left, self.across, 1, "two trajectories, equal times")
        left.axhline(0, color="0.4", linewidth=1)
        left.set(
            xscale="log", xlabel="lag", ylabel="covariance / variance of one sample", title="Correlation against lag"
        )
        left.set_xticks(x, [str(lag) for lag in x])
        left.minorticks_off()
        left.legend(fontsize=TEXT_SIZE, frameon=False)
        estimates = [row.estimate for row in self.shares]
        y = np.arange(len(estimates))[::-1]
        values = np.array([estimate.value for estimate in estimates])
        right.barh(y, values, color=[COLORS[0] if v >= 0 else COLORS[1] for v in values], alpha=0.75)
        right.errorbar(values, y, xerr=bar_lengths(estimates), fmt="none", ecolor="0.2", capsize=2)
        right.set_yticks(y, [row.part for row in self.shares], fontsize=TEXT_SIZE)
        right.axvline(0, color="0.4", linewidth=1)
        right.set(xlabel="share", title=f"Variance of a rollout of {self.num_steps} steps: where it comes from")
        figure.suptitle(f"{title}, lambda {self.gae_lambda:g} ({INTERVALS})", fontsize=10)
        save_figure(figure, path)


def _span(low: int, high: int) -> str:
    return f"lag {low}" if high == low + 1 else f"lags {low} to {high - 1}"
