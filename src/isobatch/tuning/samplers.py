"""Where the next trials come from: at random, or from Optuna's samplers, which learn from the trials before.

A group of trials shares one compiled program, so the settings that decide its shape are drawn once for all of them.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from isobatch.errors import UsageError, unknown_name
from isobatch.settings.parsing import SettingsByName
from isobatch.tuning.ranges import Choice, Range, shape_names

RANDOM, TPE, CMA_ES = "random", "tpe", "cma-es"
SAMPLERS = (TPE, CMA_ES, RANDOM)
STARTUP = 10  # trials at random before TPE has something to learn from
PACKAGES = {TPE: ("optuna",), CMA_ES: ("optuna", "cmaes"), RANDOM: ()}


Told = Sequence[tuple[Mapping[str, object], float]]  # settings of trials, and what they were worth


class Sampler(Protocol):
    """Makes trials, and is told what became of them. What it makes follows from its seed, the group and what it was
    told, so that asking again, in another process, gives the same trials."""

    def ask(self, group: int, count: int, shape: Mapping[str, object] | None) -> list[SettingsByName]:
        """The settings of a group of trials; `shape` if that is decided already."""
        ...

    def tell(self, group: int, trials: Told) -> None:
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


def sampler_of(name: str, ranges: Mapping[str, Range], seed: int) -> Sampler:
    check_sampler(name)
    return RandomSampler(ranges, seed) if name == RANDOM else OptunaSampler(name, ranges, seed)


class RandomSampler:
    """Every setting by itself, evenly on its scale."""

    def __init__(self, ranges: Mapping[str, Range], seed: int) -> None:
        self.ranges, self.seed = ranges, seed

    def ask(self, group: int, count: int, shape: Mapping[str, object] | None) -> list[SettingsByName]:
        generator = np.random.default_rng([self.seed, group])
        drawn = [{name: _draw(each, generator) for name, each in self.ranges.items()} for _ in range(count)]
        common = shape if shape is not None else {name: drawn[0][name] for name in shape_names(self.ranges)}
        return [{**settings, **common} for settings in drawn]

    def tell(self, group: int, trials: Told) -> None:
        """It does not learn."""


def _draw(each: Range, generator: np.random.Generator) -> object:
    if isinstance(each, Choice):
        return each.values[int(generator.integers(len(each.values)))]
    return each.at(float(generator.random()))


class OptunaSampler:
    """TPE or CMA-ES. Optuna sees places between 0 and 1 and choices by their number; the rest is ours."""

    def __init__(self, kind: str, ranges: Mapping[str, Range], seed: int) -> None:
        self.kind, self.ranges, self.seed = kind, ranges, seed
        self.population = 0  # of CMA-ES: a group
        self.open: dict[int, list[tuple[SettingsByName, Any]]] = {}  # settings and Optuna's trial, by group
        with quiet() as optuna:
            self.study: Any = optuna.create_study(direction="maximize")

    def ask(self, group: int, count: int, shape: Mapping[str, object] | None) -> list[SettingsByName]:
        self.population = self.population or max(count, 4)
        asked = self.open.setdefault(group, [])
        if shape is None and self.kind == TPE and group % 2:
            shape = self._any_shape(group)
        with quiet() as optuna:
            self.study.sampler = self._sampler(optuna, group)
            for _ in range(count):
                if shape is not None:
                    self.study.enqueue_trial(self._places(shape))
                trial = self.study.ask(self._distributions(optuna))
                asked.append((self._settings(trial.params), trial))
                if shape is None:
                    shape = {name: asked[0][0][name] for name in shape_names(self.ranges)}
        return [settings for settings, _ in asked]

    def _any_shape(self, group: int) -> SettingsByName:
        """TPE hardly leaves the shapes that it has seen, and a whole group shows it one: every other group is told."""
        drawn = RandomSampler(self.ranges, self.seed).ask(group, 1, None)[0]
        return {name: drawn[name] for name in shape_names(self.ranges)}

    def tell(self, group: int, trials: Told) -> None:
        asked = self.open.pop(group, [])
        with quiet() as optuna:
            for settings, worth in trials:
                place = next((i for i, (made, _) in enumerate(asked) if made == settings), None)
                if place is not None:
                    self.study.tell(asked.pop(place)[1], worth)
                    continue
                known = dict(params=self._places(settings), distributions=self._distributions(optuna), value=worth)
                self.study.add_trial(optuna.trial.create_trial(**known))
            for _, trial in asked:  # which nobody trained
                self.study.tell(trial, state=optuna.trial.TrialState.FAIL)

    def _sampler(self, optuna: Any, group: int) -> Any:
        """One for each group, with a seed of its own."""
        seed = int(np.random.SeedSequence([self.seed, group]).generate_state(1)[0])
        if self.kind == TPE:
            return optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=STARTUP)
        return optuna.samplers.CmaEsSampler(seed=seed, popsize=self.population, warn_independent_sampling=False)

    def _distributions(self, optuna: Any) -> dict[str, Any]:
        return {
            name: optuna.distributions.CategoricalDistribution(range(len(each.values)))
            if isinstance(each, Choice)
            else optuna.distributions.FloatDistribution(0.0, 1.0)
            for name, each in self.ranges.items()
        }

    def _places(self, settings: Mapping[str, Any]) -> dict[str, float]:
        return {
            name: each.values.index(settings[name]) if isinstance(each, Choice) else each.place(settings[name])
            for name, each in self.ranges.items()
            if name in settings
        }

    def _settings(self, places: Mapping[str, Any]) -> SettingsByName:
        return {
            name: each.values[places[name]] if isinstance(each, Choice) else each.at(places[name])
            for name, each in self.ranges.items()
        }


@contextmanager
def quiet() -> Iterator[Any]:
    """Optuna without its log and its remarks about what is experimental."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield optuna
