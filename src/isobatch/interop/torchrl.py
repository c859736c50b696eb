"""TorchRL: the YAML files of its PPO reference implementations (`sota-implementations/ppo/config_*.yaml`).

`collector.frames_per_batch` is our *iteration batch*, all environments together; `loss.mini_batch_size` is our
*optimization batch*. The Atari script divides both by its frame skip of 4, so there a step of ours is four frames.

The value loss is the squared error (`loss_critic_type: l2`), ours half of it: our vf_coef is twice theirs. Advantages
are normalized per minibatch. Without optim.max_grad_norm gradients are not clipped.
"""

from __future__ import annotations

from typing import Any

from isobatch.errors import UsageError
from isobatch.interop.keys import REQUIRED, UNNAMED, Key, Known, choice, environment, minibatch_count, number, whole
from isobatch.interop.library import Library
from isobatch.interop.yaml_text import edit_flat, parse_flat, render_flat
from isobatch.settings.config import Config
from isobatch.settings.fields import INF
from isobatch.settings.parsing import parse_value


def _frames() -> Key:
    name = "collector.frames_per_batch"

    def read(value: Any, known: Known) -> dict[str, Any]:
        total, envs = parse_value(name, value, int), known.settings["num_envs"]
        if total % envs:
            low = total // envs * envs
            raise UsageError(
                f"{name}={value} is not a whole number of steps for {envs} environments: use {low} or {low + envs}."
            )
        return {"num_steps": total // envs}

    def write(config: Config, old: Any, known: Known) -> Any:
        return config.geometry.iteration_batch

    return Key((name,), ("num_steps",), REQUIRED, read, write)


def _minibatch() -> Key:
    def read(value: Any, known: Known) -> dict[str, Any]:
        rollout = known.settings["num_envs"] * known.settings["num_steps"]
        size = parse_value("loss.mini_batch_size", value, int)
        return {"num_minibatches": minibatch_count("loss.mini_batch_size", size, rollout, "collector.frames_per_batch")}

    return Key(
        ("loss.mini_batch_size",),
        ("num_minibatches",),
        REQUIRED,
        read,
        lambda config, old, known: config.geometry.optimization_batch,
    )


PPO = (
    environment("env.env_name", UNNAMED),
    whole("env.num_envs", "num_envs", 1),
    _frames(),
    _minibatch(),
    whole("collector.total_frames", "total_timesteps", 1_000_000),
    whole("loss.ppo_epochs loss.epochs", "update_epochs", REQUIRED),
    number("optim.lr", "learning_rate", REQUIRED),
    choice("optim.anneal_lr", "lr_schedule", False, on="linear", off="constant"),
    number("optim.eps", "optimizer_eps", 1e-5),
    number("optim.max_grad_norm", "max_grad_norm", INF),
    number("loss.gamma", "gamma", 0.99),
    number("loss.gae_lambda", "gae_lambda", 0.95),
    number("loss.clip_epsilon", "clip_eps", 0.2),
    number("loss.critic_coeff loss.critic_coef", "vf_coef", 1.0, times=2),
    number("loss.entropy_coeff loss.entropy_coef", "ent_coef", 0.01),
)

LIBRARY = Library(
    name="torchrl",
    title="TorchRL",
    batch_size="collector.frames_per_batch is the rollout; loss.mini_batch_size is the optimization batch",
    algorithms={"ppo": PPO},
    fixed={
        "ppo": dict(objective="clip", proximal_policy="behavior", advantage_norm="minibatch", optimizer="adam"),
    },
    parse=parse_flat,
    render=render_flat,
    edit=edit_flat,
)
