"""Many environments for few steps, or few for many, at equal data (Mayor 2025)."""

from __future__ import annotations

from isobatch.config import Config
from isobatch.studies.gaps import gap
from isobatch.studies.grid import Cell, Grid, Row, Study
from isobatch.studies.scales import SEEDS, base, environments
from isobatch.studies.scores import FINAL, MEAN, gap_words, levels, scores, select

SHAPES = {
    "quick": ((128, 8), (32, 32), (8, 128), (2, 512)),
    "laptop": ((128, 8), (32, 32), (8, 128), (2, 512)),
    "paper": ((1024, 64), (256, 256), (64, 1024)),
}


def grid(scale: str) -> Grid:
    cells = []
    for env in environments(scale):
        config = base("ppo-ewma", env, scale, noise_scale=True)
        for envs, steps in SHAPES[scale]:
            cells.append(Cell(at_shape(config, envs, steps), {"shape": f"{envs} x {steps}"}))
    return Grid(cells, 8 if scale == "laptop" else SEEDS[scale])


def at_shape(config: Config, envs: int, steps: int) -> Config:
    """The same settings on N x T samples, Adam's step size by the square-root rule."""
    change = envs * steps / config.geometry.iteration_batch
    return config.replace(num_envs=envs, num_steps=steps, learning_rate=config.hypers.learning_rate * change**0.5)


def verdict(rows: list[Row]) -> list[str]:
    sentences = []
    for column, what in ((FINAL, "final return"), (MEAN, "return over the run")):
        found = gap({shape: scores(rows, column, shape=shape) for shape in levels(rows, "shape")})
        sentences.append(f"N x T, {gap_words(what, found)}")
    for env in levels(rows, "env"):
        traces = {
            shape: [
                row["noise_trace"] for row in select(rows, env=env, shape=shape) if row.get("noise_trace") is not None
            ]
            for shape in levels(rows, "shape")
        }
        told = ", ".join(f"{shape} {sum(own) / len(own):.3g}" for shape, own in traces.items() if own)
        if told:
            sentences.append(f"{env}: trace of the gradient's covariance per sample, between environments: {told}.")
    return sentences


STUDY = Study(
    "geometry",
    "At equal data many environments for few steps beat few environments for many (Mayor 2025).",
    grid,
    verdict,
)
