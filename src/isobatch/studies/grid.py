"""A study is a grid of cells: settings that are trained on the same seeds and compared."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from isobatch.config import Config
from isobatch.errors import UsageError, near_matches

PRESETS = ("quick", "laptop", "paper")
Factors = dict[str, str | int | float]


@dataclass(frozen=True)
class Cell:
    """One point of the grid: what it stands for, and what is trained."""

    factors: Factors
    config: Config

    @property
    def name(self) -> str:
        """A file name that says what the cell is, and differs for different settings."""
        words = "-".join(str(value) for value in self.factors.values()).replace("/", "_").replace(" ", "_")
        settings = json.dumps(self.config.to_dict(), sort_keys=True)
        return f"{words}-{hashlib.sha256(settings.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Grid:
    """The cells of a study at one scale."""

    cells: list[Cell]
    num_seeds: int

    def __post_init__(self) -> None:
        names = [cell.name for cell in self.cells]
        assert len(set(names)) == len(names), "two cells of a study are the same"


@dataclass(frozen=True)
class Study:
    """A claim of the paper as a command."""

    name: str
    claim: str
    """What the paper says, in a sentence."""
    grid: Callable[[str], Grid]
    """The grid of a preset: quick, laptop or paper."""
    verdict: Callable[[Any], list[str]]
    """From the table of results (see `table`) to sentences."""
    curves_by: tuple[str, ...]
    """Factors that tell the lines of one picture apart; the environment and the others make the pictures."""
    panels_by: tuple[str, ...] = ()


def check_preset(study: Study, preset: str) -> str:
    if preset not in PRESETS:
        raise UsageError(f"preset={preset!r} is unknown{near_matches(preset, PRESETS) or ': use quick, laptop or paper.'}")
    return preset


def with_factors(config: Config, **factors: Any) -> Cell:
    return Cell({"env": config.env, "algo": config.algo, **factors}, config)


def describe(grid: Grid) -> dict[str, Any]:
    """Sizes of a grid, for a list and for the identity of its results."""
    steps = sum(cell.config.env_steps for cell in grid.cells) * grid.num_seeds
    programs = len({cell.config.static for cell in grid.cells})
    return {"cells": len(grid.cells), "seeds": grid.num_seeds, "env_steps": steps, "programs": programs}


def same_grid(grid: Grid) -> str:
    """A digest of everything that is trained."""
    names = sorted(cell.name for cell in grid.cells)
    return hashlib.sha256(json.dumps([names, dataclasses.asdict(grid)["num_seeds"]]).encode()).hexdigest()[:16]
