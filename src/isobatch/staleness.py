"""Artificial staleness (paper, section 5.1): each rollout waits in a queue before it is used.

With staleness s the queue holds s rollouts. Iteration i takes out the one of iteration i - s and puts its own in
that place; during the first s iterations there is nothing to take out and data is only collected.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from isobatch.config import Config
from isobatch.envs.interface import Environment
from isobatch.moments import Moments
from isobatch.networks import ActorCritic
from isobatch.rollout import EnvCarry, Segment, collect


def empty_queue(config: Config, env: Environment, networks: ActorCritic, envs: EnvCarry) -> Segment:
    """Room for `staleness` rollouts."""
    moments = Moments.empty(env.obs_shape) if config.normalize_observations else None
    shapes = jax.eval_shape(
        lambda: collect(env, networks, envs, moments, config.hypers.obs_clip, config.num_steps, jax.random.key(0))[1]
    )
    return jax.tree.map(lambda leaf: jnp.zeros((config.staleness, *leaf.shape), leaf.dtype), shapes)


def exchange(queue: Segment, fresh: Segment, iteration: Int[Array, ""], staleness: int) -> tuple[Segment, Segment]:
    """The rollout that is due, and the queue with `fresh` in its place."""
    slot = iteration % staleness
    due = jax.tree.map(lambda q: jax.lax.dynamic_index_in_dim(q, slot, keepdims=False), queue)
    return due, jax.tree.map(lambda q, new: q.at[slot].set(new), queue, fresh)
