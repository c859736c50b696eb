"""From per-sample losses to one number: the only module that reduces.

Every aggregation is a mean over samples of weight x loss, and the weights are all that differs. With
N trajectories of T_i steps and S = sum T_i samples (names of LLM trainers in brackets):

| aggregation     | loss                                               | weight of a sample |
|-----------------|----------------------------------------------------|--------------------|
| timestep        | (1/S) sum_i sum_t          (token-mean)            | 1                  |
| trajectory      | (1/N) sum_i sum_t          (seq-mean-token-sum)    | S/N                |
| trajectory-mean | (1/N) sum_i (1/T_i) sum_t  (seq-mean-token-mean)   | S/(N T_i)          |
| constant        | (1/N) sum_i (1/H) sum_t    (seq-mean-token-sum-norm) | S/(N H)          |

`timestep` is what SB3, CleanRL and Spinning Up compute; `trajectory` is the textbook estimator. They differ
by the factor N/S, a random one where episodes end at different times. A trajectory is an episode, or the piece of one
that lies inside the rollout (`rollouts.segment.trajectories`); N and S are those of the iteration, and a minibatch is a
random part of its samples, so the mean over it estimates the mean over all of them.

Policy loss, value loss and entropy bonus of a sample are added first, so one aggregation is that of all three. The
auxiliary phase of PPG and the metrics are means over time steps whatever it is.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from isobatch.networks.shards import WHOLE, Axes, total
from isobatch.settings.config import Aggregation


def sample_weights(
    kind: Aggregation,
    lengths: Float[Array, "*B"],
    used: Bool[Array, "*B"],
    horizon: Float[Array, ""] | float,
    across: Axes = WHOLE,
) -> Float[Array, "*B"]:
    """Weights whose mean with the losses is the aggregation over the samples in use; 0 for the others.

    With N trajectories of T_i steps and S = sum T_i: 1, S/N, S/(N T_i) or S/(N H); the table above has the losses that
    result. Liu et al. 2025, https://arxiv.org/abs/2503.20783, compare `trajectory-mean` with `constant` for language
    models.

    Args:
        kind: timestep, trajectory, trajectory-mean or constant.
        lengths: T_i of the trajectory that a sample belongs to [*B].
        used: which samples count [*B].
        horizon: H of `constant`, a number.
        across: axes of the shards that the samples are spread over, if they are.

    Returns:
        Weights [*B] for `aggregate`.

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> lengths = jnp.array([1.0, 3.0, 3.0, 3.0])  # two trajectories
        >>> ib.sample_weights("trajectory", lengths, jnp.ones(4, bool), horizon=1.0).tolist()
        [2.0, 2.0, 2.0, 2.0]
    """
    present = used.astype(lengths.dtype)
    lengths = jnp.maximum(lengths, 1)  # a trajectory without samples has none that count
    trajectories = total(jnp.sum(present / lengths), across)  # each one adds T_i times 1/T_i
    match kind:
        case "timestep":
            per_sample = present / total(jnp.sum(present), across)
        case "trajectory":
            per_sample = present / trajectories
        case "trajectory-mean":
            per_sample = present / (trajectories * lengths)
        case "constant":
            per_sample = present / (trajectories * horizon)
    return per_sample * total(lengths.size, across)


def aggregate(losses: Float[Array, "*B"], weights: Float[Array, "*B"]) -> Float[Array, ""]:
    """(1/|B|) sum_b w_b L_b: the one number whose gradient is followed; `sample_weights` has the source.

    Args:
        losses: per-sample losses [*B].
        weights: those of `sample_weights` [*B].

    Returns:
        A number.

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> float(ib.aggregate(jnp.array([1.0, 3.0]), jnp.ones(2)))
        2.0
    """
    return jnp.mean(weights * losses)
