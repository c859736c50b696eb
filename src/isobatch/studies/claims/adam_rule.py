"""Appendix C: how should Adam's step size follow the batch size?"""

from __future__ import annotations

from isobatch.rescaling import rescale
from isobatch.studies.grid import Cell, Grid, Row, RuleChoice, Study
from isobatch.studies.scores import levels
from isobatch.studies.searched_bases import CLASSIC, SEEDS, base_of, environments
from isobatch.studies.summary_table import UNDIVIDED
from isobatch.studies.verdicts import MEASURES, Question, answers, divisor_sentences

DIVISORS = {"quick": (1, 16, 64), "laptop": (1, 16), "paper": (1, 4, 16, 64, 256)}
RULES: dict[str, RuleChoice] = {
    "square root": {},
    "linear": dict(use=["linear-adam"]),
    "none": dict(without=["adam-sqrt"]),
}
MALLADI: dict[str, RuleChoice] = {"malladi": dict(use=["malladi"])}  # at laptop scale where steps are cheap


def grid(scale: str) -> Grid:
    cells = []
    for env in environments(scale):
        paper = scale == "paper"
        config = base_of(env, scale, "divided-ppg" if paper else "divided", advantage_norm="ewma")
        rules = RULES | (MALLADI if paper or env in CLASSIC else {})
        cells.append(Cell(config, {"adam_rule": UNDIVIDED, "divisor": 1}))
        cells += [
            Cell(rescale(config, factor=divisor, **choice).after, {"adam_rule": name, "divisor": divisor})
            for divisor in DIVISORS[scale][1:]
            for name, choice in rules.items()
        ]
    return Grid(cells, SEEDS[scale], evaluated=True)


def verdict(rows: list[Row]) -> list[str]:
    smallest = levels(rows, "divisor")[-1]
    square_root, *others = RULES
    questions = [
        Question(
            f"At c = {smallest}, {square_root} minus {rule}, in normalized {score}",
            column,
            dict(divisor=smallest, adam_rule=square_root),
            dict(divisor=smallest, adam_rule=rule),
        )
        for rule in others
        for column, score in MEASURES.items()
    ]
    return [*divisor_sentences(rows, "adam_rule", RULES | MALLADI), *answers(rows, questions)]


CLAIM = "Adam's step size follows the square root of the batch size, not the batch size (appendix C)."
STUDY = Study(
    "adam-rule", CLAIM, grid, verdict, pictures="adam_rule", everywhere={"divisor": 1}, divisor="divisor", minutes=13
)
