"""Whole batches, collected as training collects them: to measure directly what the landscape predicts, and for time."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from isobatch.algorithms.policy_phase import estimate_advantages
from isobatch.config import Config
from isobatch.envs.interface import Environment
from isobatch.gradients.chains import run, settled
from isobatch.gradients.objectives import vanilla
from isobatch.gradients.per_sample import mean_gradient
from isobatch.rollout import EnvCarry, Segment, start_envs
from isobatch.state import TrainState

TIMED = 7  # repetitions, of which the median counts


class Draw(NamedTuple):
    """What makes a batch: its randomness, and how long its environments have been running, in time limits."""

    key: Key[Array, "*K"]
    age: Float[Array, "*K"]


def draws(count: int, seed: int) -> Draw:
    """Independent batches. Their ages are spread evenly over one to two time limits, with a random beginning.

    Where the gradient depends much on the time since a reset, ages drawn at random would miss what is rare.
    """
    key, age_key = jax.random.split(jax.random.key(seed))
    age = 1 + (jnp.arange(count) + jax.random.uniform(age_key)) / count
    return Draw(jax.random.split(key, count), age)


def samples_of(config: Config, segment: Segment) -> tuple[Array, Array, Array]:
    """Observations, actions and advantages [B, ...]."""
    advantage = estimate_advantages(config, segment, segment.reward, config.hypers)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (segment.obs, segment.action, advantage))


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def batch_of(config: Config, env: Environment, num_envs: int, num_steps: int, state: TrainState, draw: Draw) -> Segment:
    """One rollout of environments that were reset together, or staggered, some time ago."""
    start_key, key = jax.random.split(draw.key)
    passed = jnp.broadcast_to((draw.age * env.max_steps).astype(int), (num_envs,))
    carry = settled(config, env, state, passed, start_key, config.staggered_resets)
    return run(config, env, num_steps, state, carry, key)[0]


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def batch_gradients(
    config: Config, env: Environment, num_envs: int, num_steps: int, state: TrainState, draws: Draw
) -> Float[Array, "K P"]:
    """Gradients of independent batches."""

    def one(draw: Draw) -> Float[Array, " P"]:
        samples = samples_of(config, batch_of(config, env, num_envs, num_steps, state, draw))
        return mean_gradient(vanilla, state.learner.networks.policy, samples)

    return jax.lax.map(one, draws)


def batch_products(
    config: Config, env: Environment, state: TrainState, num_envs: int, num_steps: int, batches: int, seed: int
) -> Float[np.ndarray, "K K"]:
    """Inner products of the gradients of K independent batches."""
    found = batch_gradients(config, env, num_envs, num_steps, state, draws(batches, seed))
    vectors = np.asarray(found, float)
    return vectors @ vectors.T


def seconds_per_batch(config: Config, env: Environment, state: TrainState, num_envs: int, num_steps: int) -> float:
    """Wall-clock time of collecting one batch and computing its gradient, once it is compiled."""
    key = jax.random.key(0)
    carry = jax.jit(start_envs, static_argnums=(0, 1, 2))(env, num_envs, False, key)
    return median_seconds(lambda: _collected_gradient(config, env, num_steps, state, carry, key))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _collected_gradient(
    config: Config, env: Environment, num_steps: int, state: TrainState, carry: EnvCarry, key: Key[Array, ""]
) -> Float[Array, " P"]:
    samples = samples_of(config, run(config, env, num_steps, state, carry, key)[0])
    return mean_gradient(vanilla, state.learner.networks.policy, samples)


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def first_episodes(
    config: Config, env: Environment, count: int, horizon: int, state: TrainState, keys: Key[Array, " 2"]
) -> tuple[Float[Array, "E P"], Int[Array, " E"], Bool[Array, " E"]]:
    """Of the first episode of each environment: the sum of its gradients, its length, and whether it has ended."""
    segment, _ = run(config, env, horizon, state, start_envs(env, count, False, keys[0]), keys[1])
    done = segment.terminated | segment.truncated
    mine = jnp.cumsum(done, axis=0) - done == 0
    advantage = mine * estimate_advantages(config, segment, segment.reward, config.hypers)

    def one(samples: tuple[Array, Array, Array]) -> Float[Array, " P"]:
        return horizon * mean_gradient(vanilla, state.learner.networks.policy, samples)

    columns = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), (segment.obs, segment.action, advantage))
    return jax.lax.map(one, columns), jnp.sum(mine, axis=0), jnp.any(done, axis=0)


def median_seconds(call: Callable[[], Any]) -> float:
    jax.block_until_ready(call())
    taken = []
    for _ in range(TIMED):
        begin = time.perf_counter()
        jax.block_until_ready(call())
        taken.append(time.perf_counter() - begin)
    return float(np.median(taken))
