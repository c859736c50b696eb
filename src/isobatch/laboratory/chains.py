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

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from isobatch.learning.advantages import gae
from isobatch.learning.policy_phase import estimate_advantages
from isobatch.learning.state import TrainState
from isobatch.rollouts.segment import Segment
from isobatch.settings.config import Config

NEGLIGIBLE = 0.01  # weight gamma^H of what lies beyond the horizon H of a Monte-Carlo return


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


def begins(time_limit: int, groups: int, count: int) -> Int[np.ndarray, " C"]:
    """Steps after its reset at which each chain begins."""
    return time_limit + np.repeat(np.arange(groups) * time_limit // groups, count // groups)


def chain_bytes(obs_bytes: int, parameters: int, count: int, length: int) -> int:
    """Memory at its highest: observations, a dozen numbers beside each, gradients of a window and sums over windows."""
    return count * length * (obs_bytes + 4 * 12) + 4 * 6 * count * parameters


def horizon_of(gamma: float, time_limit: int) -> int:
    """Steps after which what follows is negligible; without discounting, one time limit."""
    if gamma == 1:
        return time_limit
    return math.ceil(math.log(NEGLIGIBLE) / math.log(gamma)) if gamma else 1


def scaled(config: Config, state: TrainState, reward: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """Rewards as the learner sees them."""
    scale = state.learning.reward_scale
    return reward if scale is None else scale.apply(reward, config.hypers.reward_clip)


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
    ends = segment.terminated, segment.truncated
    return gae(segment.reward, value, chains.true_next_value, *ends, config.hypers.gamma, 1.0)


def next_in_row(config: Config, value: Float[Array, "L C"]) -> Float[Array, "L C"]:
    """The baseline of the next state, where a chain goes on."""
    return jnp.concatenate([value[1:], jnp.zeros_like(value[:1])]) if config.baseline else jnp.zeros_like(value)
