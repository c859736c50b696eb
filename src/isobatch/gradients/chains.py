"""Data to measure gradients on: many independent chains of one policy, started where training would find them.

Training does not begin its rollouts at resets: environments go on where they stood. A chain therefore first runs for a
time limit after its reset. All chains of a group were reset at the same time, as all environments of a training run
are: they may reach the time limit together, again and again. Where a chain is shorter than the time limit there are
several groups, reset at different times, so that every time since the reset occurs. All chains are independent.
"""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from isobatch.advantages import gae
from isobatch.algorithms.policy_phase import estimate_advantages
from isobatch.config import Config
from isobatch.envs.interface import Environment, Step
from isobatch.networks import Policy
from isobatch.rollout import EnvCarry, Segment, act, clip_to_bounds, judge, normalizer, start_envs, where_envs
from isobatch.state import TrainState

NEGLIGIBLE = 0.01  # weight gamma^H of what lies beyond the horizon H of a Monte-Carlo return
TAILS = 4  # continuations of each cut-off return


class Chains(eqx.Module):
    """L steps of C independent chains; the first C / groups of them are a group, and so on."""

    segment: Segment  # [L, C], with rewards as the learner sees them
    true_next_value: Float[Array, "L C"]  # like next_value, but measured by playing on, where a return is cut off
    groups: int = eqx.field(static=True)

    @property
    def length(self) -> int:
        return int(self.segment.reward.shape[0])

    @property
    def count(self) -> int:
        return int(self.segment.reward.shape[1])


def num_groups(time_limit: int, length: int) -> int:
    """Groups that together see every time since a reset."""
    return max(1, -(-time_limit // length))


def chain_bytes(env: Environment, policy: Policy, count: int, length: int) -> int:
    """Memory at its highest: observations as they are kept and as the network sees them, gradients of a window."""
    parameters = sum(leaf.size for leaf in jax.tree.leaves(policy))
    per_step = (np.dtype(env.obs_dtype).itemsize + 2 * 4) * math.prod(env.obs_shape) + 4 * 12
    return count * length * per_step + 4 * 4 * count * parameters


def collect_chains(config: Config, env: Environment, state: TrainState, count: int, length: int, seed: int) -> Chains:
    """Start, run and value the chains of one policy; then play on where returns are cut off."""
    start_key, act_key, tail_key = jax.random.split(jax.random.key(seed), 3)
    groups = num_groups(env.max_steps, length)
    passed = env.max_steps + jnp.repeat(jnp.arange(groups) * env.max_steps // groups, count // groups)
    carry = settled(config, env, state, passed, start_key)
    segment, after = run(config, env, length, state, carry, act_key)
    where = np.flatnonzero(cut_off(config, segment))
    true_next = jnp.where(segment.truncated, 0.0, _next_in_row(segment.value) if config.baseline else 0.0)
    if len(where):
        # As many as a power of two: one compilation serves neighbouring numbers of cuts.
        padded = np.resize(where, 2 ** math.ceil(math.log2(len(where))))
        states, obs = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[padded], (after.state, after.obs))
        tail = tails(config, env, state, states, obs, tail_key)[: len(where)]
        true_next = true_next.reshape(-1).at[where].set(tail).reshape(true_next.shape)
    return Chains(segment, true_next, groups)


@partial(jax.jit, static_argnums=(0, 1, 2))
def run(
    config: Config, env: Environment, length: int, state: TrainState, carry: EnvCarry, key: Key[Array, ""]
) -> tuple[Segment, Step]:
    """A rollout, with rewards as the learner sees them, and where its steps led."""
    see = normalizer(state.obs_moments, config.hypers.obs_clip)
    last, steps = act(env, state.learner.networks.policy, carry, see, length, key)
    segment = judge(env, state.learner.networks, last, steps, see)
    return eqx.tree_at(lambda s: s.reward, segment, scaled(config, state, segment.reward)), steps.after


@partial(jax.jit, static_argnums=(0, 1, 5))
def settled(
    config: Config,
    env: Environment,
    state: TrainState,
    passed: Int[Array, " C"],
    key: Key[Array, ""],
    staggered: bool = False,
) -> EnvCarry:
    """Environments `passed` steps after their reset, each its own number of them."""
    see = normalizer(state.obs_moments, config.hypers.obs_clip)
    reset_key, key = jax.random.split(key)

    def step(time: Array, carry: EnvCarry) -> EnvCarry:
        moved, _ = act(env, state.learner.networks.policy, carry, see, 1, jax.random.fold_in(key, time))
        return where_envs(time < passed, moved, carry)

    return jax.lax.fori_loop(0, jnp.max(passed), step, start_envs(env, passed.size, staggered, reset_key))


def scaled(config: Config, state: TrainState, reward: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """Rewards as the learner sees them."""
    return reward if state.reward_scale is None else state.reward_scale.apply(reward, config.hypers.reward_clip)


def cut_off(config: Config, segment: Segment) -> Bool[np.ndarray, "L C"]:
    """Where a return goes on after what was observed: at the end of a chain, and at time limits.

    Without bootstrapping the time limit belongs to the task, and nothing follows it.
    """
    terminated, truncated = np.asarray(segment.terminated), np.asarray(segment.truncated)
    cut = truncated & ~terminated if config.bootstrap else np.zeros_like(truncated)
    cut[-1] |= ~(terminated | truncated)[-1]
    return cut


@partial(jax.jit, static_argnums=(0, 1))
def tails(
    config: Config, env: Environment, state: TrainState, env_state: Any, obs: Array, key: Key[Array, ""]
) -> Float[Array, " C"]:
    """The discounted return from these states, by playing on without a time limit; mean of TAILS continuations.

    After H steps, with gamma^H = NEGLIGIBLE, the value function stands for the rest.
    """
    gamma = config.hypers.gamma
    horizon = env.max_steps if gamma == 1 else math.ceil(math.log(NEGLIGIBLE) / math.log(gamma)) if gamma else 1
    see = normalizer(state.obs_moments, config.hypers.obs_clip)
    env_state, obs = jax.tree.map(lambda leaf: jnp.repeat(leaf, TAILS, axis=0), (env_state, obs))
    count = obs.shape[0]

    def step(time: Array, carry: Any) -> Any:
        env_state, obs, total, weight = carry
        keys = jax.random.split(jax.random.fold_in(key, time), count + 1)
        action = state.learner.networks.policy(see(obs)).sample(keys[0])
        after = jax.vmap(env.step)(keys[1:], env_state, clip_to_bounds(action, env))
        total += weight * scaled(config, state, after.reward)
        over = after.terminated if config.bootstrap else after.terminated | after.truncated
        return after.state, after.obs, total, jnp.where(over, 0.0, gamma * weight)

    carry = (env_state, obs, jnp.zeros(count), jnp.ones(count))
    _, obs, total, weight = jax.lax.fori_loop(0, horizon, step, carry)
    rest = state.learner.networks.value(see(obs)) if config.baseline else jnp.zeros(count)
    return jnp.mean((total + weight * rest).reshape(-1, TAILS), axis=1)


@partial(jax.jit, static_argnums=(0, 2))
def window_advantages(config: Config, chains: Chains, steps: int, lam: Float[Array, ""] | float) -> Float[Array, "L C"]:
    """Advantages as rollouts of `steps` steps would have estimated them on the same data, one after another."""
    hypers = dataclasses.replace(config.hypers, gae_lambda=lam)  # type: ignore[arg-type]  # traced
    windows = chains.length // steps

    def cut(leaf: Array) -> Array:
        cut = leaf.reshape(windows, steps, *leaf.shape[1:])
        return jnp.moveaxis(cut, 0, 1).reshape(steps, -1, *leaf.shape[2:])

    segment = jax.tree.map(cut, chains.segment)
    advantage = estimate_advantages(config, segment, segment.reward, hypers)
    return jnp.moveaxis(advantage.reshape(steps, windows, -1), 1, 0).reshape(chains.length, -1)


@partial(jax.jit, static_argnums=0)
def true_advantages(config: Config, chains: Chains) -> Float[Array, "L C"]:
    """Monte-Carlo return minus baseline: an unbiased estimate, whatever the value function."""
    segment = chains.segment
    value = segment.value if config.baseline else jnp.zeros_like(segment.value)
    # At lambda 1 the values between cuts cancel.
    return gae(
        segment.reward,
        value,
        chains.true_next_value,
        segment.terminated,
        segment.truncated,
        config.hypers.gamma,
        1.0,
    )


def _next_in_row(value: Float[Array, "L C"]) -> Float[Array, "L C"]:
    return jnp.concatenate([value[1:], jnp.zeros_like(value[:1])])
