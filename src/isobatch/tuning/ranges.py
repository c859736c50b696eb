"""What is searched: settings with the values they may take, by default those that matter most.

A setting whose scale nobody knows is searched by its logarithm, and a discount or decay rate by the logarithm of its
distance from 1. The age of an averaged proximal policy is searched in environment steps: the same beta_prox is another
age with other minibatches or epochs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from isobatch.errors import UsageError, near_matches
from isobatch.interop import called_elsewhere
from isobatch.settings.config import Config, Hypers, setting_fields
from isobatch.settings.fields import DECAY, UNIT, fields_of
from isobatch.settings.geometry import cuts_evenly
from isobatch.settings.in_use import idle_settings
from isobatch.settings.parsing import SettingsByName, parse_value, plain_value

AGE = "proximal_age"  # in environment steps; sets beta_prox
NOT_SEARCHED = ("env", "algo", "env_kwargs", "total_timesteps", "num_shards")  # they say what a trial is
SMALLEST_MINIBATCH = 32  # samples, of the defaults
DIGITS = 4  # of values that are tried: they are meant to be typed
SMALLEST, LARGEST = (float(end) for end in (np.finfo(np.float32).tiny, np.finfo(np.float32).max))  # in a program
Scale = Literal["linear", "log", "log distance from 1"]


@dataclass(frozen=True)
class Interval:
    """All numbers from `low` to `high`, evenly spaced on a scale."""

    name: str
    low: float
    high: float
    scale: Scale

    def at(self, unit: float) -> float:
        """The value at a place between 0 and 1, rounded."""
        low, high = (_bent(end, self.scale) for end in (self.low, self.high))
        value = low + unit * (high - low)
        if self.scale == "linear":
            return min(max(_short(value), self.low), self.high)
        value = _short(math.exp(value)) if self.scale == "log" else round(1 - _short(math.exp(-value)), 12)
        return min(max(value, self.low), self.high)

    def place(self, value: object) -> float:
        """The inverse of `at`; values outside are moved to the nearer end."""
        number = min(max(parse_value(self.name, value, float), self.low), self.high)
        low, here, high = (_bent(each, self.scale) for each in (self.low, number, self.high))
        return (here - low) / (high - low)

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}" + ("" if self.scale == "linear" else f", {self.scale}")


@dataclass(frozen=True)
class Choice:
    """A few values."""

    name: str
    values: tuple[object, ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.values))


SearchRange = Interval | Choice


def default_ranges(config: Config) -> dict[str, SearchRange]:
    """Log-spaced ranges of what matters most and is in use; each holds the config's own value, but for 0."""
    g, h = config.geometry, config.hypers
    ranges: list[SearchRange] = [
        _around("learning_rate", 1e-4, 1e-2, h.learning_rate),
        _around("ent_coef", 1e-4, 0.1, h.ent_coef),
        _around("clip_eps", 0.1, 0.4, h.clip_eps),
        _around("kl_coef", 0.1, 10.0, h.kl_coef),
        Interval("gamma", min(0.9, h.gamma), max(0.999, h.gamma), _scale_of("gamma", 0.9, max(0.999, h.gamma))),
        _around(AGE, g.iteration_batch / 4, 4.0 * g.iteration_batch, g.proximal_age(h.beta_prox)),
    ]
    if config.baseline and config.bootstrap:
        low, high = min(0.7, h.gae_lambda), max(0.99, h.gae_lambda)
        ranges.append(Interval("gae_lambda", low, high, _scale_of("gae_lambda", low, high)))
    if config.objective != "policy-gradient":
        counts = [g.num_minibatches * times // 2 for times in (1, 2, 4, 8)]
        ranges.append(Choice("num_minibatches", tuple(n for n in counts if _fits(config, n))))
    if config.objective != "policy-gradient" and not config.policy_iterations_per_phase:
        ranges.append(Choice("update_epochs", tuple(sorted({1, 2, 4, 8, g.update_epochs}))))
    idle = idle_settings(config)
    several = [each for each in ranges if isinstance(each, Interval) or len(each.values) > 1]
    return {each.name: each for each in several if _setting(each.name) not in idle}


def chosen_ranges(
    config: Config, search: Sequence[str], also: Sequence[str], given: Iterable[str]
) -> dict[str, SearchRange]:
    """What to search: the defaults or `search` instead of them, and `also`; `given` are settings with a fixed value."""
    defaults = default_ranges(config)
    asked = [parse_range(config, text, defaults) for text in (*search, *also)]
    names = [each.name for each in asked]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"search {name} is there twice: give one range.")
        if _setting(name) in given:
            raise UsageError(f"{_setting(name)} is both given and searched: leave out its value or its range.")
    if "beta_prox" in names and AGE in names:
        raise UsageError(f"search beta_prox and {AGE} set the same thing: leave one of them out.")
    fixed = {*given, *(_setting(name) for name in names)}
    usual = {} if search else {name: each for name, each in defaults.items() if _setting(name) not in fixed}
    ranges = usual | {each.name: each for each in asked}
    if not ranges:
        raise UsageError("search is empty, every setting is given: name one, for example --search learning_rate.")
    check_shapes(config, ranges)
    return ranges


def parse_range(config: Config, text: str, defaults: Mapping[str, SearchRange]) -> SearchRange:
    """From `learning_rate=1e-4:1e-2`, `num_minibatches=4,8,16`, or a name that has a default range."""
    word, equals, values = (part.strip() for part in text.partition("="))
    name = word.replace("-", "_")
    known = [AGE, *(other for other in setting_fields() if other not in NOT_SEARCHED)]
    if name not in known:
        ours = [other for other in called_elsewhere(name) if other in known]
        why = f"; here it is called {' or '.join(ours)}." if ours else near_matches(name, known)
        why = ": it says what a trial is." if name in NOT_SEARCHED else why
        raise UsageError(
            f"search {name!r} is no setting that can be searched{why or '; see isobatch train --help-all.'}"
        )
    if _setting(name) in idle_settings(config):
        raise UsageError(f"search {name}: it changes nothing with {_why_idle(config, name)}; leave it out.")
    if not equals:
        if name not in defaults:
            raise UsageError(f"search {name} has no default range: give one, {name}=LOW:HIGH or {name}=A,B.")
        return defaults[name]
    if ":" in values:
        return _interval(config, name, values)
    field = setting_fields()[_setting(name)]
    words = [word.strip() for word in values.split(",") if word.strip()]
    kind: object = float if name == AGE else field.kind
    parsed = tuple(dict.fromkeys(parse_value(name, word, kind) for word in words))
    if len(parsed) < 2:
        what = "is empty" if not words else "is one value"
        fix = f"give a range, {name}=LOW:HIGH, or several values, {name}=A,B"
        raise UsageError(f"search {name}={values} {what}: {fix}.")
    for value in parsed:
        config_of(config, {name: value})  # says what is wrong with it
    return Choice(name, tuple(plain_value(value) for value in parsed))


def _interval(config: Config, name: str, values: str) -> Interval:
    if name != AGE and name not in fields_of(Hypers):
        raise UsageError(f"search {name}={values}: each value is a program of its own; list them, {name}=A,B.")
    low, high = (parse_value(name, end.strip(), float) for end in values.split(":", 1))
    for end in (low, high):
        if not math.isfinite(end):
            raise UsageError(f"search {name}={values} has no end: give two finite numbers.")
        if end and not SMALLEST <= abs(end) <= LARGEST:
            raise UsageError(
                f"search {name}={values}: {end:g} is no number of single precision: stay between {SMALLEST:.3g} and "
                f"{LARGEST:.3g}."
            )
        config_of(config, {name: end})
    if not low < high:
        raise UsageError(f"search {name}={values} is empty: the first number has to be below the second.")
    interval = Interval(name, low, high, _scale_of(name, low, high))
    if not interval.at(0) < interval.at(0.5) < interval.at(1):
        raise UsageError(
            f"search {name}={values} is narrower than the {DIGITS} digits of values that are tried: give ends further "
            f"apart, or values, {name}=A,B."
        )
    return interval


def config_of(config: Config, settings: Mapping[str, object]) -> Config:
    """The config with these values, of which the age of the proximal policy is told in environment steps."""
    plain: SettingsByName = {name: value for name, value in settings.items() if name != AGE}
    made = config.replace(**plain)
    if AGE not in settings:
        return made
    age = parse_value(AGE, settings[AGE], float)
    if not 0 <= age < math.inf:
        raise UsageError(f"{AGE}={age:g} is not an age: use a number of environment steps.")
    center = age / made.geometry.env_steps_per_gradient_step
    return made.replace(beta_prox=center / (1 + center))


def settings_of(config: Config, ranges: Mapping[str, SearchRange]) -> SettingsByName:
    """What a config has of the settings that are searched."""
    values = config.to_dict() | {AGE: config.geometry.proximal_age(config.hypers.beta_prox)}
    return {name: values[name] for name in ranges}


def shape_names(ranges: Mapping[str, SearchRange]) -> list[str]:
    """Those of which each value is a program of its own."""
    return [name for name in ranges if name != AGE and name not in fields_of(Hypers)]


def check_shapes(config: Config, ranges: Mapping[str, SearchRange]) -> None:
    """Raise where values of several settings contradict each other."""
    names = shape_names(ranges)
    values = [each.values for each in ranges.values() if isinstance(each, Choice) and each.name in names]
    for combination in itertools.islice(itertools.product(*values), 1000):
        try:
            config_of(config, dict(zip(names, combination, strict=True)))
        except UsageError as error:
            combined = ", ".join(f"{name}={value}" for name, value in zip(names, combination, strict=True))
            raise UsageError(f"search has {combined}, which do not go together: {error}") from None


def _around(name: str, low: float, high: float, value: float) -> Interval:
    """A range by the logarithm, wider where the value that it should hold is near or beyond its ends."""
    if 0 < value < math.inf:
        low, high = min(low, value / 2), max(high, value * 2)
    return Interval(name, low, high, "log")


def _scale_of(name: str, low: float, high: float) -> Scale:
    field = setting_fields()[_setting(name)]
    if name != AGE and field.range in (UNIT, DECAY):
        return "log distance from 1" if high < 1 else "linear"
    return "log" if low > 0 else "linear"


def _bent(value: float, scale: Scale) -> float:
    return value if scale == "linear" else math.log(value) if scale == "log" else -math.log(1 - value)


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _setting(name: str) -> str:
    return "beta_prox" if name == AGE else name


def _fits(config: Config, count: int) -> bool:
    small = config.geometry.iteration_batch // max(count, 1) < SMALLEST_MINIBATCH
    if count < 1 or (small and count > config.num_minibatches):
        return False
    rows = config.num_envs // config.num_shards
    return cuts_evenly(count, rows, config.num_steps, config.minibatch_scheme)


def _why_idle(config: Config, name: str) -> str:
    """The setting of a config that makes another one idle."""
    made = {"clip_eps": "objective", "kl_coef": "objective", AGE: "proximal_policy", "beta_prox": "proximal_policy"}
    reason = made.get(name, "algo")
    return f"{reason}={config.to_dict()[reason]}"
