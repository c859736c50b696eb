"""Many environments for few steps, or few for many, at equal data (Mayor 2025)."""

from __future__ import annotations

import numpy as np

from isobatch.settings.config import Config
from isobatch.studies.base_settings import SEEDS, base, environments
from isobatch.studies.grid import Cell, Grid, Measurement, Row, Study
from isobatch.studies.scores import MEAN, levels, scores, select
from isobatch.studies.verdicts import gap_sentences, gaps_in_short, measured_text

SHAPES = {
    "quick": ((128, 8), (32, 32), (8, 128), (2, 512)),
    "laptop": ((128, 8), (32, 32), (8, 128), (2, 512)),
    "paper": ((1024, 64), (256, 256), (64, 1024)),
}
MEASURED_SHAPE = (32, 32)  # its policies are measured


def grid(scale: str) -> Grid:
    cells = []
    for env in environments(scale):
        config = base("ppo-ewma", env, scale)
        for envs, steps in SHAPES[scale]:
            cells.append(Cell(at_shape(config, envs, steps), {"shape": f"{envs} x {steps}"}))
    return Grid(cells, 6 if scale == "laptop" else SEEDS[scale])


def at_shape(config: Config, envs: int, steps: int) -> Config:
    """The same settings on N x T samples, Adam's step size by the square-root rule."""
    change = envs * steps / config.geometry.iteration_batch
    return config.replace(num_envs=envs, num_steps=steps, learning_rate=config.hypers.learning_rate * change**0.5)


def verdict(rows: list[Row]) -> list[str]:
    shapes = {"all environments": {shape: dict(shape=shape) for shape in levels(rows, "shape")}}
    return [gaps_in_short(rows, "the best and the worst N x T", shapes), *gap_sentences("N x T", rows, "shape")]


def laboratory(scale: str) -> list[Measurement]:
    """The policies of the middle shape, measured at all of them."""
    return [
        Measurement(at_shape(base("ppo-ewma", env, scale), *MEASURED_SHAPE), SHAPES[scale])
        for env in ([] if scale == "paper" else environments(scale))
    ]


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
        score = {shape: float(np.mean(scores(rows, MEAN, env=env, shape=shape)[env])) for shape in variance}
        noisy, good = (max(variance, key=variance.__getitem__), max(score, key=score.__getitem__))
        calm = min(variance, key=variance.__getitem__)
        sentences.append(
            f"{env}: the gradient is least noisy at {calm} and noisiest at {noisy}; the return over the run is "
            f"{score[calm]:.2f} and {score[noisy]:.2f} there, and best, {score[good]:.2f}, at {good}."
        )
    return sentences


CLAIM = "At equal data many environments for few steps beat few environments for many (Mayor 2025)."
STUDY = Study("geometry", CLAIM, grid, verdict, laboratory=laboratory, reading=reading, minutes=7)
