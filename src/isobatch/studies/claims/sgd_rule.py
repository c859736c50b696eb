"""Section 3.1: with plain SGD the learning rate follows the batch size itself, not its square root."""

from __future__ import annotations

import math

from isobatch.rescaling import rescale
from isobatch.settings.config import Config
from isobatch.studies.grid import Cell, Grid, Row, Study
from isobatch.studies.scores import levels
from isobatch.studies.searched_bases import CLASSIC, SEEDS, base_of, environments
from isobatch.studies.summary_table import UNDIVIDED
from isobatch.studies.verdicts import MEASURES, Question, answers, divisor_sentences

DIVISORS = {"quick": (1, 16, 64), "laptop": (1, 4, 16, 64), "paper": (1, 4, 16, 64, 256)}
RULES = ("linear", "square root", "none")
# Nothing clips the gradient: the rule is about its length. This rate is not tuned: nobody has run the paper's scale.
PAPER = dict(objective="kl", advantage_norm="ewma", optimizer="sgd", learning_rate=0.3, max_grad_norm="inf")


def grid(scale: str) -> Grid:
    cells = []
    for env in environments(scale, *CLASSIC):
        config = base_of(env, scale, "divided-sgd", **PAPER)
        cells.append(Cell(config, {"sgd_rule": UNDIVIDED, "divisor": 1}))
        cells += [
            Cell(divided(config, divisor, rule), {"sgd_rule": rule, "divisor": divisor})
            for divisor in DIVISORS[scale][1:]
            for rule in RULES
        ]
    return Grid(cells, SEEDS[scale], evaluated=True)


def divided(config: Config, divisor: int, rule: str) -> Config:
    """Both batches divided, all else by the rules, and the learning rate by one of three."""
    after = rescale(config, factor=divisor).after
    by = {"linear": divisor, "square root": math.sqrt(divisor), "none": 1}[rule]
    return after.replace(learning_rate=config.hypers.learning_rate / by)


def verdict(rows: list[Row]) -> list[str]:
    smallest = levels(rows, "divisor")[-1]
    linear = dict(divisor=smallest, sgd_rule="linear")
    questions = [
        Question(
            f"At c = {smallest}, linear minus {rule}, in normalized {score}",
            column,
            linear,
            linear | dict(sgd_rule=rule),
        )
        for rule in RULES[1:]
        for column, score in MEASURES.items()
    ]
    return [*divisor_sentences(rows, "sgd_rule", RULES), *answers(rows, questions)]


CLAIM = "With plain SGD the learning rate follows the batch size itself (section 3.1)."
STUDY = Study(
    "sgd-rule", CLAIM, grid, verdict, pictures="sgd_rule", everywhere={"divisor": 1}, divisor="divisor", minutes=5
)
