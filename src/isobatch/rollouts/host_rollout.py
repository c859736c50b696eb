"""The compiled functions of a rollout whose environments step outside: choose, value, and process what was collected.

All are written for one seed and are vmapped over seeds.
"""

from __future__ import annotations

import dataclasses
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, DTypeLike, Float, Int, UInt32

from isobatch.envs.host_interface import HostEnvironment
from isobatch.envs.spaces import Box, MultiBinary, MultiDiscrete, Space
from isobatch.networks.actor_critic import Networks
from isobatch.networks.distributions import Distribution
from isobatch.networks.moments import Moments
from isobatch.networks.shards import WHOLE, Axes, total
from isobatch.rollouts.collected import CollectedRollout
from isobatch.rollouts.segment import (
    EndedEpisodes,
    EnvCarry,
    EpisodeSums,
    OpenEpisodes,
    Segment,
    clip_to_bounds,
    complete_episodes,
    preprocessor,
    to_segment,
)

T = TypeVar("T")


class HostState(eqx.Module):
    """What is known of environments that step outside: enough to have their episodes again, where that is possible."""

    run_seed: Int[Array, ""]
    episode: Int[Array, "N"]  # number of the episode that each environment is in
    fills_in: Bool[Array, "N"]  # mode next-step: whether the next row fills in for a reset
    actions: Array  # [L, N, ...], as the environments got them: of each its last `length` belong to its episode


class PolicyOutput(eqx.Module):
    """What N environments are told to do, and what the policy thought."""

    sent: Array  # the action as the environments take it: within the bounds
    action: Array  # as sampled
    behavior: Distribution
    value: Float[Array, "N"] | None  # where it has the policy's torso


class ProcessedRollout(eqx.Module):
    """A rollout as the learner gets it, and what it left in progress."""

    segment: Segment
    episodes: EpisodeSums
    obs_moments: Moments | None
    open_episodes: OpenEpisodes
    fills_in: Bool[Array, "N"]


def replaced(tree: T, **fields: object) -> T:
    """`dataclasses.replace` without checks of shapes: outside compiled programs there is an axis of seeds in front."""
    copy = object.__new__(type(tree))
    for field in dataclasses.fields(tree):  # type: ignore[arg-type]  # a module of equinox is a dataclass
        object.__setattr__(copy, field.name, fields.pop(field.name, getattr(tree, field.name)))
    assert not fields
    return copy


def host_carry(env: HostEnvironment, num_envs: int, seed: int | Array) -> EnvCarry:
    """Environments that are not running yet."""
    actions = jnp.zeros((0, num_envs, *action_shape(env.action_space)), action_dtype(env.action_space))
    state = HostState(jnp.int32(seed), jnp.zeros(num_envs, jnp.int32), jnp.zeros(num_envs, bool), actions)
    obs = jnp.zeros((num_envs, *env.obs_shape), env.obs_dtype)
    return EnvCarry(state, obs, OpenEpisodes.start(jnp.ones(num_envs, bool)))


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


def action_dtype(space: Space) -> DTypeLike:
    return jnp.float32 if isinstance(space, Box) else jnp.int32


def choose(
    env: HostEnvironment,
    networks: Networks,
    obs_moments: Moments | None,
    obs_clip: Float[Array, ""],
    key: UInt32[Array, "K"],
    obs: Array,
) -> tuple[UInt32[Array, "K"], PolicyOutput]:
    """The key for the next step, as numbers, and what the policy chooses."""
    later, now = jax.random.split(jax.random.wrap_key_data(key))
    preprocess = preprocessor(obs_moments, obs_clip)
    value = None
    if networks.shares_layers:  # it comes for nothing
        behavior, value = networks(preprocess(obs))
    else:
        behavior = networks.policy(preprocess(obs))
    action = behavior.sample(now)
    sent = clip_to_bounds(action, env) if isinstance(env.action_space, Box) else None
    return jax.random.key_data(later), PolicyOutput(action if sent is None else sent, action, behavior, value)


def value(networks: Networks, obs_moments: Moments | None, obs_clip: Float[Array, ""], obs: Array) -> Float[Array, "N"]:
    return networks.value(preprocessor(obs_moments, obs_clip)(obs))


def process(
    whole_episodes: bool,
    env: HostEnvironment,
    networks: Networks,
    obs_moments: Moments | None,
    obs_clip: Float[Array, ""],
    before: OpenEpisodes,
    fills_in: Bool[Array, "N"],
    rollout: CollectedRollout,
    across: Axes = WHOLE,
) -> ProcessedRollout:
    """The segment of a rollout and the sums over its episodes; and the normalizer learns from it."""
    resets_by_step = env.autoreset == "next-step"
    segment = to_segment(
        rollout,
        networks,
        preprocessor(obs_moments, obs_clip),
        env.max_steps,
        fills_in if resets_by_step else None,
    )
    ended, after = count_episodes(before, segment, rollout.done)
    among = complete_episodes(rollout.done, env.max_steps, segment.valid)[1] if whole_episodes else None
    moments = (
        None
        if obs_moments is None
        else obs_moments.update(rollout.obs.astype(float), used=segment.valid, across=across)
    )
    later = rollout.done[-1] if resets_by_step else jnp.zeros_like(fills_in)
    return ProcessedRollout(segment, total(ended.sums(among), across), moments, after, later)


def count_episodes(
    before: OpenEpisodes, segment: Segment, done: Bool[Array, "T N"]
) -> tuple[EndedEpisodes, OpenEpisodes]:
    """The episodes that ended, and those in progress after."""
    valid = jnp.ones_like(done) if segment.valid is None else segment.valid

    def step(episodes: OpenEpisodes, row: tuple[Array, Array, Array]) -> tuple[OpenEpisodes, EndedEpisodes]:
        return episodes.step(*row)

    after, ended = jax.lax.scan(step, before, (segment.reward, done, valid))
    return ended, after
