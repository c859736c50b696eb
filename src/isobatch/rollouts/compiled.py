"""Collect N x T steps: act, step, reset where an episode ended, value every state.

Terminated is not truncated: where a time limit cut an episode off, `next_value` is the value of the
true final observation, also in the middle of a rollout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from isobatch.envs.host_interface import HostEnvironment
from isobatch.envs.interface import Environment, Step
from isobatch.envs.spaces import Box
from isobatch.networks.actor_critic import ActorCritic, Policy
from isobatch.networks.distributions import Distribution
from isobatch.networks.moments import Moments

OBS_EPS = 1e-8  # added to the standard deviation that observations are divided by
AT_ONCE = 2**25  # numbers in the observations of a rollout that are valued in one pass


class EnvCarry(eqx.Module):
    """Where the environments stand between two rollouts."""

    state: Any
    obs: Array
    episode_return: Float[Array, "N"]
    episode_length: Int[Array, "N"]
    counts: Bool[Array, "N"]  # False during an episode that a staggered reset made shorter


class Episodes(eqx.Module):
    """Sums over the episodes that ended during a rollout; sums, so that they add up over rollouts."""

    count: Float[Array, ""]
    return_sum: Float[Array, ""]
    length_sum: Float[Array, ""]


class Segment(eqx.Module):
    """One rollout, time first. What the behavior policy thought is stored with what it did."""

    obs: Array  # [T, N, ...], as the networks see it
    action: Array
    behavior: Distribution
    log_prob: Float[Array, "T N"]
    reward: Float[Array, "T N"]
    terminated: Bool[Array, "T N"]
    truncated: Bool[Array, "T N"]
    value: Float[Array, "T N"]
    next_value: Float[Array, "T N"]
    time_limit: int = eqx.field(static=True)  # of the environment's episodes
    # Rows that are steps. The others fill the place of a reset, have no reward, and nothing may be learned from them.
    # None: all are steps.
    valid: Bool[Array, "T N"] | None = None


def start_envs(env: Environment, num_envs: int, staggered: bool, key: Key[Array, ""]) -> EnvCarry:
    """Reset all environments; staggered, environment i starts at i/N of the time limit."""
    state, obs = jax.vmap(env.reset)(jax.random.split(key, num_envs))
    if staggered:
        times = jnp.arange(num_envs) * env.max_steps // num_envs
        state = jax.vmap(env.at_time)(state, times)
    zeros = jnp.zeros(num_envs)
    whole = jnp.arange(num_envs) == 0 if staggered else jnp.ones(num_envs, bool)
    return EnvCarry(state, obs, zeros, zeros.astype(jnp.int32), whole)


class Steps(eqx.Module):
    """What happened in a rollout, time first, before anybody judged it."""

    raw_obs: Array  # before normalization
    action: Array
    behavior: Distribution
    after: Step  # where the actions led, before resets
    ended: tuple[
        Bool[Array, "*T N"], Float[Array, "*T N"], Int[Array, "*T N"]
    ]  # episodes: counted here, return, length


def act(
    env: Environment,
    policy: Policy,
    carry: EnvCarry,
    see: Callable[[Array], Array],
    num_steps: int,
    key: Key[Array, ""],
) -> tuple[EnvCarry, Steps]:
    """Run the policy for T steps, and reset where an episode ended."""
    num_envs = carry.episode_return.shape[0]

    def step(carry: EnvCarry, keys: Key[Array, "K"]) -> tuple[EnvCarry, Steps]:
        behavior = policy(see(carry.obs))
        action = behavior.sample(keys[0])
        to_env = clip_to_bounds(action, env)
        after = jax.vmap(env.step)(keys[1 : num_envs + 1], carry.state, to_env)
        fresh_state, fresh_obs = jax.vmap(env.reset)(keys[num_envs + 1 :])
        done = after.terminated | after.truncated
        episode_return, episode_length = carry.episode_return + after.reward, carry.episode_length + 1
        finished = done & carry.counts
        new_carry = EnvCarry(
            state=where_envs(done, fresh_state, after.state),
            obs=where_envs(done, fresh_obs, after.obs),
            episode_return=jnp.where(done, 0.0, episode_return),
            episode_length=jnp.where(done, 0, episode_length),
            counts=carry.counts | done,
        )
        ended = (finished, jnp.where(finished, episode_return, 0.0), jnp.where(finished, episode_length, 0))
        return new_carry, Steps(carry.obs, action, behavior, after, ended)

    return jax.lax.scan(step, carry, jax.random.split(key, (num_steps, 2 * num_envs + 1)))


def collect(
    env: Environment,
    networks: ActorCritic,
    carry: EnvCarry,
    obs_moments: Moments | None,
    obs_clip: Float[Array, ""] | float,
    num_steps: int,
    key: Key[Array, ""],
    whole_episodes: bool = False,
) -> tuple[EnvCarry, Segment, Episodes, Array]:
    """Run the policy for T steps. Also returns the raw observations, for the normalizer to learn from.

    With `whole_episodes` only those episodes count that `complete_episodes` uses.
    """
    see = normalizer(obs_moments, obs_clip)
    last, steps = act(env, networks.policy, carry, see, num_steps, key)
    after = steps.after
    counted = steps.ended[0]
    if whole_episodes:
        counted = counted & complete_episodes(after.terminated | after.truncated, env.max_steps)[1]
    sums = (jnp.sum(jnp.where(counted, e, 0), dtype=jnp.float32) for e in steps.ended)
    return last, judge(env, networks, last, steps, see), Episodes(*sums), steps.raw_obs


def judge(
    env: Environment, networks: ActorCritic, last: EnvCarry, steps: Steps, see: Callable[[Array], Array]
) -> Segment:
    """The steps with the values of their states, and of those they led to."""
    obs, after = see(steps.raw_obs), steps.after
    # Values of all states in one large pass instead of T small ones.
    values = values_of(networks, jnp.concatenate([obs, see(last.obs)[None]]))
    next_value = _value_truncated(networks, see, after.obs, after.truncated & ~after.terminated, values[1:])
    return Segment(
        obs=obs,
        action=steps.action,
        behavior=steps.behavior,
        log_prob=steps.behavior.log_prob(steps.action),
        reward=after.reward,
        terminated=after.terminated,
        truncated=after.truncated,
        value=values[:-1],
        next_value=next_value,
        time_limit=env.max_steps,
    )


def values_of(networks: ActorCritic, obs: Array) -> Float[Array, "T N"]:
    """Values of observations [T, N, ...] at once; of large images step by step, to bound the memory."""
    if obs[0].size * obs.shape[0] < AT_ONCE:
        return networks.value(obs)
    return jax.lax.map(networks.value, obs)


def complete_episodes(
    done: Bool[Array, "T N"], time_limit: int, valid: Bool[Array, "T N"] | None = None
) -> tuple[Float[Array, "T N"], Bool[Array, "T N"]]:
    """For each step of rows that began with a reset: the length of its episode, and whether to use it.

    Used are the episodes that began early enough to end within the row at any length, so that the choice does
    not depend on the length: taking every episode that happened to end would prefer short ones.
    """
    steps = done.shape[0]
    time = jnp.arange(steps)[:, None]
    over = done if valid is None else ~valid  # an episode begins after the row that fills in for its reset
    begins = jnp.concatenate([jnp.ones_like(done[:1]), over[:-1]])
    first = jax.lax.cummax(jnp.where(begins, time, 0))
    last = jax.lax.cummin(jnp.where(done, time, steps - 1), reverse=True)
    used = first + time_limit <= steps
    return (last - first + 1).astype(jnp.result_type(float)), used if valid is None else used & valid


def normalizer(moments: Moments | None, clip: Float[Array, ""] | float) -> Callable[[Array], Array]:
    """From raw observations to what the networks see."""
    if moments is None:
        return lambda obs: obs
    return lambda obs: jnp.clip(moments.normalize(obs.astype(float), OBS_EPS), -clip, clip)


def _value_truncated(
    networks: ActorCritic,
    see: Callable[[Array], Array],
    final_obs: Array,
    truncated: Bool[Array, "T N"],
    next_value: Float[Array, "T N"],
) -> Float[Array, "T N"]:
    """`next_value` with the value of the final observation where an episode was cut off.

    Truncation is rare, so only those states are valued, N of them at a time.
    """
    steps, chunk = truncated.size, truncated.shape[1]
    flat_obs = final_obs.reshape(steps, *final_obs.shape[2:])
    where = jnp.flatnonzero(truncated, size=steps, fill_value=steps)
    count = jnp.sum(truncated)

    def body(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        start, flat = carry
        index = jax.lax.dynamic_slice(where, (start,), (chunk,))
        value = networks.value(see(flat_obs.at[index].get(mode="clip")))
        return start + chunk, flat.at[index].set(value, mode="drop")

    _, flat = jax.lax.while_loop(lambda c: c[0] < count, body, (jnp.zeros_like(count), next_value.reshape(-1)))
    return flat.reshape(truncated.shape)


def clip_to_bounds(action: Array, env: Environment | HostEnvironment) -> Array:
    """Actions as the environment takes them."""
    space = env.action_space
    if not isinstance(space, Box):
        return action
    low, high = jnp.asarray(space.low), jnp.asarray(space.high)
    if space.rescaled:
        action = low + (action + 1) / 2 * (high - low)
    return jnp.clip(action, low, high).reshape(-1, *space.shape)


def where_envs(condition: Bool[Array, "N"], yes: Any, no: Any) -> Any:
    """Leaf by leaf, environment by environment."""

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(condition.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, yes, no)
