"""A study is a grid of cells: settings that are trained on the same seeds and compared."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from isobatch.errors import UsageError, near_matches
from isobatch.settings.config import Config
from isobatch.settings.presets import bare_id
from isobatch.statistics.normalization import Range

PRESETS = ("quick", "laptop", "paper")
NAMED = "perhaps with its backend, as in gymnasium/CartPole-v1"
Factors = dict[str, str | int | float]
Row = dict[str, Any]  # of the results: one cell and seed (see `rows`)


@dataclass(frozen=True)
class Cell:
    """One point of the grid: what it stands for, and what is trained. The environment is a factor too."""

    config: Config
    factors: Factors

    def __post_init__(self) -> None:
        settings = self.config.to_dict()
        for name, value in self.factors.items():
            assert settings.get(name, value) == value, f"factor {name}={value}, but the setting is {settings[name]}"

    @property
    def name(self) -> str:
        """Says what the cell is, and differs for different settings: fit for a file name."""
        words = "-".join(str(value) for value in (self.config.env, *self.factors.values()))
        plain = "".join(letter if letter.isalnum() or letter in "-._" else "_" for letter in words)
        return f"{plain}-{digest(self.config.to_dict())}"


@dataclass(frozen=True)
class Grid:
    """The cells of a study at one scale."""

    cells: list[Cell]
    num_seeds: int

    def __post_init__(self) -> None:
        names = [cell.name for cell in self.cells]
        assert len(set(names)) == len(names), "two cells of a study are the same"
        assert all(cell.factors.keys() == self.cells[0].factors.keys() for cell in self.cells)

    @property
    def seeds(self) -> list[int]:
        return list(range(self.num_seeds))

    @property
    def digest(self) -> str:
        """Of everything that is trained."""
        return digest([sorted(cell.name for cell in self.cells), self.num_seeds])

    def sizes(self) -> dict[str, Any]:
        """For a list, and for whoever finds the results."""
        return {
            "environments": list(dict.fromkeys(cell.config.env for cell in self.cells)),
            "cells": len(self.cells),
            "seeds": self.num_seeds,
            "env_steps": self.num_seeds * sum(cell.config.env_steps for cell in self.cells),
            "factors": list(self.cells[0].factors),
            "programs": len({cell.config.static for cell in self.cells}),
        }


@dataclass(frozen=True)
class Measurement:
    """A run whose policies the gradient laboratory measures at several N x T of equal size."""

    config: Config
    shapes: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Study:
    """A claim as a command."""

    name: str
    claim: str
    """What is claimed, and by whom, in a sentence."""
    grid: Callable[[str], Grid]
    """The grid of a preset: quick, laptop or paper."""
    verdict: Callable[[list[Row]], list[str]]
    """From the rows of a finished study to sentences."""
    pictures: str = ""
    """Factor that has a picture for each of its values, the others tell its lines apart; without it one picture."""
    everywhere: Mapping[str, Any] = field(default_factory=dict)
    """Factors of the cells that are part of every picture."""
    ladder: str = ""
    """Factor that divides the batch, where `everywhere` is its first rung: draws the gap from there to the last one."""
    surface: tuple[str, str] | None = None
    """Two factors: the scores of all their pairs are drawn as a surface."""
    ranges: Mapping[str, Range] = field(default_factory=dict)
    """Of returns, for environments that `normalization` does not know."""
    laboratory: Callable[[str], list[Measurement]] = lambda preset: []
    """What the gradient laboratory measures besides, at a preset."""
    reading: Callable[[list[Row], list[Row]], list[str]] = lambda rows, measured: []
    """From the rows of the study and those of the laboratory to sentences."""


def on_environments(study: Study, envs: Sequence[str]) -> Study:
    """The study on these environments alone, which may be of another backend than its own.

    An environment has the settings of the study's environment of the same bare id.
    """

    def moved(configs: Iterable[Config]) -> Iterator[tuple[int, Config]]:
        """Number of each config that is wanted, and the config with the wanted id."""
        for place, config in enumerate(configs):
            yield from ((place, config.replace(env=env)) for env in envs if bare_id(env) == bare_id(config.env))

    def grid(preset: str) -> Grid:
        own = study.grid(preset)
        known = list(dict.fromkeys(bare_id(cell.config.env) for cell in own.cells))
        for env in envs:
            if bare_id(env) not in known:
                raise UsageError(
                    f"envs={env!r} is not in this study at preset {preset!r}: use {', '.join(known)}, {NAMED}."
                )
        cells = [Cell(config, own.cells[i].factors) for i, config in moved(cell.config for cell in own.cells)]
        return Grid(cells, own.num_seeds)

    def laboratory(preset: str) -> list[Measurement]:
        own = study.laboratory(preset)
        return [Measurement(config, own[i].shapes) for i, config in moved(each.config for each in own)]

    return dataclasses.replace(study, grid=grid, laboratory=laboratory)


def check_preset(preset: str) -> None:
    if preset not in PRESETS:
        hint = near_matches(preset, PRESETS) or f": use {', '.join(PRESETS)}."
        raise UsageError(f"preset={preset!r} is unknown{hint}")


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]
