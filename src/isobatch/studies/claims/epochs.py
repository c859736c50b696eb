"""Section 4: more than one policy epoch should break invariance."""

from __future__ import annotations

from isobatch.rescaling import rescale
from isobatch.studies.grid import Cell, Grid, Row, Study
from isobatch.studies.scores import levels, scores
from isobatch.studies.searched_bases import CLASSIC, SEEDS, SEVERAL_EPOCHS, base_of, environments
from isobatch.studies.verdicts import MEASURES, gap_sentence, gaps_in_short

BASES = {1: "divided", SEVERAL_EPOCHS: "divided-epochs"}  # by the number of epochs: searches with as much effort
DIVISORS = {"quick": (1, 16), "laptop": (1, 4, 16, 64), "paper": (1, 16, 256)}


def grid(scale: str) -> Grid:
    cells = []
    for env in environments(scale, *CLASSIC):
        for epochs, search in BASES.items():
            config = base_of(env, scale, search, update_epochs=epochs, objective="kl", advantage_norm="ewma")
            for divisor in DIVISORS[scale]:
                cells.append(Cell(rescale(config, factor=divisor).after, {"update_epochs": epochs, "divisor": divisor}))
    return Grid(cells, SEEDS[scale], evaluated=True)


def verdict(rows: list[Row]) -> list[str]:
    sizes = {
        f"E = {epochs}": {f"c = {c}": dict(update_epochs=epochs, divisor=c) for c in levels(rows, "divisor")}
        for epochs in levels(rows, "update_epochs")
    }
    sentences = [gaps_in_short(rows, "batch sizes", sizes)]
    for column, score in MEASURES.items():
        for name, each in sizes.items():
            by_size = {size: scores(rows, column, **which) for size, which in each.items()}
            sentences.append(f"{name}, {gap_sentence(score, by_size)}")
    return sentences


CLAIM = "The rules need one policy epoch: with more of them learning depends on the batch size (section 4)."
STUDY = Study("epochs", CLAIM, grid, verdict, pictures="update_epochs", minutes=16)
