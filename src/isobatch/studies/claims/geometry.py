"""Many environments for few steps, or few for many, at equal data (Mayor 2025)."""

from __future__ import annotations

import numpy as np

from isobatch.settings.config import Config
from isobatch.statistics.gaps import gap
from isobatch.studies.grid import Cell, Grid, Measurement, Row, Study
from isobatch.studies.scales import SEEDS, base, environments
from isobatch.studies.scores import FINAL, MEAN, gap_words, levels, scores, select

SHAPES = {
    "quick": ((128, 8), (32, 32), (8, 128), (2, 512)),
    "laptop": ((128, 8), (32, 32), (8, 128), (2, 512)),
    "paper": ((1024, 64), (256, 256), (64, 1024)),
}
MIDDLE = (32, 32)  # its policies are measured


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
    sentences = []
    for column, what in ((FINAL, "final return"), (MEAN, "return over the run")):
        found = gap({shape: scores(rows, column, shape=shape) for shape in levels(rows, "shape")})
        sentences.append(f"N x T, {gap_words(what, found)}")
    return sentences


def laboratory(scale: str) -> list[Measurement]:
    """The policies of the middle shape, measured at all of them."""
    return [
        Measurement(at_shape(base("ppo-ewma", env, scale), *MIDDLE), SHAPES[scale])
        for env in ([] if scale == "paper" else environments(scale))
    ]


def reading(rows: list[Row], measured: list[Row]) -> list[str]:
    """The variance of the batch gradient at each shape, of the same policies, and the returns beside it."""
    sentences = []
    for env in levels(measured, "env"):
        own = select(measured, env=env)
        for steps in levels(own, "env_steps"):
            points = select(own, env_steps=steps)
            least = min(point["variance"] for point in points)
            told = ", ".join(
                f"{point['num_envs']} x {point['num_steps']} {point['variance'] / least:.2f} "
                f"[{point['variance_low'] / least:.2f}, {point['variance_high'] / least:.2f}]"
                for point in points
            )
            sentences.append(f"{env}, policy after {steps:,} steps: variance of the gradient, the least is 1: {told}.")
        variance = {
            f"{p['num_envs']} x {p['num_steps']}": np.mean(
                [x["variance"] for x in select(own, num_envs=p["num_envs"], num_steps=p["num_steps"])]
            )
            for p in own
        }
        score = {shape: float(np.mean(scores(rows, MEAN, env=env, shape=shape)[env])) for shape in variance}
        noisy, good = (max(variance, key=variance.__getitem__), max(score, key=score.__getitem__))
        calm = min(variance, key=variance.__getitem__)
        sentences.append(
            f"{env}: the gradient is least noisy at {calm} and noisiest at {noisy}; the return over the run is "
            f"{score[calm]:.2f} and {score[noisy]:.2f} there, and best, {score[good]:.2f}, at {good}."
        )
    return sentences


STUDY = Study(
    "geometry",
    "At equal data many environments for few steps beat few environments for many (Mayor 2025).",
    grid,
    verdict,
    laboratory=laboratory,
    reading=reading,
)
