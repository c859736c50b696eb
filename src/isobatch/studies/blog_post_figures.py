"""The figures of the blog post, made anew."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from isobatch.drawing import COLORS, new_figure, new_panels
from isobatch.laboratory.diagnosis import Diagnosis
from isobatch.laboratory.sections.cosines import SampleCosines, draw_heatmap
from isobatch.laboratory.sections.lags import Lags
from isobatch.statistics.bootstrap import Estimate
from isobatch.studies.blog_post_measurements import EARLY, LAMBDAS, LATE, LONG, SHORT, BatchNumbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURE_2_LAGS = (1, 5, 10, 20)
Batches = Mapping[str, BatchNumbers]  # "N x T, lambda" -> numbers


def figure_1(early: SampleCosines, late: SampleCosines) -> Figure:
    figure, (left, right) = new_panels(1, 2, (11, 4))
    early.draw_histograms(left, (1, 3, 5, 7), f"step {EARLY * 1024:,}")
    late.draw_histograms(right, (1, 5, 10, 40), f"step {LATE * 1024:,}")
    return titled(figure, "Figure 1: cosines of centered gradients, within a trajectory at some lags and across")


def figure_1_means(early: SampleCosines, late: SampleCosines) -> Figure:
    figure, panels = new_panels(1, 2, (11, 4))
    for axes, cosines, iteration in zip(panels, (early, late), (EARLY, LATE), strict=True):
        cosines.draw_means(axes, f"step {iteration * 1024:,}")
    return titled(figure, "Figure 1 in numbers: mean cosine, signed and absolute (95 % intervals)")


def figure_2(diagnoses: list[Diagnosis]) -> Figure:
    figure, axes = new_figure()
    steps = np.array([diagnosis.env_steps for diagnosis in diagnoses])
    by_checkpoint = [correlations(diagnosis) for diagnosis in diagnoses]

    def draw_curve(estimates: list[Estimate], style: str, color: str, label: str, alpha: float) -> None:
        axes.plot(steps, [e.value for e in estimates], style, color=color, label=label, markersize=3)
        low, high = [e.low for e in estimates], [e.high for e in estimates]
        axes.fill_between(steps, low, high, color=color, alpha=alpha, linewidth=0)

    for color, lag in enumerate(FIGURE_2_LAGS):
        draw_curve([each[lag] for each in by_checkpoint], "o-", COLORS[color], f"lag {lag}", 0.12)
    across = [diagnosis.get(Lags).across for diagnosis in diagnoses]
    draw_curve(across, "--", "0.3", "two trajectories,\nequal times", 0.2)
    axes.axhline(0, color="0.4", linewidth=1)
    axes.set(xlabel="environment steps", ylabel="covariance / variance of one sample")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1))
    axes.set_title("Figure 2: correlation in covariance form (bands: 95 % intervals)", fontsize=10)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    return figure


def correlations(diagnosis: Diagnosis) -> dict[int, Estimate]:
    """By lag."""
    return {row.lag: row.estimate for row in diagnosis.get(Lags).correlation}


def figure_3(batches: Batches, short_batches: Batches) -> Figure:
    """Also of one policy at both shapes: the settings' own policies differ in more than the shape of their batches."""
    figure, panels = new_panels(1, 3, (13, 4))
    shown = {
        f"{LONG}, its policy": batches[f"{LONG}, 0.95"],
        f"{SHORT}, its policy": short_batches[f"{SHORT}, 0.95"],
        f"{SHORT}, policy of {LONG}": batches[f"{SHORT}, 0.95"],
    }
    for axes, (title, numbers) in zip(panels, shown.items(), strict=True):
        draw_heatmap(axes, numbers.drawn(), title)
    return titled(figure, "Figure 3: cosines between the gradients of five batches, lambda 0.95")


def figure_4(cosines: Mapping[float, SampleCosines]) -> Figure:
    figure, panels = new_panels(1, 2, (11, 4))
    for axes, lam in zip(panels, (0.0, 1.0), strict=True):
        cosines[lam].draw_histograms(axes, (40,), f"lambda {lam:g}")
    return titled(figure, "Figure 4: cosines at lag 40")


def figure_5(cosines: Mapping[float, SampleCosines]) -> Figure:
    figure, axes = new_figure()
    for color, (lam, one) in enumerate(cosines.items()):
        axes.stairs(one.with_mean.density, one.edges, color=COLORS[color], label=f"lambda {lam:g}", linewidth=1.6)
    axes.set(xlabel="cosine of a sample's gradient with the mean of its batch", ylabel="density")
    axes.legend(frameon=False)
    axes.set_title("Figure 5: samples and their batch", fontsize=10)
    return figure


def figure_6(batches: Batches) -> Figure:
    figure, panels = new_panels(2, 3, (11, 7))
    for axes, (shape, lam) in zip(panels, itertools.product((LONG, SHORT), LAMBDAS), strict=True):
        draw_heatmap(axes, batches[f"{shape}, {lam:g}"].drawn(), f"{shape}, lambda {lam:g}")
    return titled(figure, "Figure 6: cosines between the gradients of five batches")


def titled(figure: Figure, title: str) -> Figure:
    figure.suptitle(title, fontsize=10)
    return figure
