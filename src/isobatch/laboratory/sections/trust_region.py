"""What the trust region (clipping, or the KL penalty) does to the gradient as the policy moves away.

After e epochs on a batch, at theta_e: the gradient of the policy loss over the whole batch, with the trust region and
without it (clip_eps = inf, kl_coef = 0); their cosine, the ratio of their lengths, and how many samples are clipped.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from isobatch.drawing import new_panels, save_figure
from isobatch.formatting import counted
from isobatch.laboratory.batches import few_batches, mean_over_batches
from isobatch.laboratory.partial_results import MadePiece, PartialResults, Piece
from isobatch.laboratory.per_sample import full, mean_gradient
from isobatch.laboratory.sections.plotting import draw_points
from isobatch.laboratory.sections.points import cell
from isobatch.laboratory.sections.section import TextTable, Watch
from isobatch.laboratory.source import draws
from isobatch.laboratory.subject import NotMeasurableError, Subject
from isobatch.learning.policy_phase import Batch, optimize, policy_loss, prepare
from isobatch.learning.state import Learner, TrainState
from isobatch.rollouts.segment import Segment
from isobatch.settings.config import Config
from isobatch.statistics.bootstrap import Estimate

QUANTITIES = {  # and what they can be at the least and at the most
    "cosine": (-1.0, 1.0),
    "length_ratio": (0.0, math.inf),
    "clip_fraction": (0.0, 1.0),
    "kl": (0.0, math.inf),
}


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
    def measure(cls, subject: Subject, parts: PartialResults, watch: Watch) -> Self:
        config, options, needs = subject.config, subject.options, "sections='trust-region' needs"
        if config.objective == "policy-gradient":
            raise NotMeasurableError(f"{needs} an objective with a ratio: {config.algo} has none.")
        if config.complete_episodes:
            raise NotMeasurableError(f"{needs} rollouts, and {config.algo} learns from whole episodes here.")
        count = few_batches(options.batches)
        drawn = draws(count, options.measure_seed + 3)

        def make(first: int, last: MadePiece | None) -> Iterator[Piece]:
            segments = subject.source.batches(config.num_envs, config.num_steps, drawn, first, parts)
            for key, segment in zip(drawn.key[first:], segments, strict=True):
                yield {"effect": effect_by_epoch(config, subject.state, segment, jax.random.fold_in(key, 1))}

        tables = []
        for made in parts.pieces("batches", make):
            tables.append(made["effect"])
            watch(len(tables) / count)
        table = np.stack(tables)
        rows = tuple(
            EpochRow(
                epoch,
                **{
                    name: mean_over_batches(table[:, epoch, q], *ends)
                    for q, (name, ends) in enumerate(QUANTITIES.items())
                },
            )
            for epoch in range(table.shape[1])
        )
        return cls(config.objective, count, rows)

    def interpret(self) -> Iterator[str]:
        last = self.rows[-1]
        clipped = self.objective == "clip"
        what = "Clipping" if clipped else "The KL penalty"
        by_kl = f"the KL from the behavior policy is {last.kl.value:.2g}"
        moved = f"{last.clip_fraction.value:.0%} of the samples are out of range" if clipped else by_kl
        yield (
            f"{what}: after {counted(last.epoch, 'epoch')} {moved}; the gradient has a cosine of "
            f"{last.cosine.value:.2f} with the one without it, and {last.length_ratio.value:.2f} times its length."
        )

    def tables(self) -> list[TextTable]:
        rows = [[str(row.epoch), *(cell(getattr(row, name), digits=3) for name in QUANTITIES)] for row in self.rows]
        columns = ["epochs", "cosine", "ratio of lengths", "out of range", "KL"]
        title = f"The gradient with the trust region ({self.objective}) against the one without"
        return [TextTable(title, columns, rows)]

    def draw(self, path: Path, title: str) -> None:
        """What clipping, or the KL penalty, does over the epochs."""
        figure, panels = new_panels(1, 2, (11, 4))
        epochs = np.array([row.epoch for row in self.rows])
        curves = (
            ("cosine", "cosine", "o-"), ("length_ratio", "ratio of lengths", "s--"),
            ("clip_fraction", "samples out of range", "o-"), ("kl", "KL from the behavior policy", "s--"),
        )  # fmt: skip
        for color, (name, label, style) in enumerate(curves):
            draw_points(panels[color // 2], epochs, [getattr(row, name) for row in self.rows], style, color, label)
        titles = ("Gradient with the trust region against the one without", "How far the policy has moved")
        for axes, heading in zip(panels, titles, strict=True):
            axes.set(xlabel="epochs on the same batch", title=heading)
            axes.legend(frameon=False)
            axes.set_xticks(epochs)
        figure.suptitle(f"{title}, objective {self.objective}", fontsize=10)
        save_figure(figure, path)


@partial(jax.jit, static_argnums=0)
def effect_by_epoch(config: Config, state: TrainState, segment: Segment, key: Key[Array, ""]) -> Float[Array, "E Q"]:
    """QUANTITIES of a batch before the first and after each of the epochs."""
    config = dataclasses.replace(config, staleness=0, noise_scale=False)
    one_epoch = dataclasses.replace(config, update_epochs=1, value_epochs=min(config.value_epochs, 1))
    rate = jnp.asarray(config.hypers.learning_rate)  # before its schedule: at the end of a run that would be nothing
    recent = state.networks.policy
    batch, _, _, _ = prepare(config, segment, recent, None, state.learning.advantage_moments, config.hypers)
    learner = state.learning.learner
    rows = [_quantities(config, batch, learner)]
    for epoch_key in jax.random.split(key, config.update_epochs):
        learner, _ = optimize(one_epoch, batch, learner, config.hypers, rate, epoch_key)
        rows.append(_quantities(config, batch, learner))
    return jnp.stack(rows)


def _quantities(config: Config, batch: Batch, learner: Learner) -> Float[Array, " Q"]:
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), batch)
    policy, averaged = learner.networks.policy, None if learner.proximal is None else learner.proximal.params
    free = dataclasses.replace(config.hypers, clip_eps=math.inf, kl_coef=0.0)
    with_it, without = (mean_gradient(full(config, h, averaged), policy, flat) for h in (config.hypers, free))
    lengths = jnp.linalg.norm(with_it), jnp.linalg.norm(without)
    cosine = with_it @ without / jnp.maximum(lengths[0] * lengths[1], 1e-30)
    metrics = policy_loss(config, flat, policy(flat.obs), averaged, config.hypers)[1]
    return jnp.stack([cosine, lengths[0] / lengths[1], metrics["losses/clipfrac"], metrics["losses/approx_kl"]])
