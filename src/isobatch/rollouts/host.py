"""The compiled parts of a rollout whose environments step outside: act, value, and what a segment is made of.

All are written for one seed and are vmapped over seeds.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt32

from isobatch.envs.host_interface import HostEnvironment
from isobatch.envs.spaces import Box, MultiBinary, MultiDiscrete, Space
from isobatch.networks.actor_critic import ActorCritic
from isobatch.networks.distributions import Distribution
from isobatch.networks.moments import Moments
from isobatch.rollouts.compiled import (
    EnvCarry,
    Episodes,
    Segment,
    clip_to_bounds,
    complete_episodes,
    normalizer,
    values_of,
)

T = TypeVar("T")


class HostState(eqx.Module):
    """What is known of environments that step outside: enough to have their episodes again, where that is possible."""

    run_seed: Int[Array, ""]
    episode: Int[Array, "N"]  # number of the episode that each environment is in
    over: Bool[Array, "N"]  # mode next-step: whether the next row fills in for a reset
    actions: Array  # [L, N, ...], as the environments got them: of each its last `episode_length` belong to its episode


class PolicyOutput(eqx.Module):
    """What N environments are told to do, and what the policy thought."""

    sent: Array  # the action as the environments take it: within the bounds
    action: Array  # as sampled
    behavior: Distribution
    value: Float[Array, "N"] | None  # where it has the policy's torso


class Rollout(eqx.Module):
    """What happened in T steps of N environments."""

    obs: Array  # [T, N, ...], raw
    last_obs: Array  # [N, ...]
    action: Array
    behavior: Distribution
    reward: Float[Array, "T N"]
    terminated: Bool[Array, "T N"]
    truncated: Bool[Array, "T N"]
    final_value: Float[Array, "T N"]  # of the observation an episode was cut off at; 0 elsewhere
    value: Float[Array, "T N"] | None = None  # of the observations, if it was found when acting


class OpenEpisodes(eqx.Module):
    """The episodes in progress: fields of `EnvCarry` and `HostState` that a compiled program keeps."""

    episode_return: Float[Array, "N"]
    episode_length: Int[Array, "N"]
    counts: Bool[Array, "N"]
    over: Bool[Array, "N"]


class Finished(eqx.Module):
    """A rollout, judged, and the episodes that it left in progress."""

    segment: Segment
    episodes: Episodes
    obs_moments: Moments | None
    underway: OpenEpisodes


def replaced(tree: T, **fields: Any) -> T:
    """`dataclasses.replace` without checks of shapes: outside compiled programs there is an axis of seeds in front."""
    copy = object.__new__(type(tree))
    for field in dataclasses.fields(tree):  # type: ignore[arg-type]  # a module of equinox is a dataclass
        object.__setattr__(copy, field.name, fields.pop(field.name, getattr(tree, field.name)))
    assert not fields
    return copy


def host_carry(env: HostEnvironment, num_envs: int, seed: int) -> EnvCarry:
    """Environments that are not running yet."""
    actions = jnp.zeros((0, num_envs, *action_shape(env.action_space)), action_dtype(env.action_space))
    nothing = jnp.zeros(num_envs)
    none = nothing.astype(jnp.int32)
    state = HostState(jnp.int32(seed), none, nothing.astype(bool), actions)
    obs = jnp.zeros((num_envs, *env.obs_shape), env.obs_dtype)
    return EnvCarry(state, obs, nothing, none, jnp.ones(num_envs, bool))


def action_shape(space: Space) -> tuple[int, ...]:
    """Of one action, as the environment gets it."""
    match space:
        case Box(shape):
            return shape
        case MultiDiscrete(sizes):
            return (len(sizes),)
        case MultiBinary(n):
            return (n,)
    return ()


def action_dtype(space: Space) -> Any:
    return jnp.float32 if isinstance(space, Box) else jnp.int32


def act(
    env: HostEnvironment,
    networks: ActorCritic,
    obs_moments: Moments | None,
    obs_clip: Float[Array, ""],
    key: UInt32[Array, "K"],
    obs: Array,
) -> tuple[UInt32[Array, "K"], PolicyOutput]:
    """The key for the next step, as numbers, and what the policy chooses."""
    later, now = jax.random.split(jax.random.wrap_key_data(key))
    see = normalizer(obs_moments, obs_clip)
    value = None
    if networks.value_torso is None:  # it comes for nothing
        behavior, value = networks(see(obs))
    else:
        behavior = networks.policy(see(obs))
    action = behavior.sample(now)
    sent = clip_to_bounds(action, env) if isinstance(env.action_space, Box) else None
    return jax.random.key_data(later), PolicyOutput(action if sent is None else sent, action, behavior, value)


def value(
    networks: ActorCritic, obs_moments: Moments | None, obs_clip: Float[Array, ""], obs: Array
) -> Float[Array, "N"]:
    return networks.value(normalizer(obs_moments, obs_clip)(obs))


def finish(
    whole_episodes: bool,
    env: HostEnvironment,
    networks: ActorCritic,
    obs_moments: Moments | None,
    obs_clip: Float[Array, ""],
    before: OpenEpisodes,
    rollout: Rollout,
) -> Finished:
    """Judge a rollout as `rollout.judge` does, add up its episodes, and let the normalizer learn from it."""
    see = normalizer(obs_moments, obs_clip)
    obs, last = see(rollout.obs), see(rollout.last_obs)[None]
    if rollout.value is None:
        values = values_of(networks, jnp.concatenate([obs, last]))
    else:
        values = jnp.concatenate([rollout.value, networks.value(last)])
    done = rollout.terminated | rollout.truncated
    valid, next_value, reward = None, values[1:], rollout.reward
    over = jnp.zeros_like(before.over)
    if env.autoreset == "next-step":  # the observation after the end of an episode is the one it ended with
        valid, over = ~jnp.concatenate([before.over[None], done[:-1]]), done[-1]
        reward = jnp.where(valid, reward, 0.0)
    else:
        next_value = jnp.where(rollout.truncated & ~rollout.terminated, rollout.final_value, next_value)
    ended, after = count_episodes(before, reward, done, jnp.ones_like(done) if valid is None else valid)
    counted = ended[0]
    if whole_episodes:
        counted = counted & complete_episodes(done, env.max_steps, valid)[1]
    sums = (jnp.sum(jnp.where(counted, e, 0), dtype=jnp.float32) for e in ended)
    segment = Segment(
        obs=obs,
        action=rollout.action,
        behavior=rollout.behavior,
        log_prob=rollout.behavior.log_prob(rollout.action),
        reward=reward,
        terminated=rollout.terminated,
        truncated=rollout.truncated,
        value=values[:-1],
        next_value=next_value,
        time_limit=env.max_steps,
        valid=valid,
    )
    moments = None if obs_moments is None else obs_moments.update(rollout.obs.astype(float), used=valid)
    return Finished(segment, Episodes(*sums), moments, OpenEpisodes(*after, over))


def count_episodes(
    before: OpenEpisodes, reward: Float[Array, "T N"], done: Bool[Array, "T N"], valid: Bool[Array, "T N"]
) -> tuple[tuple[Array, Array, Array], tuple[Array, Array, Array]]:
    """Whether an episode that counts ended [T, N], its return and its length; and those of the episodes in progress."""

    def step(carry: tuple[Array, Array, Array], row: tuple[Array, Array, Array]) -> Any:
        total, length, counts = carry
        reward, done, valid = row
        total, length = total + reward, length + valid
        after = (jnp.where(done, 0.0, total), jnp.where(done, 0, length), counts | done)
        return after, (done & counts, total, length)

    start = (before.episode_return, before.episode_length, before.counts)
    after, ended = jax.lax.scan(step, start, (reward, done, valid))
    return ended, after
