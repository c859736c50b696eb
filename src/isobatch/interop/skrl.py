"""skrl (2.1): the PPO agent's settings, alone or under `agent:` as in the runner's YAML files.

`mini_batches` is a count, as ours: the *optimization batch* is rollouts x environments / mini_batches and grows
silently with the environments. `rollouts` is the number of steps per environment, T. The number of environments
belongs to the environment, not to the agent, so it has to be given beside the file (`--num-envs`).

The value loss is the plain mean squared error, ours half of it: our vf_coef is twice theirs. Advantages are normalized
over the iteration batch. `timesteps` of the trainer counts steps per environment, so it changes with their number.
"""

from __future__ import annotations

import math
from typing import Any

from isobatch.interop.keys import OUTSIDE, Key, Known, number, whole
from isobatch.interop.library import Library
from isobatch.interop.yaml_text import edit_flat, parse_flat, render_flat
from isobatch.settings.config import Config
from isobatch.settings.fields import INF
from isobatch.settings.parsing import parse_value


def _names(*names: str) -> str:
    """In the runner's file first, then in the settings of the agent alone."""
    return " ".join([f"agent.{name}" for name in names] + list(names))


def _value_clip() -> Key:
    """Zero or less switches clipping off."""

    def read(value: Any, known: Known) -> dict[str, Any]:
        size = parse_value("value_clip", value, float)
        return {"clip_value_loss": True, "value_clip_eps": size} if size > 0 else {"clip_value_loss": False}

    def write(config: Config, old: Any, known: Known) -> Any:
        return config.hypers.value_clip_eps if config.clip_value_loss else 0.0

    return Key(tuple(_names("value_clip").split()), ("clip_value_loss", "value_clip_eps"), 0.2, read, write)


def _grad_norm() -> Key:
    """Zero or less switches clipping off."""

    def read(value: Any, known: Known) -> dict[str, Any]:
        size = parse_value("grad_norm_clip", value, float)
        return {"max_grad_norm": size if size > 0 else INF}

    def write(config: Config, old: Any, known: Known) -> Any:
        return 0.0 if config.hypers.max_grad_norm == INF else config.hypers.max_grad_norm

    return Key(tuple(_names("grad_norm_clip").split()), ("max_grad_norm",), 0.5, read, write)


def _timesteps() -> Key:
    def read(value: Any, known: Known) -> dict[str, Any]:
        return {"total_timesteps": parse_value("trainer.timesteps", value, int) * known.settings["num_envs"]}

    def write(config: Config, old: Any, known: Known) -> Any:
        return math.ceil(config.total_timesteps / config.num_envs)

    return Key(("trainer.timesteps",), ("total_timesteps",), 100_000, read, write)


PPO = (
    whole("num_envs", "num_envs", OUTSIDE),
    _timesteps(),
    whole(_names("rollouts"), "num_steps", 16),
    whole(_names("mini_batches"), "num_minibatches", 2),
    whole(_names("learning_epochs"), "update_epochs", 8),
    number(_names("learning_rate"), "learning_rate", 1e-3),
    number(_names("discount_factor"), "gamma", 0.99),
    number(_names("gae_lambda", "lambda"), "gae_lambda", 0.95),
    number(_names("ratio_clip"), "clip_eps", 0.2),
    number(_names("entropy_loss_scale"), "ent_coef", 0.0),
    number(_names("value_loss_scale"), "vf_coef", 2.5, times=2),
    _value_clip(),
    _grad_norm(),
)

LIBRARY = Library(
    name="skrl",
    title="skrl",
    batch_size="mini_batches is a count: the optimization batch is rollouts x environments / mini_batches",
    algorithms={"ppo": PPO},
    fixed={
        "ppo": dict(
            objective="clip",
            proximal_policy="behavior",
            advantage_norm="iteration",
            optimizer="adam",
            optimizer_eps=1e-8,
        )
    },
    parse=parse_flat,
    render=render_flat,
    edit=edit_flat,
)
