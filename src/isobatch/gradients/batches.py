"""Whole batches, collected as training collects them: to measure directly what the landscape predicts, and for time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from isobatch.algorithms.policy_phase import estimate_advantages
from isobatch.config import Config
from isobatch.envs.interface import Environment
from isobatch.gradients.chains import scaled, settled
from isobatch.gradients.landscape import weighted_losses
from isobatch.gradients.per_sample import mean_gradient
from isobatch.rollout import EnvCarry, Segment, collect, start_envs
from isobatch.state import TrainState

TIMED = 7  # repetitions, of which the median counts


def started(config: Config, env: Environment, state: TrainState, num_envs: int, key: Key[Array, ""]) -> EnvCarry:
    """Environments that were reset together, or staggered, one to two time limits ago."""
    time_key, key = jax.random.split(key)
    passed = jax.random.randint(time_key, (), env.max_steps, 2 * env.max_steps)
    return settled(env, state, config, jnp.broadcast_to(passed, (num_envs,)), key, config.staggered_resets)


def rollout(
    config: Config, env: Environment, state: TrainState, carry: EnvCarry, num_steps: int, key: Key[Array, ""]
) -> Segment:
    """One rollout, with rewards as the learner sees them."""
    networks, clip = state.learner.networks, config.hypers.obs_clip
    _, segment, _, _ = collect(env, networks, carry, state.obs_moments, clip, num_steps, key)
    return eqx.tree_at(lambda s: s.reward, segment, scaled(config, state, segment.reward))


def samples_of(config: Config, segment: Segment) -> tuple[Array, Array, Array]:
    """Observations, actions and advantages [B, ...]."""
    advantage = estimate_advantages(config, segment, segment.reward, config.hypers)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (segment.obs, segment.action, advantage))


def batch_gradients(
    config: Config, env: Environment, state: TrainState, num_envs: int, num_steps: int, batches: int, seed: int
) -> Float[np.ndarray, "K P"]:
    """Gradients of K independent batches."""

    def one(key: Key[Array, ""]) -> Float[Array, " P"]:
        start_key, key = jax.random.split(key)
        carry = started(config, env, state, num_envs, start_key)
        samples = samples_of(config, rollout(config, env, state, carry, num_steps, key))
        return mean_gradient(weighted_losses, state.learner.networks.policy, samples)

    keys = jax.random.split(jax.random.key(seed), batches)
    return np.asarray(jax.jit(lambda keys: jax.lax.map(one, keys))(keys))


def seconds_per_batch(config: Config, env: Environment, state: TrainState, num_envs: int, num_steps: int) -> float:
    """Wall-clock time of collecting one batch and computing its gradient, once it is compiled."""

    @jax.jit
    def batch(state: TrainState, carry: EnvCarry, key: Array) -> Any:
        samples = samples_of(config, rollout(config, env, state, carry, num_steps, key))
        return mean_gradient(weighted_losses, state.learner.networks.policy, samples)

    key = jax.random.key(0)
    carry = start_envs(env, num_envs, False, key)
    return median_seconds(lambda: batch(state, carry, key))


def median_seconds(call: Callable[[], Any]) -> float:
    jax.block_until_ready(call())
    taken = []
    for _ in range(TIMED):
        begin = time.perf_counter()
        jax.block_until_ready(call())
        taken.append(time.perf_counter() - begin)
    return float(np.median(taken))
