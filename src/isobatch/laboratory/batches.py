"""Whole batches, collected as training collects them: to measure directly what the landscape predicts, and for time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from isobatch.laboratory.chains import Chains
from isobatch.laboratory.external_policy import ExternalPolicy
from isobatch.laboratory.partial_results import NOTHING_KEPT, MadePiece, PartialResults, Piece, spans
from isobatch.laboratory.per_sample import mean_gradient, vanilla
from isobatch.laboratory.source import Source, draws, median_seconds
from isobatch.learning.policy_phase import estimate_advantages
from isobatch.networks.actor_critic import Policy
from isobatch.rollouts.segment import Segment
from isobatch.settings.config import Config
from isobatch.statistics.aggregates import skewed_mean
from isobatch.statistics.bootstrap import LEAST_FOR_INTERVAL, Estimate

Samples = tuple[Array, Array, Array]


@partial(jax.jit, static_argnums=0)
def samples_of(config: Config, segment: Segment) -> Samples:
    """Observations, actions and advantages [B, ...]."""
    advantage = estimate_advantages(config, segment, segment.reward, config.hypers)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (segment.obs, segment.action, advantage))


def batch_gradient(policy: Policy | ExternalPolicy, samples: Samples) -> Float[Array, " P"] | np.ndarray:
    return policy.gradient(samples) if isinstance(policy, ExternalPolicy) else _gradient(policy, samples)


@jax.jit
def _gradient(policy: Policy, samples: Samples) -> Float[Array, " P"]:
    return mean_gradient(vanilla, policy, samples)


def batch_products(
    config: Config,
    policy: Policy | ExternalPolicy,
    source: Source,
    num_envs: int,
    num_steps: int,
    batches: int,
    seed: int,
    parts: PartialResults = NOTHING_KEPT,
) -> Float[np.ndarray, "K K"]:
    """Inner products of the gradients of K independent batches. `parts` keeps the gradients."""
    name = f"batches-{num_envs}x{num_steps}"

    def make(first: int, last: MadePiece | None) -> Iterator[Piece]:
        for segment in source.batches(num_envs, num_steps, draws(batches, seed), first, parts, f"{name}-collected"):
            yield {"gradient": batch_gradient(policy, samples_of(config, segment))}

    vectors = np.stack([np.asarray(made["gradient"], float) for made in parts.pieces(name, make)])
    return vectors @ vectors.T


def few_batches(wanted: int) -> int:
    """Of the batches that were asked for, as many as are taken where each of them costs much: 4 to 16."""
    return max(LEAST_FOR_INTERVAL, min(4 * LEAST_FOR_INTERVAL, wanted))


def mean_over_batches(
    values: Sequence[float] | np.ndarray, least: float = -math.inf, most: float = math.inf
) -> Estimate:
    """Of one number for each batch, which can be `least` to `most`.

    Squared lengths and ratios are skewed, so Student's interval of sixteen batches would hold the mean 89 to 95 % of
    the time, for numbers from normal ones to squares of such; the one that is taken does 94 to 95 % of the time, and of
    eight batches 92 to 95 %. Heavier tails are held less often: lognormal numbers, sigma 1, by 91 % of sixteen.
    """
    mean = skewed_mean(np.asarray(values, float))
    return Estimate(mean.value, max(mean.low, least), min(mean.high, most))


def gradient_seconds(policy: Policy | ExternalPolicy, chains: Chains, size: int) -> float:
    """Wall-clock time of the gradient of `size` samples."""
    where = jnp.arange(size) % (chains.length * chains.count)
    obs, action = (leaf.reshape(-1, *leaf.shape[2:])[where] for leaf in (chains.segment.obs, chains.segment.action))
    return median_seconds(lambda: batch_gradient(policy, (obs, action, jnp.ones(size))))


def first_episodes(
    config: Config, policy: Policy | ExternalPolicy, segment: Segment, parts: PartialResults = NOTHING_KEPT
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of the first episode of each environment: the sum of its gradients, its length, and whether it has ended."""
    columns, lengths, ended = _first_columns(config, segment)

    def make(first: int, last: MadePiece | None) -> Iterator[Piece]:
        begun = 0 if last is None else int(last["end"])
        if not isinstance(policy, ExternalPolicy):
            for begin, end in spans(begun, len(lengths)):
                yield {"sums": _column_sums(policy, columns, begin, end)[begin:end], "end": end}
        elif not begun:
            sums = len(segment.reward) * policy.mean_gradients(*map(np.asarray, columns))
            yield {"sums": sums, "end": len(lengths)}

    sums = np.concatenate([made["sums"] for made in parts.pieces("sums", make)])
    return sums, np.asarray(lengths), np.asarray(ended)


@partial(jax.jit, static_argnums=0)
def _first_columns(config: Config, segment: Segment) -> tuple[Samples, Int[Array, " E"], Bool[Array, " E"]]:
    """Samples [E, T, ...], with advantages of 0 behind the first episode; lengths, and whether it has ended."""
    done = segment.terminated | segment.truncated
    mine = jnp.cumsum(done, axis=0) - done == 0
    advantage = mine * estimate_advantages(config, segment, segment.reward, config.hypers)
    columns = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), (segment.obs, segment.action, advantage))
    return columns, jnp.sum(mine, axis=0), jnp.any(done, axis=0)


@jax.jit
def _column_sums(policy: Policy, columns: Samples, begin: int, end: int) -> Float[Array, "E P"]:
    """Of some columns; 0 for the others."""

    def add(column: Array, sums: Array) -> Array:
        samples = jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, column, keepdims=False), columns)
        return sums.at[column].set(len(samples[2]) * mean_gradient(vanilla, policy, samples))

    size = sum(leaf.size for leaf in jax.tree.leaves(policy))
    return jax.lax.fori_loop(begin, end, add, jnp.zeros((len(columns[2]), size)))
