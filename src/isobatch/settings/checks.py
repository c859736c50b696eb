"""Combinations of settings that have no meaning, each refused with what to use instead."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from isobatch.errors import UsageError
from isobatch.settings.geometry import cuts_evenly, divisors, nearest_counts
from isobatch.settings.schedules import check_schedule

if TYPE_CHECKING:
    from isobatch.settings.config import Config


def check_combinations(config: Config) -> None:
    """Raise a UsageError unless the settings, each in its range, go together."""
    check_schedule(config.lr_schedule)
    _check_sizes(config)
    _check_objective(config)
    _check_baseline(config)
    _check_aggregation(config)
    if config.optimizer == "adam-micro":
        _check_micro_batches(config)
    if config.noise_scale and config.num_envs < 2:
        raise UsageError("noise_scale=True compares environments with each other: use num_envs of at least 2.")
    if config.policy_iterations_per_phase:
        _check_phases(config)
    if config.actors or config.max_lag:
        _check_actors(config)


def _check_sizes(config: Config) -> None:
    if config.encoder == "nature" and len(config.channels) != 3:
        raise UsageError(f"channels={list(config.channels)} must be three sizes for encoder='nature': use 32,64,64.")
    _check_shards(config)
    config.geometry.check_minibatches(config.minibatch_scheme)
    if config.total_timesteps < config.geometry.iteration_batch:
        raise UsageError(
            f"total_timesteps={config.total_timesteps} is below one iteration of {config.geometry.iteration_batch} "
            f"steps (num_envs {config.num_envs} x num_steps {config.num_steps}); raise it or lower the others."
        )
    if config.staleness >= config.num_iterations:
        raise UsageError(
            f"staleness={config.staleness} leaves none of the {config.num_iterations} iterations to learn from: "
            "lower it or raise total_timesteps."
        )


def _check_shards(config: Config) -> None:
    if config.num_envs % config.num_shards:
        raise UsageError(
            f"num_shards={config.num_shards} does not divide num_envs={config.num_envs} into equal groups: "
            f"use num_envs={-(-config.num_envs // config.num_shards) * config.num_shards}, or other num_shards."
        )
    if config.num_shards > 1 and config.minibatch_scheme == "shuffle":
        raise UsageError(
            f"minibatch_scheme='shuffle' permutes samples across the shards of num_shards={config.num_shards}: "
            "use minibatch_scheme=stratified, or envs."
        )


def _check_actors(config: Config) -> None:
    batch = config.geometry.iteration_batch
    if not config.actors:
        raise UsageError(f"max_lag={config.max_lag} is about data of actors, and there are none: use actors=2.")
    if config.num_envs % config.actors:
        fit = -(-config.num_envs // config.actors) * config.actors
        fewer = next(n for n in range(min(config.actors, config.num_envs, 1000), 0, -1) if config.num_envs % n == 0)
        raise UsageError(
            f"actors={config.actors} does not divide num_envs={config.num_envs} into equal groups: use "
            f"actors={fewer}, or num_envs={fit}."
        )
    if 0 < config.max_lag < batch:
        raise UsageError(
            f"max_lag={config.max_lag} is less than one iteration of {batch:,} environment steps, and what is "
            f"collected while the learner learns is that old: use at least {batch}, or 0 to collect and learn by turns."
        )
    if config.staleness and config.max_lag:
        raise UsageError(
            f"staleness={config.staleness} holds back rollouts to imitate what actors={config.actors} really do: use "
            "one of the two."
        )
    if config.num_shards > 1:
        raise UsageError(
            f"actors={config.actors} and num_shards={config.num_shards} both cut the environments of a run: use one of "
            "the two."
        )


def _check_micro_batches(config: Config) -> None:
    size, shards = config.micro_batch_size, config.num_shards
    samples = config.geometry.samples_of_a_shard
    cuts = {"a minibatch": samples}
    if config.policy_iterations_per_phase:
        cuts["an auxiliary minibatch"] = config.geometry.iteration_batch // config.aux_minibatches // shards
    for kind, count in cuts.items():
        if count % size:
            near = sorted(sorted(divisors(gcd(*cuts.values())), key=lambda n: abs(n - size))[:2])
            of = f" of each of {shards} shards" if shards > 1 else ""
            raise UsageError(
                f"micro_batch_size={size} does not divide the {count} samples{of} of {kind} into equal parts: use "
                f"{' or '.join(map(str, near))}, or another number of minibatches."
            )


def _check_objective(config: Config) -> None:
    if config.proximal_policy.startswith("loglinear") and config.objective == "kl" and config.kl_form == "analytic":
        raise UsageError(
            f"proximal_policy={config.proximal_policy!r} has no analytic KL, it is known only at the sampled actions: "
            "use kl_form=squared or the objective clip."
        )
    if config.objective != "policy-gradient":
        return
    if config.geometry.gradient_steps > 1:
        raise UsageError(
            f"objective='policy-gradient' has no ratio to correct for the {config.geometry.gradient_steps} gradient "
            "steps it would take on each rollout: use num_minibatches=1 and update_epochs=1, or the objective clip."
        )
    if config.is_stale:
        name = "staleness" if config.staleness else "max_lag"
        raise UsageError(
            f"{name}={getattr(config, name)} needs an objective with an importance ratio, "
            f"and {config.objective!r} ({config.algo}) has none: use clip or kl, or {name} 0."
        )


def _check_baseline(config: Config) -> None:
    if config.baseline:
        return
    if config.bootstrap or config.hypers.gae_lambda != 1:
        raise UsageError("baseline=False needs returns without a value function: use bootstrap=False and gae_lambda=1.")
    if config.value_epochs:
        raise UsageError(
            f"baseline=False leaves value_epochs={config.value_epochs} nothing to train: use value_epochs=0."
        )
    if config.policy_iterations_per_phase:
        raise UsageError(
            "baseline=False leaves an auxiliary phase nothing to learn: use policy_iterations_per_phase=0."
        )


def _check_aggregation(config: Config) -> None:
    if config.aggregation != "timestep" and config.num_steps == 1:
        raise UsageError(
            f"aggregation={config.aggregation!r} weighs samples by the length of their trajectory, and with "
            "num_steps=1 each is one step: use aggregation=timestep, or more steps."
        )
    horizon, unset = config.hypers.aggregation_horizon, type(config.hypers).aggregation_horizon
    if config.aggregation != "constant" and horizon != unset:
        raise UsageError(
            f"aggregation_horizon={horizon:g} has no effect with aggregation={config.aggregation!r}, which divides by "
            "no horizon: use aggregation=constant, or leave the horizon out."
        )


def _check_phases(config: Config) -> None:
    if config.complete_episodes:
        raise UsageError(
            "complete_episodes=True does not go with an auxiliary phase, which uses every step: "
            "use policy_iterations_per_phase=0."
        )
    phase, updates = config.policy_iterations_per_phase, config.num_iterations - config.staleness
    if updates < 1 or updates % phase:
        steps = (max(1, round(updates / phase)) * phase + config.staleness) * config.geometry.iteration_batch
        raise UsageError(
            f"policy_iterations_per_phase={phase} does not divide the {updates} updates of this run into whole "
            f"phases of {config.geometry.phase_batch} steps: use total_timesteps={steps}."
        )
    sizes = config.num_envs // config.num_shards, config.num_steps, config.minibatch_scheme
    if not cuts_evenly(config.aux_minibatches, *sizes):
        raise UsageError(
            f"aux_minibatches={config.aux_minibatches} does not evenly divide an iteration of num_envs "
            f"{config.num_envs} x num_steps {config.num_steps}"
            f"{f' in {config.num_shards} shards' if config.num_shards > 1 else ''} under "
            f"minibatch_scheme={config.minibatch_scheme!r}: use {nearest_counts(config.aux_minibatches, *sizes)}."
        )
