"""What clipping or the KL penalty does to the gradient as the policy moves away over the epochs of an iteration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import jax
import numpy as np

from isobatch.drawing import new_figure, save_figure
from isobatch.laboratory.batches import few_batches, mean_over_batches
from isobatch.laboratory.sections.plotting import draw_points
from isobatch.laboratory.sections.points import cell
from isobatch.laboratory.sections.section import TextTable, Watch
from isobatch.laboratory.source import draws
from isobatch.laboratory.subject import NotMeasurableError, Subject
from isobatch.laboratory.trust_region import QUANTITIES, effect_by_epoch
from isobatch.statistics.bootstrap import Estimate


@dataclass(frozen=True)
class EpochRow:
    """The gradient with the trust region against the one without it, after some epochs on the same batch."""

    epoch: int
    cosine: Estimate
    length_ratio: Estimate
    clip_fraction: Estimate
    kl: Estimate


@dataclass(frozen=True)
class TrustRegion:
    objective: str
    batches: int
    rows: tuple[EpochRow, ...]

    @classmethod
    def measure(cls, subject: Subject, watch: Watch) -> Self:
        config, options = subject.config, subject.options
        if config.objective == "policy-gradient":
            raise NotMeasurableError(
                f"sections='trust-region' needs an objective with a ratio: {config.algo} has none."
            )
        if config.complete_episodes:
            raise NotMeasurableError(
                f"sections='trust-region' needs rollouts, and {config.algo} learns from whole episodes here."
            )
        count = few_batches(options.batches)
        drawn = draws(count, options.measure_seed + 3)
        segments = subject.source.batches(config.num_envs, config.num_steps, drawn)
        table = np.stack(
            [
                np.asarray(effect_by_epoch(config, subject.state, segment, jax.random.fold_in(key, 1)))
                for key, segment in zip(drawn.key, segments, strict=True)
            ]
        )
        rows = tuple(
            EpochRow(epoch, **{name: mean_over_batches(table[:, epoch, q]) for q, name in enumerate(QUANTITIES)})
            for epoch in range(table.shape[1])
        )
        return cls(config.objective, count, rows)

    def interpret(self) -> Iterator[str]:
        last = self.rows[-1]
        clipped = self.objective == "clip"
        what = "Clipping" if clipped else "The KL penalty"
        by_kl = f"the KL from the behavior policy is {last.kl.value:.2g}"
        moved = f"{last.clip_fraction.value:.0%} of the samples are out of range" if clipped else by_kl
        epochs = "1 epoch" if last.epoch == 1 else f"{last.epoch} epochs"
        yield (
            f"{what}: after {epochs} {moved}; the gradient has a cosine of {last.cosine.value:.2f} with the one "
            f"without it, and {last.length_ratio.value:.2f} times its length."
        )

    def tables(self) -> list[TextTable]:
        rows = [[str(row.epoch), *(cell(getattr(row, name), digits=3) for name in QUANTITIES)] for row in self.rows]
        columns = ["epochs", "cosine", "ratio of lengths", "out of range", "KL"]
        title = f"The gradient with the trust region ({self.objective}) against the one without"
        return [TextTable(title, columns, rows)]

    def draw(self, path: Path, title: str) -> None:
        """What clipping, or the KL penalty, does over the epochs."""
        figure, (left, right) = new_figure(1, 2, (11, 4))
        epochs = np.array([row.epoch for row in self.rows])
        draw_points(left, epochs, [row.cosine for row in self.rows], "o-", 0, "cosine")
        draw_points(left, epochs, [row.length_ratio for row in self.rows], "s--", 1, "ratio of lengths")
        left.set(xlabel="epochs on the same batch", title="Gradient with the trust region against the one without")
        left.legend(frameon=False)
        draw_points(right, epochs, [row.clip_fraction for row in self.rows], "o-", 2, "samples out of range")
        draw_points(right, epochs, [row.kl for row in self.rows], "s--", 3, "KL from the behavior policy")
        right.set(xlabel="epochs on the same batch", title="How far the policy has moved")
        right.legend(frameon=False)
        for axes in (left, right):
            axes.set_xticks(epochs)
        figure.suptitle(f"{title}, objective {self.objective}", fontsize=10)
        save_figure(figure, path)
