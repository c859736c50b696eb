"""Variance that a minibatch adds to its batch, for shuffled samples and for whole environment rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from isobatch.drawing import new_figure, save_figure
from isobatch.formatting import with_interval
from isobatch.gradients.subsampling import minibatch_variance, row_variance
from isobatch.laboratory.batches import few_batches, mean_over_batches
from isobatch.laboratory.options import doubling
from isobatch.laboratory.partial_results import MadePiece, PartialResults, Piece
from isobatch.laboratory.sections.plotting import draw_points, number_ticks
from isobatch.laboratory.sections.section import TextTable, Watch
from isobatch.laboratory.subject import Subject
from isobatch.statistics.bootstrap import Estimate

MOST_SIZES = 6  # of minibatches, besides the run's own


@dataclass(frozen=True)
class MinibatchRow:
    size: int
    added: Estimate  # variance, by shuffled samples
    squared_batch_gradient: Estimate
    current: bool  # whether it is the run's
    added_by_rows: Estimate | None = None  # by whole environment rows, where so many samples are some


@dataclass(frozen=True)
class Minibatches:
    num_envs: int
    num_steps: int
    batches: int
    rows: tuple[MinibatchRow, ...]

    @classmethod
    def measure(cls, subject: Subject, parts: PartialResults, watch: Watch) -> Self:
        n, t = subject.batch_shape
        count = few_batches(subject.options.batches)
        minibatch = subject.config.geometry.optimization_batch
        sizes = sorted(
            {n * t // parts for parts in doubling(n * t)[:MOST_SIZES]} | ({minibatch} if minibatch < n * t else set())
        )
        environment, whole_rows = np.tile(np.arange(n), t), [size for size in sizes if size % t == 0]

        def make(first: int, last: MadePiece | None) -> Iterator[Piece]:
            for gram, _ in subject.sample_products(count, None, first, parts):
                yield {
                    "squared": np.mean(gram),  # |G_B|^2
                    "added": np.array([minibatch_variance(gram, size) for size in sizes]),
                    "by_rows": np.array([row_variance(gram, environment, size // t) for size in whole_rows]),
                }

        batches = []
        for made in parts.pieces("batches", make):
            batches.append(made)
            watch(len(batches) / count)
        squared = mean_over_batches([float(each["squared"]) for each in batches], least=0.0)
        added = np.stack([each["added"] for each in batches], axis=1)
        by_rows = np.stack([each["by_rows"] for each in batches], axis=1)
        whole = {size: mean_over_batches(values, least=0.0) for size, values in zip(whole_rows, by_rows, strict=True)}
        rows = [
            MinibatchRow(size, mean_over_batches(values, least=0.0), squared, size == minibatch, whole.get(size))
            for size, values in zip(sizes, added, strict=True)
        ]
        return cls(n, t, count, tuple(rows))

    def interpret(self) -> Iterator[str]:
        row = next((row for row in self.rows if row.current and row.added.value > 0), self.rows[0])
        squared = row.squared_batch_gradient.value
        if squared > 0:
            yield (
                f"A minibatch of {row.size} adds {row.added.value / squared:.1f} times the squared length of the "
                "batch's own gradient as variance, for that one step."
            )

    def tables(self) -> list[TextTable]:
        by_rows = ["-" if row.added_by_rows is None else with_interval(row.added_by_rows) for row in self.rows]
        rows = [[str(row.size), with_interval(row.added), by] for row, by in zip(self.rows, by_rows, strict=True)]
        squared = with_interval(self.rows[0].squared_batch_gradient)
        title = (
            f"Variance that a minibatch adds to a batch of {self.num_envs}x{self.num_steps}, whose gradient has the "
            f"squared length {squared}"
        )
        return [TextTable(title, ["samples", "shuffled samples", "whole environment rows"], rows)]

    def draw(self, path: Path, title: str) -> None:
        figure, axes = new_figure()
        rows = [row for row in self.rows if row.added.value > 0]
        sizes = np.array([row.size for row in rows])
        draw_points(axes, sizes, [row.added for row in rows], "o-", 0, "shuffled samples")
        whole = [(row.size, row.added_by_rows) for row in rows if row.added_by_rows is not None]
        if whole:
            x, estimates = zip(*whole, strict=True)
            draw_points(axes, np.array(x) * 1.04, estimates, "s--", 1, "whole environment rows")
        squared = self.rows[0].squared_batch_gradient.value
        axes.axhline(squared, color="0.4", linestyle=":", label="|gradient of the batch|²")
        axes.set(xscale="log", yscale="log", xlabel="samples in a minibatch")
        axes.set_ylabel("variance added to the batch's gradient")
        number_ticks(axes, sizes)
        axes.legend(frameon=False)
        axes.set_title(f"{title}, batches of {self.num_envs}x{self.num_steps}", fontsize=10)
        save_figure(figure, path)
