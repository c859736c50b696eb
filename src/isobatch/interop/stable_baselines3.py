"""Stable-Baselines3 (2.9) and the hyperparameter files of rl-zoo3: PPO and A2C.

`batch_size` is the minibatch, our *optimization batch*, in samples; `n_steps` x `n_envs` is the rollout, our *iteration
batch*. So adding environments adds minibatches of the same size: SB3 holds the size, we hold the count. A batch_size
above the rollout means one minibatch with the whole rollout.

The value loss is the plain mean squared error, ours half of it: our vf_coef is twice theirs. Advantages are normalized
per minibatch.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from isobatch.errors import UsageError, near_matches
from isobatch.interop.keys import Key, Known, choice, minibatch_count, number, whole
from isobatch.interop.library import Library
from isobatch.interop.yaml_text import edit as edit_yaml
from isobatch.interop.yaml_text import entries_changed, entry_text, render_flat
from isobatch.settings.config import Config
from isobatch.settings.files import parse_mapping
from isobatch.settings.parsing import parse_value

LINEAR = "lin_"
"""Prefix of a value that falls to zero over the run."""


def _scheduled(name: str, value: Any) -> tuple[float, bool]:
    linear = isinstance(value, str) and value.startswith(LINEAR)
    return parse_value(name, value.removeprefix(LINEAR) if linear else value, float), linear


def _learning_rate(default: float) -> Key:
    def read(value: Any, known: Known) -> dict[str, Any]:
        rate, linear = _scheduled("learning_rate", value)
        return {"learning_rate": rate, "lr_schedule": "linear" if linear else "constant"}

    def write(config: Config, old: Any, known: Known) -> Any:
        rate = config.hypers.learning_rate
        return f"{LINEAR}{rate!r}" if config.lr_schedule == "linear" else rate

    return Key(("learning_rate",), ("learning_rate", "lr_schedule"), default, read, write)


def _clip_range() -> Key:
    """Our clip range has no schedule; theirs is kept."""

    def write(config: Config, old: Any, known: Known) -> Any:
        linear = isinstance(old, str) and old.startswith(LINEAR)
        return f"{LINEAR}{config.hypers.clip_eps!r}" if linear else config.hypers.clip_eps

    return Key(
        ("clip_range",),
        ("clip_eps",),
        0.2,
        lambda value, known: {"clip_eps": _scheduled("clip_range", value)[0]},
        write,
        rest=lambda value: "its schedule" if _scheduled("clip_range", value)[1] else "",
    )


def _clip_range_vf() -> Key:
    """Value clipping: none, or a range; a negative one is none too."""

    def read(value: Any, known: Known) -> dict[str, Any]:
        size = None if value is None else _scheduled("clip_range_vf", value)[0]
        return {"clip_value_loss": True, "value_clip_eps": size} if size and size > 0 else {"clip_value_loss": False}

    return Key(
        ("clip_range_vf",),
        ("clip_value_loss", "value_clip_eps"),
        None,
        read,
        lambda config, old, known: config.hypers.value_clip_eps if config.clip_value_loss else None,
    )


def _batch_size() -> Key:
    def read(value: Any, known: Known) -> dict[str, Any]:
        rollout = known.settings["num_envs"] * known.settings["num_steps"]
        size = min(parse_value("batch_size", value, int), rollout)
        return {"num_minibatches": minibatch_count("batch_size", size, rollout, "n_envs x n_steps")}

    return Key(
        ("batch_size",),
        ("num_minibatches",),
        64,
        read,
        lambda config, old, known: config.geometry.optimization_batch,
    )


def _normalize() -> Key:
    """VecNormalize: true, or the text of a dict with norm_obs and norm_reward."""

    def read(value: Any, known: Known) -> dict[str, Any]:
        parts = _as_dict(value) if isinstance(value, str) else value
        on = bool(parts)
        parts = parts if isinstance(parts, dict) else {}
        return {
            "normalize_observations": on and bool(parts.get("norm_obs", True)),
            "normalize_rewards": on and bool(parts.get("norm_reward", True)),
        }

    def write(config: Config, old: Any, known: Known) -> Any:
        obs, reward = config.normalize_observations, config.normalize_rewards
        return obs if obs == reward else {"norm_obs": obs, "norm_reward": reward}

    return Key(("normalize",), ("normalize_observations", "normalize_rewards"), False, read, write)


def _as_dict(text: str) -> dict[str, Any]:
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
    )


PPO = (
    *_common(n_steps=2048, gae_lambda=0.95),
    _batch_size(),
    whole("n_epochs", "update_epochs", 10),
    _learning_rate(3e-4),
    _clip_range(),
    _clip_range_vf(),
    choice("normalize_advantage", "advantage_norm", True, on="minibatch", off="none"),
)
A2C = (
    *_common(n_steps=5, gae_lambda=1.0),
    _learning_rate(7e-4),
    choice("use_rms_prop", "optimizer", True, on="rmsprop", off="adam"),
    number("rms_prop_eps", "optimizer_eps", 1e-5),
    choice("normalize_advantage", "advantage_norm", False, on="minibatch", off="none"),
)


def parse(text: str, env: str | None) -> tuple[dict[str, Any], str | None]:
    """A zoo file (environment -> settings), or the settings of one environment alone."""
    mapping = parse_mapping(text, "the text")
    if _holds_settings(mapping):
        return mapping, env
    if env is None:
        raise UsageError(f"env is missing: the file has settings for {len(mapping)} environments; give --env NAME.")
    if env not in mapping:
        hint = near_matches(env, mapping) or "; use one of " + ", ".join(mapping) + "."
        raise UsageError(f"env={env!r} is not in the file{hint}")
    if not isinstance(mapping[env], dict):
        raise UsageError(f"env={env!r} does not hold a mapping in the file: use lines of `name: value` under it.")
    return mapping[env], env


def _holds_settings(mapping: Mapping[str, Any]) -> bool:
    """Whether these are the settings of one environment, and not environments with theirs."""
    return any(name in mapping for key in (*PPO, *A2C) for name in key.names)


def _entry(text: str, env: str | None) -> str | None:
    """The name under which the settings stand in the file, if they do not stand alone."""
    return None if _holds_settings(parse_mapping(text, "the text")) else env


def edit(text: str, settings: Mapping[str, Any], env: str | None) -> str:
    """The whole file, with the settings of one environment changed."""
    return edit_yaml(text, settings, _entry(text, env))


def excerpt(text: str, env: str | None) -> str:
    entry = _entry(text, env)
    return entry_text(text, entry) if entry else text


def side_effects(before: str, after: str, env: str | None) -> list[str]:
    entry = _entry(before, env)
    return entries_changed(before, after, entry) if entry else []


def render(settings: Mapping[str, Any], env: str | None) -> str:
    return render_flat({env: dict(settings)} if env else settings, env)


LIBRARY = Library(
    name="zoo",
    title="Stable-Baselines3",
    batch_size="batch_size is the minibatch of a gradient step (optimization batch); n_envs x n_steps is the rollout",
    algorithms={"ppo": PPO, "a2c": A2C},
    fixed={
        "ppo": dict(objective="clip", proximal_policy="behavior", optimizer="adam", optimizer_eps=1e-5),
        "a2c": dict(objective="policy-gradient", num_minibatches=1, update_epochs=1, beta2=0.99),
    },
    parse=parse,
    render=render,
    edit=edit,
    excerpt=excerpt,
    side_effects=side_effects,
)
