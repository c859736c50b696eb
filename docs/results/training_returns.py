"""How far returns of training lag behind the policies, by the number of environments: docs/results/training-returns.md.

    python docs/results/training_returns.py [--only ENV]
    python docs/results/training_returns.py --page      train nothing: write the page of the numbers that are there

Trains the base of the study `invariance`, and what its rules make of it at 1/16 and 16 times the batch, with as many
steps, and scores runs twice: by the episodes of training, and by episodes that the policies play. Each environment has
a process of its own, since JAX is set up otherwise for those that step outside it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from isobatch.formatting import by_magnitude
from isobatch.rescaling import rescale
from isobatch.studies.grid import Cell
from isobatch.studies.lanes import train_and_play
from isobatch.studies.rows import rows_of_cell
from isobatch.studies.searched_bases import TASKS, searched
from isobatch.training.metrics import LENGTH

HERE = Path(__file__).parent
PAGE, NUMBERS = HERE / "training-returns.md", HERE / "training-returns.json"
BEGIN, END = "<!-- measured -->", "<!-- end of what was measured -->"
FACTORS = (16, 1, 1 / 16)  # that divide the batch
SEEDS = [0, 1, 2]


def measured(env: str) -> list[dict[str, Any]]:
    """A row for each number of environments."""
    base = searched(env, "divided")
    rows = []
    for factor in FACTORS:
        config = base if factor == 1 else rescale(base, factor=factor).after
        cell = Cell(config, {"divisor": factor})
        row: dict[str, Any] = {"env": env, "num_envs": config.num_envs, "steps": config.env_steps // config.num_envs}
        for name, (outcome,) in zip(("training", "policies"), train_and_play([cell], SEEDS), strict=True):
            of_seeds = rows_of_cell(cell, outcome, SEEDS)
            for score in ("final_return", "mean_return"):
                values = [one[score] for one in of_seeds if one[score] is not None]
                row[f"{name}_{score}"] = float(f"{np.mean(values):.6g}") if values else None
        last = outcome.table["env_steps"] == config.env_steps
        row["length"] = round(float(outcome.table[LENGTH][last].mean()))
        rows.append(row)
    return rows


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    names = ["environment", "environments", "steps of each", "length of an episode in the end"]
    names += [f"{score}, {by}" for score in ("final", "over the run") for by in ("training", "policies")]
    yield f"| {' | '.join(names)} |"
    yield "|---" + "|---:" * (len(names) - 1) + "|"
    for row in rows:
        scores = [row[f"{by}_{score}"] for score in ("final_return", "mean_return") for by in ("training", "policies")]
        cells = ["-" if score is None else by_magnitude(score) for score in scores]
        yield f"| {row['env']} | {row['num_envs']:,} | {row['steps']:,} | {row['length']:,} | {' | '.join(cells)} |"


def with_table(page: str, rows: list[dict[str, Any]]) -> str:
    """The page with these numbers."""
    lines = "\n".join(table(rows))
    return re.sub(f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}\n{lines}\n{END}", page, flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=TASKS, help="print the rows of this environment as JSON")
    parser.add_argument("--page", action="store_true", help="train nothing")
    args = parser.parse_args()
    if args.only:
        print(json.dumps(measured(args.only)))
        return
    if not args.page:
        rows = []
        for env in TASKS:
            words = [sys.executable, __file__, "--only", env]
            rows += json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)
        NUMBERS.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    PAGE.write_text(with_table(PAGE.read_text(), json.loads(NUMBERS.read_text())))


if __name__ == "__main__":
    main()
