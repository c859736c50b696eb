"""From per-sample losses to one number: the only module that reduces.

Every aggregation is a mean over samples of weight x loss, and the weights are all that differs. With
N trajectories of T_i steps and S = sum T_i samples (names of LLM trainers in brackets):

| aggregation     | loss                               | weight of a sample |
|-----------------|------------------------------------|--------------------|
| timestep        | (1/S) sum_i sum_t  (token-mean)    | 1                  |
| trajectory      | (1/N) sum_i sum_t  (seq-mean-token-sum)  | S/N          |
| trajectory-mean | (1/N) sum_i (1/T_i) sum_t  (seq-mean-token-mean) | S/(N T_i) |
| constant        | (1/N) sum_i (1/H) sum_t  (seq-mean-token-sum-norm) | S/(N H) |

`timestep` is what SB3, CleanRL and Spinning Up compute; `trajectory` is the textbook estimator. They differ
by the factor N/S: a constant when N and T are fixed, a random one for whole episodes of varying length.
A minibatch is a random part of the samples, so the mean over it estimates the mean over all of them.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from isobatch.config import Aggregation


def sample_weights(
    lengths: Float[Array, "*B"],
    num_trajectories: Float[Array, ""] | float,
    kind: Aggregation,
    horizon: Float[Array, ""] | float,
) -> Float[Array, "*B"]:
    """Weight of each sample; `lengths` holds T_i of the trajectory that the sample belongs to."""
    samples = lengths.size
    match kind:
        case "timestep":
            return jnp.ones_like(lengths)
        case "trajectory":
            return jnp.full_like(lengths, samples / num_trajectories)
        case "trajectory-mean":
            return samples / (num_trajectories * lengths)
        case "constant":
            return jnp.full_like(lengths, samples / (num_trajectories * horizon))


def aggregate(losses: Float[Array, "*B"], weights: Float[Array, "*B"]) -> Float[Array, ""]:
    return jnp.mean(weights * losses)
