"""Cosines of pairs of samples, of samples with their batch, and of batches with each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from isobatch.drawing import COLORS, new_panels, save_figure
from isobatch.formatting import TO, with_interval
from isobatch.gradients.correlation import cosine_across, cosine_matrix, cosine_pairs, cosine_with_mean
from isobatch.gradients.layout import Layout
from isobatch.laboratory.batches import mean_over_batches
from isobatch.laboratory.partial_results import NOTHING_KEPT, MadePiece, PartialResults, Piece
from isobatch.laboratory.sections.plotting import TEXT_SIZE, draw_level, draw_points, number_ticks
from isobatch.laboratory.sections.section import TextTable, Watch
from isobatch.laboratory.subject import NotMeasurableError, Subject
from isobatch.statistics.bootstrap import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HISTOGRAM_LAGS = (1, 3, 5, 7, 10, 40)
BINS = 40  # of cosines from -1 to 1
PAIR_BATCHES = 16  # batches whose pairs of samples are compared
SIGNED = "{:+.3f}"
Ends = tuple[float, float]  # the least and the most that a number can be
DIFFERENCES: tuple[Ends, Ends] = ((-2.0, 2.0), (-1.0, 1.0))  # of two cosines, and of two absolute values
BATCHES_DRAWN = 12  # in a heatmap
BATCHES_WITH_NUMBERS = 6  # so few leave room for a number in each cell of it


@dataclass(frozen=True)
class CosineMeans:
    """Over batches, with intervals over them."""

    mean: Estimate  # signed, E[cos]: do two gradients point in the same direction?
    absolute: Estimate  # E|cos|: do they share a line, in whichever direction along it they point?

    @classmethod
    def of(cls, batches: Sequence[np.ndarray], ends: tuple[Ends, Ends] = ((-1.0, 1.0), (0.0, 1.0))) -> Self:
        """From one row (mean, mean of absolute values) for each batch, and what these can be."""
        means = [mean_over_batches(each, *bounds) for each, bounds in zip(np.stack(batches, axis=1), ends, strict=True)]
        return cls(*means)

    def cells(self) -> list[str]:
        return [with_interval(estimate, SIGNED.format) for estimate in (self.mean, self.absolute)]


@dataclass(frozen=True)
class Histogram:
    density: tuple[float, ...]  # of cosines, the mean over batches
    means: CosineMeans


@dataclass(frozen=True, kw_only=True)
class SampleCosines:
    """Cosines of the centered gradients of the samples of a batch."""

    edges: tuple[float, ...]
    within: dict[int, Histogram]  # of pairs of one trajectory, by lag
    across: Histogram | None  # of pairs of two trajectories, where there are two
    excess: dict[int, CosineMeans]  # within minus across, batch by batch; by lag
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

    def draw_means(self, axes: Axes, title: str) -> None:
        """Mean cosine, and mean absolute cosine, of pairs within a trajectory against lag; bands: across."""
        lags = np.array(list(self.within))
        for color, (kind, label) in enumerate((("mean", "signed"), ("absolute", "absolute"))):
            estimates = [getattr(histogram.means, kind) for histogram in self.within.values()]
            draw_points(axes, lags, estimates, "o-", color, f"{label}, within a trajectory")
            if self.across:
                draw_level(axes, getattr(self.across.means, kind), color, f"{label}, across trajectories")
        axes.axhline(0, color="0.4", linewidth=1)
        axes.set(xscale="log", xlabel="lag", ylabel="cosine of centered gradients", title=title)
        number_ticks(axes, lags)
        axes.legend(fontsize=TEXT_SIZE, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)


@dataclass(frozen=True, kw_only=True)
class Cosines(SampleCosines):
    num_envs: int
    num_steps: int
    batches: tuple[tuple[float, ...], ...]  # [K, K] between the gradients of K independent batches

    @classmethod
    def measure(cls, subject: Subject, parts: PartialResults, watch: Watch) -> Self:
        n, t = subject.batch_shape
        samples = sample_cosines(subject, subject.config.hypers.gae_lambda, parts)
        watch(0.5)
        between = cosine_matrix(subject.batch_products(n, t, 2, parts), Layout.of(np.arange(subject.options.batches)))
        rows = tuple(map(tuple, between.tolist()))
        return cls(**vars(samples), num_envs=n, num_steps=t, batches=rows)

    def interpret(self) -> Iterator[str]:
        nearest = min(self.excess, default=None)
        if nearest is None or self.across is None:
            return
        within, across = self.within[nearest].means, self.across.means
        yield (
            f"In a batch, pairs of samples have a mean cosine of {within.mean.value:+.2f} within a trajectory at lag "
            f"{nearest} and of {across.mean.value:+.2f} across trajectories, a difference of "
            f"{with_interval(self.excess[nearest].mean, SIGNED.format, TO)}; without their signs "
            f"{within.absolute.value:.2f} and {across.absolute.value:.2f}. Cosines weigh a small gradient like a large "
            "one: what they come to for the batch is its variance."
        )

    def tables(self) -> list[TextTable]:
        kinds = {f"a trajectory, lag {lag}": histogram for lag, histogram in self.within.items()}
        kinds |= {} if self.across is None else {"two trajectories": self.across}
        kinds["a sample with the batch"] = self.with_mean
        rows = [[name, *histogram.means.cells()] for name, histogram in kinds.items()]
        rows += [[f"lag {lag} minus two trajectories", *means.cells()] for lag, means in self.excess.items()]
        title = f"Cosines of centered gradients in batches of {self.num_envs}x{self.num_steps}"
        return [TextTable(title, ["pairs of", "mean", "mean of absolute values"], rows)]

    def draw(self, path: Path, title: str) -> None:
        """Cosines within and across trajectories: means against lag, histograms; with the batch mean; of batches."""
        figure, (first, second, third, fourth) = new_panels(2, 2, (11, 8))
        self.draw_means(first, "Pairs of samples: means, with 95 % intervals")
        self.draw_histograms(second, self.within, "Pairs of samples")
        third.stairs(self.with_mean.density, self.edges, color=COLORS[0], fill=True, alpha=0.6)
        third.set(xlabel="cosine", ylabel="density", title="Samples with the mean of their batch")
        matrix = np.array(self.batches)[:BATCHES_DRAWN, :BATCHES_DRAWN]
        draw_heatmap(fourth, matrix, "Gradients of independent batches")
        figure.suptitle(f"{title}, batches of {self.num_envs}x{self.num_steps}", fontsize=10)
        save_figure(figure, path)


def sample_cosines(subject: Subject, lam: float, parts: PartialResults = NOTHING_KEPT) -> SampleCosines:
    """Of PAIR_BATCHES batches; of fewer where fewer were asked for."""
    edges, seed = np.linspace(-1, 1, BINS + 1), subject.options.measure_seed

    def make(first: int, last: MadePiece | None) -> Iterator[Piece]:
        for gram, layout in subject.sample_products(min(PAIR_BATCHES, subject.options.batches), lam, first, parts):
            kinds = {str(lag): cosine_pairs(gram, layout, lag) for lag in HISTOGRAM_LAGS if lag <= layout.longest_lag}
            kinds["mean"] = cosine_with_mean(gram, layout)
            if layout.trajectory.max() > 0:
                kinds["across"] = cosine_across(gram, layout, seed=seed)
            known = {kind: cosines[~np.isnan(cosines)] for kind, cosines in kinds.items()}
            yield {kind: _described(cosines, edges) for kind, cosines in known.items() if len(cosines)}

    rows: dict[int | str, list[np.ndarray]] = {}
    densities: dict[int | str, list[np.ndarray]] = {}
    for made in parts.pieces("pairs", make):
        for word, described in made.items():
            kind: int | str = int(word) if word.isdigit() else word
            densities.setdefault(kind, []).append(described[2:])
            rows.setdefault(kind, []).append(described[:2])
    if "mean" not in rows:
        raise NotMeasurableError("sections=cosines needs gradients that are not zero: all advantages are zero.")
    # A kind of pairs that not every batch has is left out: its mean would be over other batches.
    shown = {
        kind: Histogram(tuple(np.mean(densities[kind], axis=0).tolist()), CosineMeans.of(x))
        for kind, x in rows.items()
        if len(x) == len(rows["mean"])
    }
    lags = [lag for lag in HISTOGRAM_LAGS if lag in shown]
    return SampleCosines(
        edges=tuple(edges.tolist()),
        within={lag: shown[lag] for lag in lags},
        across=shown.get("across"),
        excess={
            lag: CosineMeans.of([w - a for w, a in zip(rows[lag], rows["across"], strict=True)], DIFFERENCES)
            for lag in lags
            if "across" in shown
        },
        with_mean=shown["mean"],
    )


def _described(cosines: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Mean, mean of absolute values, and density."""
    density = np.histogram(cosines, edges, density=True)[0]
    return np.array([cosines.mean(), np.abs(cosines).mean(), *density])


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
