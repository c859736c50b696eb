"""Stable-Baselines3 (2.9) and the hyperparameter files of rl-zoo3: PPO and A2C.

`batch_size` is the minibatch, our *optimization batch*, in samples; `n_steps` x `n_envs` is the rollout, our *iteration
batch*. So adding environments adds minibatches of the same size: SB3 holds the size, we hold the count. A batch_size
above the rollout means one minibatch with the whole rollout.

The value loss is the plain mean squared error, ours half of it: our vf_coef is twice theirs. Advantages are normalized
per minibatch. A run that is no whole number of rollouts has one more, ours one less.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import replace

from isobatch.advice.kl_control import KlControl
from isobatch.errors import UsageError, near_matches
from isobatch.interop.computed_otherwise import by_n_minus_1, further_on
from isobatch.interop.form import Form
from isobatch.interop.keys import Key, Known, Raw, choice, key, minibatch_size, number, stop_at, tidy, whole
from isobatch.interop.library import CLIPPED_PPO, Library
from isobatch.interop.sb3_networks import MLP, other_networks, policy, policy_kwargs
from isobatch.interop.yaml_text import edit as edit_yaml
from isobatch.interop.yaml_text import entries_changed, entry_text, mapping_of, render_flat
from isobatch.settings.config import Config
from isobatch.settings.parsing import SettingsByName, parse_value
from isobatch.settings.schedules import LINEAR as LINE

LINEAR = "lin_"
"""Prefix of a value that falls to zero over the run."""
ATARI = re.compile(r"^ALE/|(NoFrameskip|Deterministic)-v\d+$")


def _scheduled(name: str, value: object) -> tuple[float, bool]:
    if isinstance(value, str) and value.startswith(LINEAR):
        return parse_value(name, value.removeprefix(LINEAR), float), True
    if isinstance(value, str) and value.partition("_")[0].isalpha():
        raise UsageError(
            f"{name}={value!r} is no schedule that is known: use a number, or {LINEAR}0.2 for a line to 0."
        )
    return parse_value(name, value, float), False


def _learning_rate(default: float) -> Key:
    def read(value: object, known: Known) -> SettingsByName:
        rate, linear = _scheduled("learning_rate", value)
        return {"learning_rate": rate, "lr_schedule": LINE if linear else "constant"}

    def write(config: Config, old: object, known: Known) -> object:
        return _with_schedule(config.hypers.learning_rate, config.lr_schedule)

    return Key(("learning_rate",), ("learning_rate", "lr_schedule"), default, read, write)


def _clip_range() -> Key:
    def read(value: object, known: Known) -> SettingsByName:
        size, linear = _scheduled("clip_range", value)
        return {"clip_eps": size} | _to_zero("clip_schedule", linear)

    def write(config: Config, old: object, known: Known) -> object:
        return _with_schedule(config.hypers.clip_eps, config.clip_schedule)

    return key("clip_range", "clip_eps clip_schedule clip_eps_end", 0.2, read, write)


def _clip_range_vf() -> Key:
    """Value clipping: none, or a range; a negative one is none too."""

    def read(value: object, known: Known) -> SettingsByName:
        size, linear = (None, False) if value is None else _scheduled("clip_range_vf", value)
        if not size or size < 0:
            return {"clip_value_loss": False}
        return {"clip_value_loss": True, "value_clip_eps": size} | _to_zero("value_clip_schedule", linear)

    def write(config: Config, old: object, known: Known) -> object:
        size = _with_schedule(config.hypers.value_clip_eps, config.value_clip_schedule)
        return size if config.clip_value_loss else None

    fields = "clip_value_loss value_clip_eps value_clip_schedule clip_eps_end"
    return key("clip_range_vf", fields, None, read, write)


def _to_zero(schedule: str, linear: bool) -> SettingsByName:
    """A range's schedule; the lines of rl-zoo3 end at 0."""
    return {schedule: LINE, "clip_eps_end": 0.0} if linear else {schedule: "constant"}


def _with_schedule(size: float, schedule: str) -> object:
    return f"{LINEAR}{tidy(size)!r}" if schedule == LINE else size


def _normalize() -> Key:
    """VecNormalize: true, or its arguments as a dict or the text of one.

    The rewards are scaled by a return of the algorithm's own discount: rl-zoo3 puts it over whatever the dict says, if
    `gamma` is in the file, and else it is 0.99 for both.
    """

    def read(value: object, known: Known) -> SettingsByName:
        parts = _normalize_parts(value)
        if parts is None:
            return {"normalize_observations": False, "normalize_rewards": False}
        settings: SettingsByName = {
            "normalize_observations": bool(parts.get("norm_obs", True)),
            "normalize_rewards": bool(parts.get("norm_reward", True)),
        }
        if settings["normalize_observations"]:
            settings["obs_clip"] = parse_value("clip_obs", parts.get("clip_obs", 10.0), float)
        if settings["normalize_rewards"]:
            settings["reward_clip"] = parse_value("clip_reward", parts.get("clip_reward", 10.0), float)
            settings["reward_norm_gamma"] = known.settings["gamma"]
        return settings

    def write(config: Config, old: object, known: Known) -> object:
        obs, reward, hypers = config.normalize_observations, config.normalize_rewards, config.hypers
        if not obs and not reward:
            return False
        parts = dict(_normalize_parts(old) or {})
        for name, value, usual in (
            ("norm_obs", obs, True),
            ("norm_reward", reward, True),
            ("clip_obs", hypers.obs_clip if obs else 10.0, 10.0),
            ("clip_reward", hypers.reward_clip if reward else 10.0, 10.0),
        ):
            if name in parts or value != usual:
                parts[name] = value
        return parts or True

    def rest(value: object) -> str:
        others = set(_normalize_parts(value) or {}) - {"norm_obs", "norm_reward", "clip_obs", "clip_reward"}
        return ", ".join(sorted(others))

    fields = "normalize_observations normalize_rewards obs_clip reward_clip reward_norm_gamma"
    return key("normalize", fields, False, read, write, rest)


def _normalize_parts(value: object) -> SettingsByName | None:
    """The arguments of VecNormalize, or nothing where it is not used."""
    parts = _as_dict(value) if isinstance(value, str) else value
    return parts if isinstance(parts, dict) else {} if parts else None


def _as_dict(text: str) -> SettingsByName:
    """The value of `{'a': 1}` or `dict(a=1)`; rl-zoo3 evaluates any Python there, we do not."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
            return {str(k.arg): ast.literal_eval(k.value) for k in node.keywords}
        value = ast.literal_eval(node)
    except (SyntaxError, ValueError):
        value = None
    if not isinstance(value, dict):
        raise UsageError(f"normalize={text!r} is not a dict: use true, false or dict(norm_obs=..., norm_reward=...).")
    return value


def _common(n_steps: int, gae_lambda: float) -> tuple[Key, ...]:
    return (
        whole("n_envs", "num_envs", 1),
        whole("n_steps", "num_steps", n_steps),
        whole("n_timesteps", "total_timesteps", 1_000_000),
        number("gamma", "gamma", 0.99),
        number("gae_lambda", "gae_lambda", gae_lambda),
        number("ent_coef", "ent_coef", 0.0),
        number("vf_coef", "vf_coef", 0.5, times=2),
        number("max_grad_norm", "max_grad_norm", 0.5),
        _normalize(),
        policy(),
        policy_kwargs(),
    )


def _rms_prop() -> Key:
    """A2C: RMSProp with a decay of 0.99 and `rms_prop_eps`, or Adam as PPO has it."""

    def read(value: object, known: Known) -> SettingsByName:
        if parse_value("use_rms_prop", value, bool):
            return {"optimizer": "rmsprop", "beta2": 0.99}
        return {"optimizer": "adam", "beta2": 0.999, "optimizer_eps": 1e-5}

    def write(config: Config, old: object, known: Known) -> object:
        return config.optimizer != "adam"

    return key("use_rms_prop", "optimizer beta2 optimizer_eps", True, read, write)


def _rms_prop_eps() -> Key:
    eps = number("rms_prop_eps", "optimizer_eps", 1e-5)

    def write(config: Config, old: object, known: Known) -> object:
        return config.hypers.optimizer_eps if config.optimizer == "rmsprop" else old

    return replace(eps, write=write)


PPO = (
    *_common(n_steps=2048, gae_lambda=0.95),
    minibatch_size("batch_size", 64, "n_envs x n_steps", at_most_all=True),
    whole("n_epochs", "update_epochs", 10),
    _learning_rate(3e-4),
    _clip_range(),
    _clip_range_vf(),
    choice("normalize_advantage", "advantage_norm", True, on="minibatch", off="none"),
    stop_at("target_kl", None, times=1.0),
)
A2C = (
    *_common(n_steps=5, gae_lambda=1.0),
    _learning_rate(7e-4),
    _rms_prop_eps(),
    _rms_prop(),
    choice("normalize_advantage", "advantage_norm", False, on="minibatch", off="none"),
)


def control(raw: Raw) -> KlControl | None:
    """`target_kl`: PPO's epochs end at one and a half times it."""
    target = raw("target_kl")
    return KlControl("target_kl", parse_value("target_kl", target, float), "stop") if target else None


def differences(config: Config) -> list[str]:
    """What Stable-Baselines3 computes otherwise from the same settings."""
    return [*further_on(config), *by_n_minus_1(config)]


def parse(text: str, env: str | None) -> tuple[SettingsByName, str | None]:
    """A zoo file (environment -> settings), or the settings of one environment alone."""
    mapping = mapping_of(text)
    if _holds_settings(mapping):
        return mapping, env
    if env is None:
        raise UsageError(f"env is missing: the file has settings for {len(mapping)} environments; give --env NAME.")
    name = _entry(text, env)
    if name is None:
        hint = near_matches(env, mapping) or "; use one of " + ", ".join(mapping) + "."
        raise UsageError(f"env={env!r} is not in the file{hint}")
    entry = mapping[name]
    if not isinstance(entry, dict):
        raise UsageError(f"env={env!r} does not hold a mapping in the file: use lines of `name: value` under it.")
    return entry, env


def _holds_settings(mapping: Mapping[str, object]) -> bool:
    """Whether these are the settings of one environment, and not environments with theirs."""
    return any(name in mapping for key in (*PPO, *A2C) for name in key.names)


def entries(text: str) -> list[str]:
    mapping = mapping_of(text)
    return [] if _holds_settings(mapping) else [name for name, value in mapping.items() if isinstance(value, dict)]


def _entry(text: str, env: str | None) -> str | None:
    """The name under which the settings stand in the file, if they do not stand alone.

    As in rl-zoo3 it is that of the environment, or else `atari` for a game, or else `default`; but one that is spelled
    almost like an entry is not taken for another environment.
    """
    mapping = mapping_of(text)
    if env is None or _holds_settings(mapping):
        return None
    if env in mapping:
        return env
    if ATARI.search(env):
        return "atari" if "atari" in mapping else None
    return "default" if "default" in mapping and not near_matches(env, mapping) else None


def shared(text: str, env: str | None) -> str | None:
    entry = _entry(text, env)
    return None if entry == env else entry


def edit(text: str, settings: Mapping[str, object], env: str | None) -> str:
    """The whole file, with the settings of one environment changed."""
    return edit_yaml(text, settings, *filter(None, [_entry(text, env)]))


def excerpt(text: str, env: str | None) -> str:
    entry = _entry(text, env)
    return entry_text(text, entry) if entry else text


def side_effects(before: str, after: str, env: str | None) -> list[str]:
    entry = _entry(before, env)
    return entries_changed(before, after, entry) if entry else []


def render(settings: Mapping[str, object], env: str | None) -> str:
    """An entry of the zoo names its policy, which has no default there; constructor arguments alone do not."""
    return render_flat({env: {"policy": MLP, **settings}} if env else settings, env)


LIBRARY = Library(
    name="zoo",
    title="Stable-Baselines3",
    batch_size="batch_size is the minibatch of a gradient step (optimization batch); n_envs x n_steps is the rollout",
    algorithms={"ppo": PPO, "a2c": A2C},
    fixed={
        "ppo": {**CLIPPED_PPO, "optimizer_eps": 1e-5},
        "a2c": dict(objective="policy-gradient", num_minibatches=1, update_epochs=1),
    },
    form=Form(parse, render, edit, excerpt, side_effects, entries, shared),
    control=control,
    only_there=other_networks,
    differences=differences,
    rounds_up=True,
)
