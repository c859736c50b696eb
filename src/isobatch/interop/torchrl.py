"""TorchRL: the YAML files of its PPO reference implementations (`sota-implementations/ppo/config_*.yaml`).

`collector.frames_per_batch` is our *iteration batch*, all environments together; `loss.mini_batch_size` is our
*optimization batch*. The Atari script divides both by its frame skip of 4, so there a step of ours is four frames. The
files of its configurable trainer call them `replay_buffer.batch_size`, `trainer.num_epochs` and `optimizer.lr`.

Since 0.14 it has PPO-EWMA: with `loss.delay_actor` the clipping holds on to a copy of the actor, and a soft update
after every optimizer step (`target_net_updater.eps`, or `tau` = 1 - eps) makes that copy an average. It starts as the
first actor and is not debiased, ours is; 1/(1 - eps) gradient steps later that is over.

The value loss is the squared error (`loss_critic_type: l2`), ours half of it: our vf_coef is twice theirs. Advantages
are normalized per minibatch. Without optim.max_grad_norm gradients are not clipped.
"""

from __future__ import annotations

from dataclasses import replace

from isobatch.interop.computed_otherwise import by_gradient_step, by_n_minus_1
from isobatch.interop.keys import (
    REQUIRED,
    UNNAMED,
    Key,
    Known,
    bound,
    choice,
    environment,
    key,
    minibatch_size,
    number,
    rollout,
    whole,
)
from isobatch.interop.library import Library
from isobatch.interop.networks import layers, of_value, other_value_network
from isobatch.settings.config import Config
from isobatch.settings.parsing import SettingsByName, parse_value
from isobatch.settings.schedules import LINEAR


def _delayed() -> Key:
    """Whether the clipping holds on to a delayed actor. Written only where it is asked for."""

    def read(value: object, known: Known) -> SettingsByName:
        if not parse_value("loss.delay_actor", value, bool):
            return {"proximal_policy": "behavior"}
        return {"algo": "ppo-ewma", "proximal_policy": "ewma"}

    return key(
        "loss.delay_actor",
        "proximal_policy",
        False,
        read,
        lambda config, old, known: config.proximal_policy == "ewma",
    )


def _soft_update() -> Key:
    """eps of the soft update is the decay of the average; `tau`, which is 1 - eps, where the file has that."""

    def read(value: object, known: Known) -> SettingsByName:
        if known.settings["proximal_policy"] != "ewma":
            return {}
        tau = known.raw("target_net_updater.tau")
        if value is None:  # 0.001 is the default of `tau`
            return {"beta_prox": 1 - (0.001 if tau is None else parse_value("target_net_updater.tau", tau, float))}
        return {"beta_prox": parse_value("target_net_updater.eps", value, float)}

    def write(config: Config, old: object, known: Known) -> object:
        by_tau = known.raw("target_net_updater.tau") is not None
        return None if by_tau or config.proximal_policy != "ewma" else config.hypers.beta_prox

    return key("target_net_updater.eps optim.target_update_polyak", "beta_prox", None, read, write)


def _tau() -> Key:
    def write(config: Config, old: object, known: Known) -> object:
        return 1 - config.hypers.beta_prox if config.proximal_policy == "ewma" and old is not None else old

    def read(value: object, known: Known) -> SettingsByName:
        if value is None or known.settings["proximal_policy"] != "ewma":
            return {}
        return {"beta_prox": 1 - parse_value("target_net_updater.tau", value, float)}

    return key("target_net_updater.tau", "beta_prox", None, read, write)


def _ratio_cap() -> Key:
    """Nothing is no cap. It hardly matters unless the clipping holds on to another policy than the data's."""
    cap = bound("loss.max_importance_ratio", "importance_cap", None)

    def read(value: object, known: Known) -> SettingsByName:
        return {} if value is None and known.settings["proximal_policy"] != "ewma" else cap.read(value, known)

    return replace(cap, read=read)


def _annealed_range() -> Key:
    """The clip range falls with the learning rate, and only where that falls."""
    name = "loss.anneal_clip_epsilon"

    def read(value: object, known: Known) -> SettingsByName:
        if parse_value(name, value, bool) and known.settings["lr_schedule"] == LINEAR:
            return {"clip_schedule": LINEAR, "clip_eps_end": 0.0}
        return {"clip_schedule": "constant"}

    def write(config: Config, old: object, known: Known) -> object:
        return config.clip_schedule == LINEAR and config.lr_schedule == LINEAR

    return key(name, "clip_schedule clip_eps_end", False, read, write)


LAYERS, VALUE_LAYERS = "networks.policy_network.num_cells", "networks.value_network.num_cells"
PPO = (
    environment("env.env_name training_env.create_env_fn.base_env.env_name", UNNAMED),
    whole("env.num_envs training_env.num_workers", "num_envs", 1),
    rollout("collector.frames_per_batch", REQUIRED),
    minibatch_size("loss.mini_batch_size replay_buffer.batch_size", REQUIRED, "collector.frames_per_batch"),
    whole("collector.total_frames trainer.total_frames", "total_timesteps", 1_000_000),
    whole("loss.ppo_epochs loss.epochs trainer.num_epochs", "update_epochs", REQUIRED),
    number("optim.lr optimizer.lr", "learning_rate", REQUIRED),
    choice("optim.anneal_lr", "lr_schedule", False, on="linear", off="constant"),
    number("optim.eps optimizer.eps", "optimizer_eps", 1e-5),
    bound("optim.max_grad_norm trainer.clip_norm", "max_grad_norm", None),
    number("loss.gamma", "gamma", 0.99),
    number("loss.gae_lambda", "gae_lambda", 0.95),
    number("loss.clip_epsilon", "clip_eps", 0.2),
    number("loss.critic_coeff loss.critic_coef", "vf_coef", 1.0, times=2),
    number("loss.entropy_coeff loss.entropy_coef", "ent_coef", 0.01),
    choice("env.normalize_observation", "normalize_observations", False, on=True, off=False),
    layers(LAYERS, None),
    of_value(VALUE_LAYERS, None),
    _annealed_range(),
    _delayed(),
    _soft_update(),
    _tau(),
    _ratio_cap(),
)


LIBRARY = Library(
    name="torchrl",
    title="TorchRL",
    batch_size="collector.frames_per_batch is the rollout; loss.mini_batch_size is the optimization batch",
    algorithms={"ppo": PPO},
    only_there=other_value_network(LAYERS, VALUE_LAYERS),
    differences=lambda config: [*by_gradient_step(config), *by_n_minus_1(config)],
    fixed={"ppo": dict(objective="clip", advantage_norm="minibatch", optimizer="adam")},
)
