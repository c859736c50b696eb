"""Appendix C: how should Adam's step size follow the batch size?"""

from __future__ import annotations

from typing import Any

from isobatch.rescaling import rescale
from isobatch.studies.gaps import gap
from isobatch.studies.grid import Cell, Grid, Row, Study
from isobatch.studies.scales import SEEDS, base, environments
from isobatch.studies.scores import FINAL, MEAN, levels, number, scores

DIVISORS = {"quick": (1, 4, 16), "laptop": (1, 4, 16, 64), "paper": (1, 4, 16, 64, 256)}
NOTHING = "nothing to do"
RULES: dict[str, dict[str, Any]] = {
    "square root": {},
    "linear": dict(use=["linear-adam"]),
    "none": dict(without=["adam-sqrt"]),
    "malladi": dict(use=["malladi"]),
}


def grid(scale: str) -> Grid:
    cells = []
    for env in environments(scale, "CartPole-v1", "Breakout-MinAtar"):
        config = base("ppg-ewma" if scale == "paper" else "ppo-ewma", env, scale, advantage_norm="ewma")
        cells.append(Cell(config, {"adam_rule": NOTHING, "divisor": 1}))
        divisors = (1, 16) if env.endswith("MinAtar") else DIVISORS[scale]
        cells += [
            Cell(rescale(config, factor=divisor, **choice).after, {"adam_rule": name, "divisor": divisor})
            for divisor in divisors[1:]
            for name, choice in RULES.items()
        ]
    return Grid(cells, SEEDS[scale])


def verdict(rows: list[Row]) -> list[str]:
    sentences = []
    for column, what in ((FINAL, "final return"), (MEAN, "return over the run")):
        for name in levels(rows, "adam_rule"):
            if name != NOTHING:
                # Only where the rule was tried on every environment, a ladder of the same environments can be made.
                start = scores(rows, column, divisor=1)
                ladder = {c: scores(rows, column, adam_rule=name, divisor=c) for c in levels(rows, "divisor") if c != 1}
                whole = {f"c = {c}": own for c, own in ladder.items() if own.keys() == start.keys()}
                found = gap({"c = 1": start, **whole})
                means = ", ".join(f"{rung} {value:.2f}" for rung, value in found.means.items())
                sentences.append(
                    f"Rule {name!r}: gap in normalised {what} {number(found.value)} ({means}); chance alone gives "
                    f"{number(found.by_chance)} (p = {found.p:.2g})."
                )
    return sentences


STUDY = Study(
    "adam-rule",
    "Adam's step size follows the square root of the batch size, not the batch size (appendix C).",
    grid,
    verdict,
    pictures="adam_rule",
    everywhere={"divisor": 1},
)
