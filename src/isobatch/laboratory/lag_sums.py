"""How the gradients along a trajectory are correlated: covariance against lag, and what each lag adds to the variance.

With d_i = g_i - mu and pairs i, j = i + h of one trajectory (an episode's part of a chain):
    correlation(h) = E[d_i . d_j] / E|d_i|^2,
    share(h)       = (2 / T^2) sum of d_i . d_j over these pairs, the part of a window's variance that comes from lag h.
The baseline is the same for two trajectories: pairs of samples of different chains that were reset together, at equal
times, where they have most in common.
mu comes from the other chains: with the mean of the same samples in its place every correlation would be pulled
down by about the variance of that mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from isobatch.laboratory.chains import Chains, window_advantages
from isobatch.laboratory.inner_products import gram
from isobatch.laboratory.landscape import reset_together, squared_mean, window_products
from isobatch.laboratory.objectives import vanilla
from isobatch.laboratory.projection import directional
from isobatch.networks.actor_critic import Policy
from isobatch.settings.config import Config
from isobatch.statistics.bootstrap import pair_mean, unit_mean


@dataclass(frozen=True)
class LagSums:
    """Of each chain, for lags 0 .. L-1 within trajectories."""

    products: np.ndarray  # [C, L] sum of d_i . d_j
    counts: np.ndarray  # [C, L] number of pairs i, j
    everything: np.ndarray  # [C] sum of d_i . d_j over all i, j
    equal_times: np.ndarray  # [C, C] mean of g_i . g_j over samples i, j of two chains at the same time
    mean: np.ndarray  # [C, C] inner products of the chains' mean gradients
    together: np.ndarray  # [C, C] whether two different chains were reset at the same time

    def across(self, weights: np.ndarray) -> np.ndarray:
        """[R]: the correlation of two trajectories at equal times."""
        covariance = pair_mean(self.equal_times, weights, self.together) - squared_mean(
            self.mean, weights, self.together
        )
        variance = unit_mean(self.products[:, 0], weights) / unit_mean(self.counts[:, 0], weights)
        return covariance / variance

    def correlation(self, weights: np.ndarray) -> np.ndarray:
        """[R, L]; not a number where no two samples are so far apart."""
        with np.errstate(invalid="ignore", divide="ignore"):
            by_lag = unit_mean(self.products, weights) / unit_mean(self.counts, weights)
        return by_lag / by_lag[:, :1]

    def shares(self, edges: list[int], weights: np.ndarray) -> np.ndarray:
        """[R, B + 1] shares of a window's variance: lags 0 .. edges[0]-1, edges[0] .. edges[1]-1, ..., and the rest."""
        twice = np.concatenate([self.products[:, :1], 2 * self.products[:, 1:]], axis=1)
        parts = [twice[:, low:high].sum(axis=1) for low, high in zip([0, *edges[:-1]], edges, strict=True)]
        parts.append(self.everything - twice[:, : edges[-1]].sum(axis=1))
        return unit_mean(np.stack(parts, axis=1), weights) / unit_mean(self.everything, weights)[:, None]


def lag_sums(
    config: Config,
    policy: Policy,
    chains: Chains,
    lam: float,
    watch: Callable[[float], None] = lambda done: None,
) -> LagSums:
    """Sums over all pairs of samples of one chain, centered with the mean gradient of the other chains."""
    advantage = window_advantages(config, chains, chains.length, lam)
    obs, action, done = chains.segment.obs, chains.segment.action, chains.segment.terminated | chains.segment.truncated
    _, gradients, _ = window_products(policy, obs, action, advantage, chains.length)
    means, count = np.asarray(gradients, float), chains.count
    total, squares = means.sum(axis=0), np.sum(means**2, axis=1)
    sums = []
    for u in range(count):
        others = total - means[u]
        # |mu|^2 by products of different chains, none of them this one.
        level = (others @ others - squares.sum() + squares[u]) / ((count - 1) * (count - 2))
        mean = jnp.asarray(others / (count - 1), advantage.dtype)
        watch(u / count)
        sums.append(_chain_sums(policy, (obs[:, u], action[:, u], advantage[:, u]), done[:, u], mean, level))
    products, counts, everything = (np.stack([np.asarray(x, float) for x in xs]) for xs in zip(*sums, strict=True))
    equal_times = np.asarray(window_products(policy, obs, action, advantage, 1)[0], float)
    return LagSums(products, counts, everything, equal_times, means @ means.T, reset_together(chains))


@jax.jit
def _chain_sums(
    policy: Policy, samples: tuple, done: Bool[Array, " L"], mean: Float[Array, " P"], level: Float[Array, ""]
) -> tuple[Float[Array, " L"], Float[Array, " L"], Float[Array, ""]]:
    """Of one chain: products by lag, how many they are, and the sum of all products."""
    along = directional(vanilla, policy, samples, ravel_pytree(policy)[1](mean))
    centered = gram(vanilla, policy, samples) - along[:, None] - along + level
    trajectory = jnp.cumsum(done) - done
    same = trajectory[:, None] == trajectory
    return diagonal_sums(centered * same), diagonal_sums(same.astype(float)), jnp.sum(centered)


def diagonal_sums(matrix: Float[Array, "L L"]) -> Float[Array, " L"]:
    """Sums over the diagonals j - i = 0 .. L-1."""
    length = len(matrix)
    # Rows one longer than the width they are read with: each slips by one against the row above it.
    slipped = jnp.pad(matrix[:, ::-1], ((0, 0), (0, length))).reshape(-1)[: length * (2 * length - 1)]
    return slipped.reshape(length, 2 * length - 1).sum(axis=0)[:length][::-1]
