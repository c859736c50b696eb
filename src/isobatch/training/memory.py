"""How much memory stored rollouts take, and whether the machine has it."""

from __future__ import annotations

import itertools

import jax
import numpy as np

from isobatch.envs.spaces import distribution_size
from isobatch.errors import UsageError, brief
from isobatch.executors.process_count import free_memory
from isobatch.formatting import byte_text, counted
from isobatch.rollouts.staleness import AnyEnvironment
from isobatch.settings.config import Config

SHARE = 0.9  # of the available memory that may be used


def phase_bytes(config: Config, env: AnyEnvironment, num_seeds: int) -> int:
    """Bytes of the iterations that an auxiliary phase needs: observations twice, value targets, old distributions.

    Twice, because the phase is rearranged into rows of all its environments while it is used.
    """
    size = 4 if config.normalize_observations else np.dtype(env.obs_dtype).itemsize
    per_step = 2 * size * int(np.prod(env.obs_shape)) + 4 + 4 * distribution_size(env.action_space)
    return num_seeds * config.geometry.phase_batch * per_step


def check_phase_memory(config: Config, env: AnyEnvironment, num_seeds: int) -> None:
    """Raise if the phase does not fit into what is available now."""
    need, there = phase_bytes(config, env, num_seeds), available_bytes()
    if there is not None and need > SHARE * there:
        raise UsageError(
            f"policy_iterations_per_phase={config.policy_iterations_per_phase} needs {byte_text(need)} for the phases "
            f"of {counted(num_seeds, 'seed')}, and {byte_text(int(SHARE * there))} are available: lower it, num_envs, "
            "num_steps or num_seeds."
        )


def state_bytes(config: Config, env: AnyEnvironment) -> int:
    """Bytes that the state of a seed has at least: observations of its environments, and weights with two moments."""
    widths = config.hidden_sizes
    weights = sum(before * after for before, after in itertools.pairwise((1, *widths)))
    seen = config.num_envs * int(np.prod(env.obs_shape)) * np.dtype(env.obs_dtype).itemsize
    return seen + (3 + config.lag_iterations) * 4 * weights


def waiting_bytes(config: Config, env: AnyEnvironment) -> int:
    """Bytes of the rollouts that wait to be used: the queue of stale data, or what actors collect ahead."""
    waiting = config.lag_iterations + 1 if config.lag_iterations else config.staleness
    return waiting * rollout_bytes(config, env)


def rollout_bytes(config: Config, env: AnyEnvironment) -> int:
    """Bytes of a rollout: observations, distributions, and five numbers a step."""
    per_step = int(np.prod(env.obs_shape)) * np.dtype(env.obs_dtype).itemsize
    return config.geometry.iteration_batch * (per_step + 4 * distribution_size(env.action_space) + 5 * 4)


def check_run_memory(config: Config, env: AnyEnvironment, num_seeds: int) -> None:
    """Raise if phases, or states and one rollout, do not fit, even without what computing with them takes."""
    if config.policy_iterations_per_phase:
        check_phase_memory(config, env, num_seeds)
    need = num_seeds * (state_bytes(config, env) + waiting_bytes(config, env) + rollout_bytes(config, env))
    there = available_bytes()
    if there is not None and need > SHARE * there:
        lag = f", max_lag={config.max_lag}" if config.lag_iterations else ""
        stale = f", staleness={config.staleness}" if config.staleness else lag
        raise UsageError(
            f"num_envs={config.num_envs}, num_steps={config.num_steps}, hidden_sizes={brief(list(config.hidden_sizes))}"
            f"{stale} need at least {byte_text(need)} for {counted(num_seeds, 'seed')}, and "
            f"{byte_text(int(SHARE * there))} are available: lower one of them, or num_seeds."
        )


def available_bytes() -> int | None:
    """Memory that new arrays can take on the default device, or None if that is not known."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    return free_memory()
