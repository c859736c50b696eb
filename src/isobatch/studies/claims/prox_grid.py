"""Appendix G's grid: center of mass of the proximal policy x KL coefficient.

A policy that drifts steadily is ahead of its average by the center of mass, in gradient steps, and the penalty pulls it
back by the coefficient times that distance. So the product of the two should decide, and halving one should act like
halving the other.
"""

from __future__ import annotations

import numpy as np

from isobatch.statistics.aggregates import contrast
from isobatch.statistics.comparisons import gap
from isobatch.studies.grid import Cell, Grid, Row, Study
from isobatch.studies.scores import MEAN, levels, scores, select
from isobatch.studies.searched_bases import CLASSIC, SEEDS, base_of, environments
from isobatch.studies.verdicts import beside_chance, estimate_text, would_tell

CENTERS = {"quick": (2, 8, 32), "laptop": (2, 4, 8, 16, 32), "paper": (2, 4, 8, 16, 32)}
COEFFICIENTS = {"quick": (0.25, 1.0, 4.0), "laptop": (0.25, 0.5, 1.0, 2.0, 4.0), "paper": (0.25, 0.5, 1.0, 2.0, 4.0)}


def grid(scale: str) -> Grid:
    cells = []
    for env in environments(scale, *CLASSIC):
        config = base_of(env, scale, "divided-ppg" if scale == "paper" else "divided")
        for center in CENTERS[scale]:
            for coefficient in COEFFICIENTS[scale]:
                settings = config.replace(beta_prox=1 - 1 / (1 + center), kl_coef=coefficient)
                cells.append(Cell(settings, {"center_of_mass": center, "kl_coef": coefficient}))
    return Grid(cells, SEEDS[scale])


def verdict(rows: list[Row]) -> list[str]:
    """What doubling the one and the other does, and where the grid is best."""
    sentences = []
    for env in levels(rows, "env"):
        for column, quantity in (
            ("approx_kl", "the KL between behavior and current policy, in doublings"),
            (MEAN, "normalized return over the run"),
        ):
            fits = slopes(select(rows, env=env), column)
            center, coefficient, difference = (contrast([(1.0, each)])[0] for each in fits)
            alike = "they differ"
            if difference.low <= 0 <= difference.high:
                alike = f"the two cannot be told apart, {would_tell([(1.0, fits[2])])}"
            sentences.append(
                f"{env}, {quantity}: doubling the center of mass adds {estimate_text(center)}, doubling the "
                f"coefficient {estimate_text(coefficient)}; {alike} ({estimate_text(difference)})."
            )
    pairs = {
        f"{center} x {coefficient:g}": scores(rows, MEAN, center_of_mass=center, kl_coef=coefficient)
        for center in levels(rows, "center_of_mass")
        for coefficient in levels(rows, "kl_coef")
    }
    envs = {row["env"] for row in rows}
    between = gap({name: by_env for name, by_env in pairs.items() if by_env.keys() == envs})
    means = between.means
    best, worst = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    sentences.append(
        f"Normalized return over the run: best {means[best]:.2f} at {best}, worst {means[worst]:.2f} at {worst} "
        f"(center x coefficient); a gap of {beside_chance(between)}."
    )
    equal = sum("cannot be told apart" in sentence for sentence in sentences)
    short = (
        f"In short, doubling the center of mass and doubling the coefficient cannot be told apart in {equal} of "
        f"{len(sentences) - 1} comparisons (KL and return of each environment)."
    )
    return [short, *sentences]


def slopes(rows: list[Row], column: str) -> np.ndarray:
    """Least squares over the grid, seed by seed: y = a + b log2(center) + c log2(coefficient). [b, c, b - c] x seeds.

    y is a score, or log2 of the KL.
    """
    fits = []
    for seed in levels(rows, "seed"):
        points = [
            row for row in select(rows, seed=seed) if row[column] is not None and (column == MEAN or row[column] > 0)
        ]
        design = np.array([[1.0, np.log2(row["center_of_mass"]), np.log2(row["kl_coef"])] for row in points])
        y = np.array([row[column] for row in points])
        (_, b, c), *_ = np.linalg.lstsq(design, y if column == MEAN else np.log2(y), rcond=None)
        fits.append((b, c, b - c))
    return np.array(fits).T


CLAIM = "Halving the proximal policy's center of mass acts like halving the KL coefficient (the grid of appendix G)."
STUDY = Study(
    "prox-grid", CLAIM, grid, verdict, pictures="center_of_mass", surface=("center_of_mass", "kl_coef"), minutes=2
)
