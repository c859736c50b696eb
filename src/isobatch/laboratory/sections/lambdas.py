"""Variance, bias and error at several lambda, for a short, a long and the run's own rollout length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from isobatch.drawing import new_panels, save_figure
from isobatch.laboratory.landscape import at_geometry, measure
from isobatch.laboratory.partial_results import PartialResults
from isobatch.laboratory.sections.plotting import INTERVALS, TEXT_SIZE, draw_points
from isobatch.laboratory.sections.points import (
    COLUMNS,
    WORTH_SAYING,
    Point,
    in_units,
    point_fields,
    ratio_of,
    times,
    unit_of,
)
from isobatch.laboratory.sections.section import TextTable, Watch
from isobatch.laboratory.subject import NotMeasurableError, Subject
from isobatch.statistics.bootstrap import Estimate


@dataclass(frozen=True, kw_only=True)
class LambdaRow(Point):
    own_geometry: bool  # whether N x T is the run's
    error_to_best: Estimate  # ratio to the lowest error of any lambda at this N x T


@dataclass(frozen=True)
class Lambdas:
    rows: tuple[LambdaRow, ...]
    own_lambda: float  # the run's

    @classmethod
    def measure(cls, subject: Subject, parts: PartialResults, watch: Watch) -> Self:
        config, own_lambda = subject.config, subject.config.hypers.gae_lambda
        if not config.baseline:
            raise NotMeasurableError(
                "sections='lambdas' needs a value function: this run was trained with baseline=False."
            )
        short, long = subject.geometries[len(subject.geometries) // 3], subject.geometries[-1]
        of_the_run = [g for g in subject.geometries if g == subject.own_geometry]
        shapes = sorted({short, long, *of_the_run}, key=lambda g: g[1])
        lambdas = sorted({*subject.options.lambdas, own_lambda})
        variants = [(t, lam) for _, t in shapes for lam in lambdas]
        products, _ = measure(config, subject.policy, subject.chains, variants, watch, parts)
        rows = []
        for n, t in shapes:
            points = [
                at_geometry(products[t, lam], n, (t, lam), config.staggered_resets, subject.weights) for lam in lambdas
            ]
            best = min(points, key=lambda point: point.error[0])
            for point in points:
                to_best = ratio_of(point.error, best.error)
                rows.append(LambdaRow(**point_fields(point), own_geometry=(n, t) in of_the_run, error_to_best=to_best))
        return cls(tuple(rows), own_lambda)

    def interpret(self) -> Iterator[str]:
        """At the run's own rollout length if it was measured, else at the longest."""
        of_the_run = [row for row in self.rows if row.own_geometry]
        steps = of_the_run[0].num_steps if of_the_run else max(row.num_steps for row in self.rows)
        rows = [row for row in self.rows if row.num_steps == steps]
        best = min(rows, key=lambda row: row.error.value)
        used = next(row for row in rows if row.gae_lambda == self.own_lambda)
        if used.error.value > (1 + WORTH_SAYING) * best.error.value > 0:
            yield (
                f"At {best.name} lambda {best.gae_lambda:g} has the lowest error; this run's, {self.own_lambda:g}, has "
                f"{times(used.error_to_best)} as much."
            )

    def tables(self) -> list[TextTable]:
        unit = unit_of(self.rows)
        rows = [[f"{row.name}, {row.gae_lambda:g}", *row.cells(COLUMNS, unit)] for row in self.rows]
        columns = ["N x T, lambda", "variance", "squared bias", "error"]
        return [TextTable(f"The effect of lambda, {in_units(unit)}with 95 % intervals", columns, rows)]

    def draw(self, path: Path, title: str) -> None:
        """Variance, squared bias and error against lambda, for each rollout length."""
        lengths = sorted({row.num_steps for row in self.rows})
        figure, panels = new_panels(1, len(lengths), (4.4 * len(lengths), 4))
        for axes, steps in zip(panels, lengths, strict=True):
            rows = [row for row in self.rows if row.num_steps == steps]
            x = np.arange(len(rows))
            axes.set(yscale="log", xlabel="lambda", title=rows[0].name)
            for i, (name, color) in enumerate((("variance", 0), ("squared_bias", 1), ("error", 6))):
                estimates = [getattr(row, name) for row in rows]
                draw_points(axes, x + 0.06 * (i - 1), estimates, "o-", color, name.replace("_", " "))
            axes.set_xticks(x, [f"{row.gae_lambda:g}" for row in rows])
        panels[0].set_ylabel("squared length of gradients")
        panels[0].legend(fontsize=TEXT_SIZE, frameon=False)
        figure.suptitle(f"{title}: the effect of lambda ({INTERVALS})", fontsize=10)
        save_figure(figure, path)
