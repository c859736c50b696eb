"""Rules since 2021, each beside the paper's: batches divided and multiplied around a searched base.

The base has minibatches of 64 samples. From there minibatches of 4 to 1,024 samples, both batches together, in runs of
equal length.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from isobatch.rescaling import rescale
from isobatch.settings.config import Config
from isobatch.studies.grid import Cell, Grid, Row, Study
from isobatch.studies.scores import levels, with_episodes
from isobatch.studies.searched_bases import CLASSIC, SEEDS, base_of, environments
from isobatch.studies.verdicts import MEASURES, Question, Sizes, answers, left_out, size_sentences

DIVISORS = {"quick": (16, 1 / 16), "laptop": (16, 4, 1 / 4, 1 / 16), "paper": (16, 4, 1 / 4, 1 / 16)}
# S / |G|^2 of the second half of the base's runs, trained with noise_scale=True on seeds 100 to 103, which is what
# `rescale --critical-batch RUN` reads: 75.0, 985.2, 122.5 (`python docs/results/newer_rules_critical.py`).
CRITICAL = {"CartPole-v1": 75.0, "Acrobot-v1": 990.0, "Pendulum-v1": 120.0}
PAPER_CRITICAL = 10_000.0  # not measured: nobody has run it
CLIP = 0.5  # the usual threshold
BASE = 64  # samples of its minibatches; at the paper's scale they are more, and pictures have no reference
MICRO = 4  # samples of a micro-batch: the smallest minibatch

PAPER, SURGE, HALF_LIFE, MICRO_ADAM = "paper", "surge", "beta2 half-life", "micro-batch Adam"
CLIP_STAYS, CLIP_FOLLOWS = "clipped at 0.5", "clip-noise"
USE = {SURGE: ["surge"], HALF_LIFE: ["beta2-half-life"], CLIP_FOLLOWS: ["clip-noise"]}
STARTS = {SURGE: PAPER, HALF_LIFE: PAPER, CLIP_FOLLOWS: CLIP_STAYS}  # variants that begin at another one's base
VARIANTS = (PAPER, SURGE, HALF_LIFE, MICRO_ADAM, CLIP_STAYS, CLIP_FOLLOWS)


def grid(scale: str) -> Grid:
    cells = [cell for env in environments(scale, *CLASSIC) for cell in around(env, scale)]
    return Grid(cells, SEEDS[scale], evaluated=True)


def around(env: str, scale: str) -> Iterator[Cell]:
    """Each variant at its base and at the other sizes; a base that two variants share is trained once."""
    config = base_of(env, scale, "divided", objective="kl", advantage_norm="ewma", max_grad_norm="inf")
    for name in VARIANTS:
        start = as_variant(config, name)
        if name not in STARTS:
            yield cell(start, name)
        for divisor in DIVISORS[scale]:
            critical = CRITICAL.get(env, PAPER_CRITICAL)
            yield cell(rescale(start, factor=divisor, use=USE.get(name, []), critical_batch=critical).after, name)


def as_variant(config: Config, name: str) -> Config:
    """The base of a variant. Adam becomes `adam-micro` by its rule down to the micro-batch and the other's up again."""
    if name == MICRO_ADAM:
        batch, rate = config.geometry.optimization_batch, config.hypers.learning_rate
        return config.replace(
            optimizer="adam-micro", micro_batch_size=MICRO, learning_rate=rate * math.sqrt(batch / MICRO)
        )
    return config.replace(max_grad_norm=CLIP) if name in (CLIP_STAYS, CLIP_FOLLOWS) else config


def cell(config: Config, name: str) -> Cell:
    return Cell(config, {"rules": name, "minibatch": config.geometry.optimization_batch})


def verdict(rows: list[Row]) -> list[str]:
    silent = left_out(rows, lambda row: f"{row['env']}, minibatches of {row['minibatch']:,}")
    rows = with_episodes(rows)
    batches = sorted(levels(rows, "minibatch"))
    middle = next(row["minibatch"] for row in rows if row["rules"] == PAPER)  # the base comes first
    sizes: dict[str, Sizes] = {
        name: {
            str(batch): {"rules": STARTS.get(name, name) if batch == middle else name, "minibatch": batch}
            for batch in batches
        }
        for name in VARIANTS
    }
    questions = [
        Question(
            f"Minibatches of {batch}, {name} minus {other}, in normalized {score}",
            column,
            {"rules": name, "minibatch": batch},
            {"rules": other, "minibatch": batch},
        )
        for batch in (batches[0], batches[-1])
        for name, other in ((SURGE, PAPER), (HALF_LIFE, PAPER), (MICRO_ADAM, PAPER), (CLIP_FOLLOWS, CLIP_STAYS))
        for column, score in MEASURES.items()
    ]
    return [*size_sentences(rows, sizes), *answers(rows, questions), *silent]


CLAIM = "Rules since 2021 hold learning as well as the paper's, and beyond the critical batch size better."
STUDY = Study(
    "newer-rules", CLAIM, grid, verdict, pictures="rules", reference={"rules": PAPER, "minibatch": BASE}, minutes=7
)
