"""Many environments for few steps, or few for many, at equal data (Mayor 2025)."""

from __future__ import annotations

import numpy as np

from isobatch.settings.config import Config
from isobatch.studies.grid import Cell, Grid, Measurement, Row, Study
from isobatch.studies.scores import MEAN, levels, scores, select
from isobatch.studies.searched_bases import CLASSIC, PIECES, SEEDS, base_of, environments, searched
from isobatch.studies.verdicts import (
    MEASURES,
    Question,
    answers,
    gap_sentences,
    gaps_in_short,
    in_short,
    measured_text,
)

SHAPES = {
    "quick": ((128, 8), (32, 32), (8, 128), (2, 512)),
    "laptop": ((128, 8), (32, 32), (8, 128), (2, 512)),
    "paper": ((1024, 64), (256, 256), (64, 1024)),
}
# Settings were searched at 16 x 64, as many times away from 128 x 8 as from 2 x 512, and again at these two.
SHARED, OWN = "searched at 16 x 64", "searched at its shape"
SEARCHED_SHAPES = ((128, 8), (2, 512))


def grid(scale: str) -> Grid:
    cells = []
    for env in studied(scale):
        config = base_of(env, scale, "ppo-ewma")
        for envs, steps in SHAPES[scale]:
            cells.append(Cell(at_shape(config, envs, steps), factors(envs, steps, SHARED)))
        for envs, steps in SEARCHED_SHAPES if scale != "paper" else ():
            cells.append(Cell(searched(env, f"{envs}x{steps}"), factors(envs, steps, OWN)))
    return Grid(cells, SEEDS[scale], evaluated=True)


def studied(scale: str) -> list[str]:
    return environments(scale) if scale == "paper" else environments(scale, *CLASSIC, *PIECES)


def factors(envs: int, steps: int, settings: str) -> dict[str, str | int | float]:
    return {"shape": f"{envs} x {steps}", "settings": settings}


def at_shape(config: Config, envs: int, steps: int) -> Config:
    """The same settings on N x T samples, Adam's step size by the square-root rule."""
    change = envs * steps / config.geometry.iteration_batch
    return config.replace(num_envs=envs, num_steps=steps, learning_rate=config.hypers.learning_rate * change**0.5)


def verdict(rows: list[Row]) -> list[str]:
    alike = select(rows, settings=SHARED)
    ends = [f"{envs} x {steps}" for envs, steps in SEARCHED_SHAPES]
    if not select(rows, settings=OWN):
        shapes = {"all environments": {shape: dict(shape=shape) for shape in levels(alike, "shape")}}
        return [gaps_in_short(rows, "the best and the worst N x T", shapes), *gap_sentences("N x T", alike, "shape")]
    lead = f"{ends[0]} minus {ends[1]}"

    def questions(settings: str, text: str) -> list[Question]:
        wide, long = (dict(shape=shape, settings=settings) for shape in ends)
        return [Question(text.format(score), column, wide, long) for column, score in MEASURES.items()]

    return [
        in_short(rows, f"{lead}, each at settings of its own", questions(OWN, "normalized {}")),
        *answers(
            rows,
            [
                *questions(OWN, f"{lead}, each at settings of its own, in normalized {{}}"),
                *questions(SHARED, f"{lead}, both at the settings of 16 x 64, in normalized {{}}"),
            ],
        ),
        *gap_sentences("N x T", alike, "shape"),
    ]


def laboratory(scale: str) -> list[Measurement]:
    """The policies of the shape that settings were searched at, measured at all of them."""
    envs = [] if scale == "paper" else studied(scale)
    return [Measurement(base_of(env, scale, "ppo-ewma"), SHAPES[scale]) for env in envs]


def reading(rows: list[Row], measured: list[Row]) -> list[str]:
    """The variance of the batch gradient at each shape, of the same policies, and the returns beside it."""
    sentences = []
    for env in levels(measured, "env"):
        in_env = select(measured, env=env)
        for steps in levels(in_env, "env_steps"):
            points = select(in_env, env_steps=steps)
            least = min(point["variance"] for point in points)
            ratios = ", ".join(
                f"{point['num_envs']} x {point['num_steps']} {measured_text(point, 'variance', '.2f', least)}"
                for point in points
            )
            policy = f"{env}, policy after {steps:,} steps"
            sentences.append(f"{policy}: variance of the gradient, the least is 1: {ratios}.")
        variance = {
            f"{p['num_envs']} x {p['num_steps']}": np.mean(
                [x["variance"] for x in select(in_env, num_envs=p["num_envs"], num_steps=p["num_steps"])]
            )
            for p in in_env
        }
        score = {
            shape: float(np.mean(scores(rows, MEAN, env=env, shape=shape, settings=SHARED)[env])) for shape in variance
        }
        noisy, good = (max(variance, key=variance.__getitem__), max(score, key=score.__getitem__))
        calm = min(variance, key=variance.__getitem__)
        sentences.append(
            f"{env}: the gradient is least noisy at {calm} and noisiest at {noisy}; the return over the run is "
            f"{score[calm]:.2f} and {score[noisy]:.2f} there, and best, {score[good]:.2f}, at {good}."
        )
    return sentences


CLAIM = "At equal data many environments for few steps beat few environments for many (Mayor 2025)."
STUDY = Study("geometry", CLAIM, grid, verdict, laboratory=laboratory, reading=reading, minutes=6)
