"""Appendix G: centre of mass of the proximal policy x KL coefficient. Halving one should act like halving the other."""

from __future__ import annotations

from isobatch.studies.gaps import gap
from isobatch.studies.grid import Cell, Grid, Row, Study
from isobatch.studies.scales import SEEDS, base, environments
from isobatch.studies.scores import MEAN, levels, number, scores

CENTERS = {"quick": (2, 8, 32), "laptop": (2, 4, 8, 16, 32), "paper": (2, 4, 8, 16, 32)}
COEFFICIENTS = {"quick": (0.25, 1.0, 4.0), "laptop": (0.25, 0.5, 1.0, 2.0, 4.0), "paper": (0.25, 0.5, 1.0, 2.0, 4.0)}


def grid(scale: str) -> Grid:
    cells = []
    for env in environments(scale):
        config = base("ppg-ewma" if scale == "paper" else "ppo-ewma", env, scale, objective="kl")
        fewer = "quick" if env.endswith("MinAtar") else scale
        for center in CENTERS[fewer]:
            for coefficient in COEFFICIENTS[fewer]:
                settings = config.replace(beta_prox=1 - 1 / (1 + center), kl_coef=coefficient)
                cells.append(Cell(settings, {"center_of_mass": center, "kl_coef": coefficient}))
    return Grid(cells, SEEDS[scale])


def verdict(rows: list[Row]) -> list[str]:
    """Along diagonals of equal product the KL should be alike; across them it should not."""
    centers, coefficients = levels(rows, "center_of_mass"), levels(rows, "kl_coef")
    sentences = []
    for center in centers:
        kl = [mean_kl(rows, center, coefficient) for coefficient in coefficients]
        sentences.append(
            f"Centre of mass {center}: KL per update "
            + ", ".join(f"{k:.2g} at coefficient {c:g}" for k, c in zip(kl, coefficients, strict=True))
            + "."
        )
    everything = {
        f"{center} x {coefficient:g}": scores(rows, MEAN, center_of_mass=center, kl_coef=coefficient)
        for center in centers
        for coefficient in coefficients
    }
    whole = {name: own for name, own in everything.items() if own.keys() == {row["env"] for row in rows}}
    found = gap(whole)
    best, worst = max(found.means, key=found.means.__getitem__), min(found.means, key=found.means.__getitem__)
    sentences.append(
        f"Normalised return over the run: best {found.means[best]:.2f} at {best}, worst {found.means[worst]:.2f} at "
        f"{worst} (centre x coefficient); a gap of {number(found.value)}, where chance alone gives "
        f"{number(found.by_chance)} (p = {found.p:.2g})."
    )
    return sentences


def mean_kl(rows: list[Row], center: int, coefficient: float) -> float:
    chosen = [row["approx_kl"] for row in rows if (row["center_of_mass"], row["kl_coef"]) == (center, coefficient)]
    values = [value for value in chosen if value is not None]
    return sum(values) / len(values) if values else float("nan")


STUDY = Study(
    "prox-grid",
    "Halving the proximal policy's centre of mass acts like halving the KL coefficient (appendix G).",
    grid,
    verdict,
    pictures="center_of_mass",
)
