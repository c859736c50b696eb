"""Rollouts of environments written in JAX: act, step, reset where an episode ended, as one scan."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from isobatch.envs.interface import Environment, State, Step
from isobatch.networks.actor_critic import Networks, PolicyFunction
from isobatch.networks.distributions import Distribution
from isobatch.networks.moments import Moments
from isobatch.rollouts.collected import CollectedRollout
from isobatch.rollouts.segment import (
    EndedEpisodes,
    EnvCarry,
    EpisodeSums,
    OpenEpisodes,
    Preprocess,
    Segment,
    clip_to_bounds,
    complete_episodes,
    preprocessor,
    to_segment,
)

Tree = TypeVar("Tree")


def start_envs(
    env: Environment, num_envs: int, staggered: bool, key: Key[Array, ""], first: Int[Array, ""] | None = None
) -> EnvCarry:
    """Reset all environments; staggered, environment i starts at i/N of the time limit. `first` as in `step_keys`."""
    keys = (
        jax.random.split(key, num_envs)
        if first is None
        else jax.vmap(partial(jax.random.fold_in, key))(first + jnp.arange(num_envs))
    )
    state, obs = jax.vmap(env.reset)(keys)
    if staggered:
        times = jnp.arange(num_envs) * env.max_steps // num_envs
        state = jax.vmap(env.at_time)(state, times)
    whole = jnp.arange(num_envs) == 0 if staggered else jnp.ones(num_envs, bool)
    return EnvCarry(state, obs, OpenEpisodes.start(whole))


def run_policy(
    env: Environment,
    policy: PolicyFunction,
    carry: EnvCarry,
    preprocess: Preprocess,
    num_steps: int,
    key: Key[Array, ""],
    first: Int[Array, ""] | None = None,
) -> tuple[EnvCarry, CollectedRollout, EndedEpisodes, State]:
    """T steps of the policy in all environments, reset where an episode ended; and the states before these resets.

    `first` as in `step_keys`.
    """
    num_envs = carry.episodes.total.shape[0]

    def step(
        carry: EnvCarry, keys: Key[Array, "K"]
    ) -> tuple[EnvCarry, tuple[Array, Array, Distribution, Step, EndedEpisodes]]:
        behavior = policy(preprocess(carry.obs))
        if first is None:
            action = behavior.sample(keys[0])
        else:
            action = jax.vmap(lambda one, key: one.sample(key))(behavior, keys[:num_envs])
        after = jax.vmap(env.step)(keys[-2 * num_envs : -num_envs], carry.state, clip_to_bounds(action, env))
        fresh_state, fresh_obs = jax.vmap(env.reset)(keys[-num_envs:])
        done = after.terminated | after.truncated
        episodes, ended = carry.episodes.step(after.reward, done)
        new_carry = EnvCarry(
            state=where_envs(done, fresh_state, after.state),
            obs=where_envs(done, fresh_obs, after.obs),
            episodes=episodes,
        )
        return new_carry, (carry.obs, action, behavior, after, ended)

    keys = step_keys(key, num_steps, num_envs, first)
    last, (obs, action, behavior, after, ended) = jax.lax.scan(step, carry, keys)
    rollout = CollectedRollout(
        obs=obs,
        last_obs=last.obs,
        action=action,
        behavior=behavior,
        reward=after.reward,
        terminated=after.terminated,
        truncated=after.truncated,
        next_obs=after.obs,
    )
    return last, rollout, ended, after.state


def step_keys(key: Key[Array, ""], num_steps: int, num_envs: int, first: Int[Array, ""] | None) -> Key[Array, "T K"]:
    """For each step what actions are sampled with, then a key for each environment's step and for its reset.

    Environments that are all of the run's share one key for their actions. Those of a shard, of which the first one has
    the number `first` in the run, have keys of their own, which depend on that number and on nothing else: what an
    environment meets does not depend on where the others are.
    """
    if first is None:
        return jax.random.split(key, (num_steps, 2 * num_envs + 1))
    keys = jax.vmap(lambda i: jax.random.split(jax.random.fold_in(key, i), (num_steps, 3)))(
        first + jnp.arange(num_envs)
    )
    return jnp.moveaxis(keys, 0, 2).reshape(num_steps, 3 * num_envs)


def collect(
    env: Environment,
    networks: Networks,
    carry: EnvCarry,
    obs_moments: Moments | None,
    obs_clip: Float[Array, ""] | float,
    num_steps: int,
    key: Key[Array, ""],
    whole_episodes: bool = False,
    first: Int[Array, ""] | None = None,
) -> tuple[EnvCarry, Segment, EpisodeSums, Array]:
    """Run the policy for T steps. Also returns the raw observations, for the normalizer to learn from.

    With `whole_episodes` only those episodes count that `complete_episodes` uses. `first` as in `step_keys`.
    """
    preprocess = preprocessor(obs_moments, obs_clip)
    last, rollout, ended, _ = run_policy(env, networks.policy, carry, preprocess, num_steps, key, first)
    among = complete_episodes(rollout.done, env.max_steps)[1] if whole_episodes else None
    return last, to_segment(rollout, networks, preprocess, env.max_steps), ended.sums(among), rollout.obs


def where_envs(condition: Bool[Array, "N"], yes: Tree, no: Tree) -> Tree:
    """Leaf by leaf, environment by environment."""

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(condition.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, yes, no)
