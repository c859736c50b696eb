"""Where trials come from: groups of one shape, the same ones for the same seed and history, better ones with time."""

import importlib.util
import math
from collections.abc import Mapping
from typing import Any

import pytest

from isobatch.errors import UsageError
from isobatch.settings.presets import preset
from isobatch.tuning import samplers
from isobatch.tuning.ranges import default_ranges, shape_names
from isobatch.tuning.samplers import CMA_ES, RANDOM, SAMPLERS, TPE, Sampler, check_sampler, default_sampler, sampler_of

needs_optuna = pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="the extra tune is not installed")
RANGES = default_ranges(preset("ppo", "CartPole-v1"))
EACH = [pytest.param(name, marks=[] if name == RANDOM else needs_optuna) for name in SAMPLERS]
Scored = list[tuple[dict[str, object], float]]


def worth(settings: Mapping[str, Any]) -> float:
    return -abs(math.log(settings["learning_rate"] / 2e-3)) - 10 * abs(settings["gae_lambda"] - 0.8)


def play(sampler: Sampler, groups: int, size: int = 12) -> list[Scored]:
    found = []
    for group in range(groups):
        scored = [(settings, worth(settings)) for settings in sampler.ask(group, size, None)]
        sampler.tell(group, scored)
        found.append(scored)
    return found


@pytest.mark.parametrize("name", EACH)
def test_a_group_has_one_shape_and_the_same_history_gives_the_same_trials(name: str) -> None:
    history = play(sampler_of(name, RANGES, 0), 4)
    again = sampler_of(name, RANGES, 0)
    for group, scored in enumerate(history):
        shapes = {tuple(settings[each] for each in shape_names(RANGES)) for settings, _ in scored}
        assert len(shapes) == 1
        assert [settings.keys() for settings, _ in scored] == [RANGES.keys()] * len(scored)
        assert again.ask(group, len(scored), None) == [settings for settings, _ in scored]
        again.tell(group, scored)
    assert len({tuple(settings.items()) for scored in history for settings, _ in scored}) == 48
    assert play(sampler_of(name, RANGES, 1), 1) != history[:1]


@pytest.mark.parametrize("name", EACH)
def test_a_shape_that_is_decided_is_kept(name: str) -> None:
    shape: dict[str, object] = {"num_minibatches": 8, "update_epochs": 1}
    drawn = sampler_of(name, RANGES, 0).ask(0, 5, shape)
    assert [{each: settings[each] for each in shape} for settings in drawn] == [shape] * 5
    assert len({settings["learning_rate"] for settings in drawn}) == 5


@needs_optuna
@pytest.mark.parametrize("name", [TPE, CMA_ES])
def test_they_learn(name: str) -> None:
    first, *_, last = [sum(value for _, value in scored) for scored in play(sampler_of(name, RANGES, 0), 8)]
    assert last > 0.8 * first


@needs_optuna
def test_trials_of_others_are_learned_from_too() -> None:
    """Those that a search starts from, which nobody asked for, and values outside of the ranges."""
    sampler = sampler_of(TPE, RANGES, 0)
    first = sampler.ask(0, 3, None)
    start = {**first[0], "learning_rate": 2e-3, "ent_coef": 0.0}
    sampler.tell(0, [(start, 9.0), (first[1], 0.0)])
    states = [trial.state.name for trial in sampler.study.trials]  # type: ignore[attr-defined]
    assert sorted(states) == ["COMPLETE", "COMPLETE", "FAIL", "FAIL"]
    assert sampler.study.best_trial.params["ent_coef"] == 0  # type: ignore[attr-defined]


def test_without_optuna_it_is_random_and_the_others_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samplers.importlib.util, "find_spec", lambda name: None)
    assert default_sampler() == RANDOM
    check_sampler(RANDOM)
    with pytest.raises(UsageError, match=r"sampler='tpe' needs the package optuna: pip install 'isobatch\[tune\]'"):
        check_sampler(TPE)
    with pytest.raises(UsageError, match="sampler='tpee' is unknown; did you mean tpe"):
        check_sampler("tpee")
