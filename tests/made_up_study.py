"""A study that nobody trained: three environments, divided batches, long names, lost runs, some without an episode."""

from pathlib import Path

import numpy as np

from isobatch.settings.config import Config
from isobatch.settings.presets import preset
from isobatch.statistics.normalization import range_of
from isobatch.studies.grid import Cell, Grid, Row, Study
from isobatch.studies.rows import CURVES, Diverged, Outcome, rows_of_cell
from isobatch.studies.runner import parts_of
from isobatch.studies.scores import FINAL
from isobatch.studies.study_directory import StudyDirectory
from isobatch.studies.verdicts import Question, answers
from isobatch.training.metrics import Table

ENVS = ("CartPole-v1", "Acrobot-v1", "Breakout-MinAtar")
ALL, LONG = "all rules", "no rule for advantages, none for the step size"
RULES = (ALL, "no Adam rule", LONG, "betas </script> too")
SEEDS = 3
LOST, SILENT = ("no Adam rule", 16), (LONG, 16)  # on the first environment and on the second


def config_of(env: str, divisor: int) -> Config:
    return preset("ppo", env, num_envs=64 // divisor, num_steps=32, total_timesteps=62 * 2048)


def grid(scale: str) -> Grid:
    cells = []
    for env in ENVS:
        cells.append(Cell(config_of(env, 1), {"rules": ALL, "divisor": 1}))
        cells += [Cell(config_of(env, c), {"rules": rule, "divisor": c}) for c in (4, 16) for rule in RULES]
    return Grid(cells, SEEDS)


def verdict(rows: list[Row]) -> list[str]:
    small, large = {"divisor": 16, "rules": ALL}, {"divisor": 1}
    return answers(rows, [Question("The smallest batch minus the largest", FINAL, small, large)])


STUDY = Study(
    "made-up", "Learning does not depend on the batch size <if all rules hold>.", grid, verdict,
    pictures="rules", everywhere={"rules": ALL, "divisor": 1}, divisor="divisor",
)  # fmt: skip


def outcome_of(cell: Cell) -> Outcome:
    """A curve that rises and levels off, later with fewer rules; noise that depends on the cell only."""
    rng = np.random.default_rng(int.from_bytes(cell.name.encode()) % 2**32)
    env, key = cell.config.env, (cell.factors["rules"], cell.factors["divisor"])
    slow = 1 + RULES.index(str(key[0])) * np.log2(int(key[1])) / 4
    limits = range_of(env)
    lines, diverged = [], {}
    for seed in range(SEEDS):
        level = 0.0
        for line in range(1, 63):
            steps = 2048 * line
            level = 0.8 * level + 0.05 * rng.normal()
            share = 1 - np.exp(-steps / (30_000 * slow)) + level
            value = limits.low + share * (limits.high - limits.low)
            if (env, key) == (ENVS[0], LOST) and line == 20 + 10 * seed and seed < 2:
                diverged[seed] = Diverged(steps, "losses/value_loss")
                break
            silent = (env, key) == (ENVS[1], SILENT) or (env == ENVS[2] and line < 3)
            found = (np.nan, np.nan, 0) if silent else (value, abs(value) + 5, 7)
            lines.append((line, steps, seed, *found, 0.01 * slow * np.exp(0.3 * rng.normal())))
    table: Table = {name: np.array(column) for name, column in zip(CURVES, zip(*lines, strict=True), strict=True)}
    return Outcome(table, diverged)


def write_study(path: Path, without: int = 0, study: Study = STUDY) -> Path:
    """The files of the study, `without` its last parts: as if they were not finished yet."""
    made = study.grid("quick")
    results, parts = StudyDirectory.begin(path, study.name, "quick", made), parts_of(made)
    for cells in parts[: len(parts) - without]:
        outcomes = [outcome_of(cell) for cell in cells]
        rows = [
            row for cell, found in zip(cells, outcomes, strict=True) for row in rows_of_cell(cell, found, made.seeds)
        ]
        results.save(cells, outcomes, rows, 12.5)
    results.collect(parts)
    return path
