"""Cosines of pairs of samples, of samples with their batch, and of batches with each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from isobatch.drawing import COLORS, new_figure, save_figure
from isobatch.gradients.correlation import cosine_across, cosine_matrix, cosine_pairs, cosine_with_mean
from isobatch.gradients.layout import Layout
from isobatch.laboratory.sections.plotting import TEXT_SIZE
from isobatch.laboratory.sections.section import TextTable, Watch
from isobatch.laboratory.subject import Subject

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HISTOGRAM_LAGS = (1, 3, 5, 7, 10, 40)
BINS = 40  # of cosines from -1 to 1
BATCHES_DRAWN = 12  # in a heatmap
BATCHES_WITH_NUMBERS = 6  # so few leave room for a number in each cell of it


@dataclass(frozen=True)
class Histogram:
    density: tuple[float, ...]
    mean: float
    spread: float  # mean of |cosine|: how much two gradients share a line, whichever way along it they point

    @classmethod
    def of(cls, cosines: np.ndarray, edges: np.ndarray) -> Self:
        density = np.histogram(cosines, edges, density=True)[0]
        return cls(tuple(density.tolist()), float(cosines.mean()), float(np.abs(cosines).mean()))


@dataclass(frozen=True, kw_only=True)
class SampleCosines:
    """Cosines of the centered gradients of one batch."""

    edges: tuple[float, ...]
    within: dict[int, Histogram]  # of pairs of one trajectory, by lag
    across: Histogram | None  # of pairs of two trajectories, where there are two
    with_mean: Histogram  # of samples with the mean of the batch

    def draw_histograms(self, axes: Axes, lags: Iterable[int], title: str) -> None:
        """Cosines of pairs within a trajectory at these lags, and across trajectories."""
        for color, lag in enumerate(lags):
            if lag in self.within:
                density = self.within[lag].density
                axes.stairs(density, self.edges, color=COLORS[color], label=f"lag {lag}", linewidth=1.4)
        if self.across:
            axes.stairs(self.across.density, self.edges, color="0.3", linestyle="--", label="across", linewidth=1.6)
        axes.set(xlabel="cosine of centered gradients", ylabel="density", title=title)
        axes.legend(fontsize=TEXT_SIZE, frameon=False)


@dataclass(frozen=True, kw_only=True)
class Cosines(SampleCosines):
    num_envs: int
    num_steps: int
    batches: tuple[tuple[float, ...], ...]  # [K, K] between the gradients of K independent batches

    @classmethod
    def measure(cls, subject: Subject, watch: Watch) -> Self:
        n, t = subject.batch_shape
        samples = sample_cosines(subject, subject.config.hypers.gae_lambda)
        watch(0.5)
        between = cosine_matrix(subject.batch_products(n, t, 2), Layout.of(np.arange(subject.options.batches)))
        rows = tuple(map(tuple, between.tolist()))
        return cls(**vars(samples), num_envs=n, num_steps=t, batches=rows)

    def interpret(self) -> Iterator[str]:
        nearest = min(self.within, default=None)
        if nearest is None or self.across is None:
            return
        yield (
            f"In one batch, pairs of samples have a mean absolute cosine of {self.within[nearest].spread:.2f} within a "
            f"trajectory at lag {nearest}, and of {self.across.spread:.2f} across trajectories. Where they point both "
            "ways along the same line they cancel in the batch's gradient: its variance is what counts."
        )

    def tables(self) -> list[TextTable]:
        kinds = {f"a trajectory, lag {lag}": histogram for lag, histogram in self.within.items()}
        kinds |= {} if self.across is None else {"two trajectories": self.across}
        rows = [[name, f"{h.mean:+.3f}", f"{h.spread:.3f}"] for name, h in kinds.items()]
        rows.append(["a sample with the batch", f"{self.with_mean.mean:+.3f}", f"{self.with_mean.spread:.3f}"])
        title = f"Cosines of centered gradients in one batch of {self.num_envs}x{self.num_steps}"
        return [TextTable(title, ["pairs of", "mean", "mean of absolute values"], rows)]

    def draw(self, path: Path, title: str) -> None:
        """Histograms of cosines within and across trajectories and with the batch mean; cosines between batches."""
        figure, (left, middle, right) = new_figure(1, 3, (13, 4))
        self.draw_histograms(left, self.within, "Pairs of samples")
        middle.stairs(self.with_mean.density, self.edges, color=COLORS[0], fill=True, alpha=0.6)
        middle.set(xlabel="cosine", title="Samples with the mean of their batch")
        matrix = np.array(self.batches)[:BATCHES_DRAWN, :BATCHES_DRAWN]
        draw_heatmap(right, matrix, "Gradients of independent batches")
        figure.suptitle(f"{title}, batches of {self.num_envs}x{self.num_steps}", fontsize=10)
        save_figure(figure, path)


def sample_cosines(subject: Subject, lam: float) -> SampleCosines:
    gram, layout = next(subject.sample_products(1, lam))
    edges = np.linspace(-1, 1, BINS + 1)
    lags = [lag for lag in HISTOGRAM_LAGS if lag <= layout.longest_lag]
    several, seed = layout.trajectory.max() > 0, subject.options.measure_seed
    return SampleCosines(
        edges=tuple(edges.tolist()),
        within={lag: Histogram.of(cosine_pairs(gram, layout, lag), edges) for lag in lags},
        across=Histogram.of(cosine_across(gram, layout, seed=seed), edges) if several else None,
        with_mean=Histogram.of(cosine_with_mean(gram, layout), edges),
    )


def draw_heatmap(axes: Axes, matrix: np.ndarray, title: str) -> None:
    """A matrix of cosines; each cell with its number where there is room."""
    image = axes.imshow(matrix, vmin=-1, vmax=1, cmap="RdBu_r")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(title)
    if len(matrix) <= BATCHES_WITH_NUMBERS:
        for (i, j), value in np.ndenumerate(matrix):
            color = "white" if abs(value) > 0.6 else "black"
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=TEXT_SIZE, color=color)
    axes.figure.colorbar(image, ax=axes, fraction=0.046)
