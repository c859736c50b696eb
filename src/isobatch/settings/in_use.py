"""Which settings matter only beside others."""

from __future__ import annotations

from collections.abc import Callable

from isobatch.settings.config import Config
from isobatch.settings.schedules import ADAPTIVE, falling_ranges

IN_USE: dict[str, Callable[[Config], object]] = {
    "desired_kl": lambda c: c.lr_schedule == ADAPTIVE,
    "target_kl": lambda c: c.stop_at_target_kl,
    "clip_eps": lambda c: c.objective == "clip",
    "clip_schedule": lambda c: c.objective == "clip",
    "value_clip_schedule": lambda c: c.clip_value_loss,
    "clip_eps_end": falling_ranges,
    "kl_coef": lambda c: c.objective == "kl",
    "kl_form": lambda c: c.objective == "kl",
    "importance_policy": lambda c: c.objective != "policy-gradient",
    "importance_cap": lambda c: c.objective != "policy-gradient",
    "proximal_policy": lambda c: c.objective != "policy-gradient",
    "beta_prox": lambda c: c.proximal_policy == "ewma",
    "max_lag": lambda c: c.actors > 0,
    "schedule": lambda c: c.lag_iterations > 0,
    "loglinear_alpha": lambda c: c.proximal_policy == "loglinear",
    "adv_norm_decay": lambda c: c.advantage_norm == "ewma",
    "adv_norm_eps": lambda c: c.advantage_norm != "none",
    "aggregation_horizon": lambda c: c.aggregation == "constant",
    "value_clip_eps": lambda c: c.clip_value_loss,
    "aux_epochs": lambda c: c.policy_iterations_per_phase,
    "aux_minibatches": lambda c: c.policy_iterations_per_phase,
    "aux_learning_rate": lambda c: c.policy_iterations_per_phase,
    "beta_clone": lambda c: c.policy_iterations_per_phase,
    "micro_batch_size": lambda c: c.optimizer == "adam-micro",
    "beta1": lambda c: c.optimizer.startswith("adam"),
    "beta2": lambda c: c.optimizer != "sgd",
    "optimizer_eps": lambda c: c.optimizer != "sgd",
    "obs_clip": lambda c: c.normalize_observations,
    "reward_norm_gamma": lambda c: c.normalize_rewards,
    "reward_clip": lambda c: c.normalize_rewards,
}
"""Setting -> whether a config makes use of it; those that are not here always are."""


def idle_settings(config: Config) -> set[str]:
    """The settings of a config that change nothing, whatever they are."""
    return {name for name, used in IN_USE.items() if not used(config)}
