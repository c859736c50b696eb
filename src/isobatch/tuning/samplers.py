"""Where the next trials come from: at random, or from Optuna's samplers, which learn from the trials before.

A group of trials shares one compiled program, so the settings that decide its shape are drawn once for all of them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from isobatch.errors import UsageError, unknown_name
from isobatch.settings.parsing import SettingsByName
from isobatch.tuning.ranges import Choice, SearchRange, shape_names

RANDOM, TPE, CMA_ES = "random", "tpe", "cma-es"
SAMPLERS = (TPE, CMA_ES, RANDOM)
PACKAGES = {TPE: ("optuna",), CMA_ES: ("optuna", "cmaes"), RANDOM: ()}


TrialScores = Sequence[tuple[Mapping[str, object], float]]  # settings of trials, and what they were worth


class Sampler(Protocol):
    """Makes trials, and is told what became of them. What it makes follows from its seed, the group and what it was
    told, so that asking again, in another process, gives the same trials."""

    def ask(self, group: int, count: int, shape: Mapping[str, object] | None) -> list[SettingsByName]:
        """The settings of a group of trials; `shape` if that is decided already."""
        ...

    def tell(self, group: int, trials: TrialScores) -> None:
        """The results of a group. More is better, and only the order counts."""
        ...


def default_sampler() -> str:
    return TPE if importlib.util.find_spec("optuna") is not None else RANDOM


def check_sampler(name: str) -> None:
    if name not in SAMPLERS:
        raise unknown_name(f"sampler={name!r}", name, SAMPLERS)
    missing = [package for package in PACKAGES[name] if importlib.util.find_spec(package) is None]
    if missing:
        raise UsageError(
            f"sampler={name!r} needs the package {missing[0]}: pip install 'isobatch[tune]', or use --sampler {RANDOM}."
        )


def sampler_of(name: str, ranges: Mapping[str, SearchRange], seed: int) -> Sampler:
    check_sampler(name)
    if name == RANDOM:
        return RandomSampler(ranges, seed)
    from isobatch.tuning.optuna_sampler import OptunaSampler

    return OptunaSampler(name, ranges, seed)


class RandomSampler:
    """Every setting by itself, evenly on its scale."""

    def __init__(self, ranges: Mapping[str, SearchRange], seed: int) -> None:
        self.ranges, self.seed = ranges, seed

    def ask(self, group: int, count: int, shape: Mapping[str, object] | None) -> list[SettingsByName]:
        generator = np.random.default_rng([self.seed, group])
        drawn = [{name: _draw(each, generator) for name, each in self.ranges.items()} for _ in range(count)]
        common = shape if shape is not None else {name: drawn[0][name] for name in shape_names(self.ranges)}
        return [{**settings, **common} for settings in drawn]

    def tell(self, group: int, trials: TrialScores) -> None:
        """It does not learn."""


def _draw(each: SearchRange, generator: np.random.Generator) -> object:
    if isinstance(each, Choice):
        return each.values[int(generator.integers(len(each.values)))]
    return each.at(float(generator.random()))
