"""Appendix C: how should Adam's step size follow the batch size?"""

from __future__ import annotations

from isobatch.rescaling import rescale
from isobatch.studies.base_settings import CLASSIC, SEEDS, base, environments
from isobatch.studies.grid import Cell, Grid, Row, RuleChoice, Study
from isobatch.studies.scores import levels, scores, select
from isobatch.studies.verdicts import MEASURES, gap_sentence

DIVISORS = {"quick": (1, 16, 64), "laptop": (1, 4, 16, 64), "paper": (1, 4, 16, 64, 256)}
UNDIVIDED = "nothing to do"
RULES: dict[str, RuleChoice] = {
    "square root": {},
    "linear": dict(use=["linear-adam"]),
    "none": dict(without=["adam-sqrt"]),
    "malladi": dict(use=["malladi"]),
}


def grid(scale: str) -> Grid:
    cells = []
    for env in environments(scale, *CLASSIC):
        config = base("ppg-ewma" if scale == "paper" else "ppo-ewma", env, scale, objective="kl", advantage_norm="ewma")
        cells.append(Cell(config, {"adam_rule": UNDIVIDED, "divisor": 1}))
        cells += [
            Cell(rescale(config, factor=divisor, **choice).after, {"adam_rule": name, "divisor": divisor})
            for divisor in DIVISORS[scale][1:]
            for name, choice in RULES.items()
        ]
    return Grid(cells, SEEDS[scale])


def verdict(rows: list[Row]) -> list[str]:
    sentences = []
    for env in levels(rows, "env"):
        in_env = select(rows, env=env)
        for column, score in MEASURES.items():
            for name in RULES:
                sizes = {"c = 1": scores(in_env, column, divisor=1)}
                sizes |= {
                    f"c = {c}": scores(in_env, column, divisor=c, adam_rule=name) for c in levels(in_env, "divisor")[1:]
                }
                sentences.append(f"{env}, {name}, {gap_sentence(score, sizes)}")
    return sentences


CLAIM = "Adam's step size follows the square root of the batch size, not the batch size (appendix C)."
STUDY = Study("adam-rule", CLAIM, grid, verdict, pictures="adam_rule", everywhere={"divisor": 1}, divisor="divisor")
