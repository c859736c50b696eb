"""Artificial staleness (paper, section 5.1): each rollout waits in a queue before it is used.

With staleness s the queue holds s rollouts. Iteration i takes out the one of iteration i - s and puts its own in
that place; during the first s iterations there is nothing to take out and data is only collected.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, DTypeLike, Int

from isobatch.envs.host_interface import AnyEnvironment
from isobatch.networks.actor_critic import Networks
from isobatch.rollouts.segment import Segment
from isobatch.settings.config import Config


def empty_queue(config: Config, env: AnyEnvironment, networks: Networks) -> Segment:
    """Room for `staleness` rollouts."""
    shapes = segment_shapes(config, env, networks)
    return jax.tree.map(lambda leaf: jnp.zeros((config.staleness, *leaf.shape), leaf.dtype), shapes)


def segment_shapes(config: Config, env: AnyEnvironment, networks: Networks) -> Segment:
    """A segment of shapes and types."""

    def one() -> Segment:
        shape = (config.num_steps, config.num_envs)
        obs = jnp.zeros((*shape, *env.obs_shape), seen_dtype(config, env))
        behavior = networks.policy(obs)
        numbers, never = jnp.zeros(shape), jnp.zeros(shape, bool)
        return Segment(
            obs=obs,
            action=behavior.sample(jax.random.key(0)),
            behavior=behavior,
            log_prob=numbers,
            reward=numbers,
            terminated=never,
            truncated=never,
            value=numbers,
            next_value=numbers,
            time_limit=env.max_steps,
            valid=never if has_fillers(env) else None,
        )

    return jax.eval_shape(one)


def seen_dtype(config: Config, env: AnyEnvironment) -> DTypeLike:
    """Of observations as the networks see them, and as rollouts are kept."""
    as_float = config.normalize_observations or env.obs_dtype == "float32"
    return jnp.result_type(float) if as_float else env.obs_dtype


def has_fillers(env: AnyEnvironment) -> bool:
    """Whether some rows of a rollout are no steps: `Segment.valid`."""
    return getattr(env, "autoreset", None) == "next-step"


def exchange(queue: Segment, fresh: Segment, iteration: Int[Array, ""], staleness: int) -> tuple[Segment, Segment]:
    """The rollout that is due, and the queue with `fresh` in its place."""
    return due(queue, iteration, staleness), put(queue, fresh, iteration, staleness)


def due(queue: Segment, iteration: Int[Array, ""], staleness: int) -> Segment:
    slot = iteration % staleness
    return jax.tree.map(lambda q: jax.lax.dynamic_index_in_dim(q, slot, keepdims=False), queue)


def put(queue: Segment, fresh: Segment, iteration: Int[Array, ""], staleness: int) -> Segment:
    slot = iteration % staleness
    return jax.tree.map(lambda q, new: q.at[slot].set(new), queue, fresh)
