"""A study is a grid of cells: settings that are trained on the same seeds and compared."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from isobatch.errors import UsageError, near_matches
from isobatch.settings.config import Config
from isobatch.settings.presets import bare_id
from isobatch.statistics.normalization import ReturnRange

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCALES = ("quick", "laptop", "paper")
ENV_FORMS = "perhaps with its backend, as in gymnasium/CartPole-v1"
Factors = dict[str, str | int | float]
Row = dict[str, Any]  # of the results: one cell and seed (see `rows`)


class RuleChoice(TypedDict, total=False):
    """Which rescaling rules a variant applies, as `rescale` takes them."""

    use: list[str]
    without: list[str]


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
        name = "-".join(str(value) for value in (self.config.env, *self.factors.values()))
        plain = "".join(letter if letter.isalnum() or letter in "-._" else "_" for letter in name)
        return f"{plain}-{digest(self.config.to_dict())}"


class GridSizes(TypedDict):
    """How large a grid is: for a list of studies, and for readers of its results."""

    environments: list[str]
    cells: int
    seeds: int
    env_steps: int  # of all cells and seeds
    factors: list[str]
    programs: int  # to be compiled
    evaluated: bool  # whether returns are of episodes besides training


@dataclass(frozen=True)
class Grid:
    """The cells of a study at one scale."""

    cells: list[Cell]
    num_seeds: int
    evaluated: bool = False
    """Whether returns are of episodes that the policies play besides (`policy_returns`), and not of training."""

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
        evaluated = [True] if self.evaluated else []
        return digest([sorted(cell.name for cell in self.cells), self.num_seeds, *evaluated])

    def sizes(self) -> GridSizes:
        return {
            "environments": list(dict.fromkeys(cell.config.env for cell in self.cells)),
            "cells": len(self.cells),
            "seeds": self.num_seeds,
            "env_steps": self.num_seeds * sum(cell.config.env_steps for cell in self.cells),
            "factors": list(self.cells[0].factors),
            "programs": len({cell.config.static for cell in self.cells}),
            "evaluated": self.evaluated,
        }


@dataclass(frozen=True)
class Measurement:
    """A run whose policies the gradient laboratory measures at several N x T of equal size."""

    config: Config
    shapes: tuple[tuple[int, int], ...]
    checkpoints: int = 3
    """Equally far apart, the last one at the end."""
    chains: int = 128
    """Environments that it is measured on."""


@dataclass(frozen=True)
class Study:
    """A claim as a command."""

    name: str
    claim: str
    """What is claimed, and by whom, in a sentence."""
    grid: Callable[[str], Grid]
    """The grid at a scale: quick, laptop or paper."""
    verdict: Callable[[list[Row]], list[str]]
    """From the rows of a finished study to sentences."""
    pictures: str = ""
    """Factor that has a picture for each of its values, the others tell its lines apart; without it one picture."""
    everywhere: Mapping[str, object] = field(default_factory=dict)
    """Factors of the cells that are part of every picture."""
    reference: Mapping[str, object] = field(default_factory=dict)
    """Factors of cells that are part of every picture to compare with: dashed, and no picture of their own."""
    panels: str = ""
    """Factor that has a panel for each of its values in the picture of all environments; without it `pictures`."""
    pairs: Mapping[str, tuple[Mapping[str, object], Mapping[str, object]]] = field(default_factory=dict)
    """X minus Y by the factors of both: their differences are drawn by environment."""
    divisor: str = ""
    """Factor that divides the batch: draws the gap from the undivided one, which is `everywhere`, to the smallest."""
    surface: tuple[str, str] | None = None
    """Two factors: the scores of all their pairs are drawn as a surface."""
    drawings: Mapping[str, Callable[[list[Row]], Figure]] = field(default_factory=dict)
    """Pictures of its own by name, drawn from the rows."""
    ranges: Mapping[str, ReturnRange] = field(default_factory=dict)
    """Of returns, for environments that `normalization` does not know."""
    laboratory: Callable[[str], list[Measurement]] = lambda scale: []
    """What the gradient laboratory measures besides, at a scale."""
    reading: Callable[[list[Row], list[Row]], list[str]] = lambda rows, measured: []
    """From the rows of the study and those of the laboratory to sentences."""
    minutes: int | None = None
    """That the scale `laptop` took on 2 cores, as its page in docs/results has it."""


def on_environments(study: Study, envs: Sequence[str]) -> Study:
    """The study on these environments alone, which may be of another backend than its own.

    An environment has the settings of the study's environment of the same bare id.
    """

    once = list(dict.fromkeys(envs))

    def moved(configs: Iterable[Config]) -> Iterator[tuple[int, Config]]:
        """Index of each config that is kept, and the config with the id that was asked for."""
        for index, config in enumerate(configs):
            yield from ((index, config.replace(env=env)) for env in once if bare_id(env) == bare_id(config.env))

    def grid(scale: str) -> Grid:
        whole = study.grid(scale)
        known = list(dict.fromkeys(bare_id(cell.config.env) for cell in whole.cells))
        for env in envs:
            if bare_id(env) not in known:
                raise UsageError(
                    f"envs={env!r} is not in this study at scale {scale!r}: use {', '.join(known)}, {ENV_FORMS}."
                )
        cells = [Cell(config, whole.cells[i].factors) for i, config in moved(cell.config for cell in whole.cells)]
        return dataclasses.replace(whole, cells=cells)

    def laboratory(scale: str) -> list[Measurement]:
        measurements = study.laboratory(scale)
        return [
            dataclasses.replace(measurements[i], config=config)
            for i, config in moved(each.config for each in measurements)
        ]

    return dataclasses.replace(study, grid=grid, laboratory=laboratory)


def check_scale(scale: str) -> None:
    if scale not in SCALES:
        hint = near_matches(scale, SCALES) or f": use {', '.join(SCALES)}."
        raise UsageError(f"scale={scale!r} is unknown{hint}")


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]
