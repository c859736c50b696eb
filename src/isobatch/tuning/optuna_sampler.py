"""Optuna's samplers, which learn from the trials before."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import optuna

from isobatch.settings.parsing import SettingsByName
from isobatch.tuning.ranges import Choice, SearchRange, shape_names
from isobatch.tuning.samplers import TPE, RandomSampler, TrialScores

STARTUP = 10  # trials at random before TPE has something to learn from


class OptunaSampler:
    """TPE or CMA-ES. Optuna sees places between 0 and 1 and choices by their number; the rest is ours."""

    def __init__(self, kind: str, ranges: Mapping[str, SearchRange], seed: int) -> None:
        self.kind, self.ranges, self.seed = kind, ranges, seed
        self.population = 0  # of CMA-ES: a group
        self.open: dict[int, list[tuple[SettingsByName, optuna.Trial]]] = {}  # by group
        with quiet():
            self.study = optuna.create_study(direction="maximize")

    def ask(self, group: int, count: int, shape: Mapping[str, object] | None) -> list[SettingsByName]:
        self.population = self.population or max(count, 4)
        asked = self.open.setdefault(group, [])
        if shape is None and self.kind == TPE and group % 2:
            shape = self._any_shape(group)
        with quiet():
            self.study.sampler = self._sampler(group)
            for _ in range(count):
                if shape is not None:
                    self.study.enqueue_trial(self._places(shape))
                trial = self.study.ask(self._distributions())
                asked.append((self._settings(trial.params), trial))
                if shape is None:
                    shape = {name: asked[0][0][name] for name in shape_names(self.ranges)}
        return [settings for settings, _ in asked]

    def _any_shape(self, group: int) -> SettingsByName:
        """TPE hardly leaves the shapes that it has seen, and a whole group shows it one: every other group is told."""
        drawn = RandomSampler(self.ranges, self.seed).ask(group, 1, None)[0]
        return {name: drawn[name] for name in shape_names(self.ranges)}

    def tell(self, group: int, trials: TrialScores) -> None:
        asked = self.open.pop(group, [])
        with quiet():
            for settings, worth in trials:
                place = next((i for i, (made, _) in enumerate(asked) if made == settings), None)
                if place is not None:
                    self.study.tell(asked.pop(place)[1], worth)
                    continue
                places, kinds = self._places(settings), self._distributions()
                self.study.add_trial(optuna.trial.create_trial(params=places, distributions=kinds, value=worth))
            for _, trial in asked:  # which nobody trained
                self.study.tell(trial, state=optuna.trial.TrialState.FAIL)

    def _sampler(self, group: int) -> optuna.samplers.BaseSampler:
        """One for each group, with a seed of its own."""
        seed = int(np.random.SeedSequence([self.seed, group]).generate_state(1)[0])
        if self.kind == TPE:
            return optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=STARTUP)
        return optuna.samplers.CmaEsSampler(seed=seed, popsize=self.population, warn_independent_sampling=False)

    def _distributions(self) -> dict[str, optuna.distributions.BaseDistribution]:
        return {
            name: optuna.distributions.CategoricalDistribution(range(len(each.values)))
            if isinstance(each, Choice)
            else optuna.distributions.FloatDistribution(0.0, 1.0)
            for name, each in self.ranges.items()
        }

    def _places(self, settings: Mapping[str, object]) -> dict[str, float]:
        return {
            name: each.values.index(settings[name]) if isinstance(each, Choice) else each.place(settings[name])
            for name, each in self.ranges.items()
            if name in settings
        }

    def _settings(self, places: Mapping[str, float]) -> SettingsByName:
        return {
            name: each.values[int(places[name])] if isinstance(each, Choice) else each.at(places[name])
            for name, each in self.ranges.items()
        }


@contextmanager
def quiet() -> Iterator[None]:
    """Optuna without its log and its remarks about what is experimental."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
