"""Variance, bias and error of the policy gradient at every N x T of one budget, from one set of chains.

A rollout of T steps is a window of a chain, and the windows of one chain are all the rollouts of T steps that training
would have made of it: their advantages are estimated from the window alone. With G_uw the mean gradient of window w of
chain u, chains u and v independent of each other but reset at the same time, and mu = E[G_uw] over both:
    V(T) = E|G_uw|^2 - |mu|^2                    variance of one environment's part of a batch
    C(T) = E[G_uw . G_vw] - |mu|^2               covariance of two environments: they are equally far from their reset
    Var(G_B) = V/N + (1 - 1/N) C                 all environments reset together
             = (V - C)/N                         staggered: they are spread evenly over the time limit (N > 1)
    bias     = E[G_uw] - E[G_true]               G_true uses Monte-Carlo returns on the same steps
|mu|^2 and |bias|^2 are products of different chains, so they carry no noise term. The staggered formula takes the mean
over the phases of N environments for the mean over all phases: good for many environments, rough for two or three.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from isobatch.laboratory.chains import Chains, true_advantages, window_advantages
from isobatch.laboratory.external_policy import ExternalPolicy
from isobatch.laboratory.per_sample import at_once, mean_gradient, vanilla
from isobatch.networks.actor_critic import Policy
from isobatch.settings.config import Config
from isobatch.statistics.bootstrap import pair_mean, ratio, resample, unit_mean

Variant = tuple[int, float]  # T and lambda


@dataclass(frozen=True)
class ChainProducts:
    """What one (T, lambda) comes to, chain by chain: all that the estimates below need."""

    windows: np.ndarray  # [C, C] mean over windows of G_uw . G_vw
    sample: np.ndarray  # [C] mean |g_i|^2
    mean: np.ndarray  # [C, C] inner products of the chains' mean gradients
    bias: np.ndarray  # [C, C] the same of their differences from the true gradients
    together: np.ndarray  # [C, C] whether two different chains were reset at the same time


def measure(
    config: Config, policy: Policy | ExternalPolicy, chains: Chains, variants: list[Variant],
    watch: Callable[[float], None] = lambda done: None,
) -> tuple[dict[Variant, ChainProducts], np.ndarray]:  # fmt: skip
    """Products of each variant, and [C, C] inner products of the true gradients. `watch` gets the part that is done."""
    obs, action = chains.segment.obs, chains.segment.action
    together = reset_together(chains)
    passes = len(variants) + 2
    norms = jax.block_until_ready(window_products(policy, obs, action, jnp.ones(obs.shape[:2]), 1)[2])
    watch(1 / passes)
    true = window_products(policy, obs, action, true_advantages(config, chains), chains.length)[1]
    by_variant = {}
    for done, (steps, lam) in enumerate(variants):
        advantage = window_advantages(config, chains, steps, lam)
        products, mean, _ = window_products(policy, obs, action, advantage, steps)
        by_variant[steps, lam] = ChainProducts(
            windows=np.asarray(products, float),
            sample=np.asarray(jnp.mean(advantage**2 * norms, axis=0), float),
            mean=_products(mean),
            bias=_products(mean - true),
            together=together,
        )
        watch((done + 3) / passes)
    return by_variant, _products(true)


WindowProducts = tuple[Float[Array, "C C"], Float[Array, "C P"], Float[Array, "W C"]]


def window_products(
    policy: Policy | ExternalPolicy,
    obs: Float[Array, "L C *S"],
    action: Array,
    advantage: Float[Array, "L C"],
    steps: int,
) -> WindowProducts:
    """Mean over windows of G_uw . G_vw, mean gradient of each chain, and |G_uw|^2."""
    if isinstance(policy, ExternalPolicy):
        parts = policy.window_products(np.asarray(obs), np.asarray(action), np.asarray(advantage), steps)
        products, total, squares = map(jnp.asarray, parts)
        return products, total, squares
    return _window_products(policy, obs, action, advantage, steps)


@partial(jax.jit, static_argnums=4)
def _window_products(
    policy: Policy, obs: Float[Array, "L C *S"], action: Array, advantage: Float[Array, "L C"], steps: int
) -> WindowProducts:
    count, windows = obs.shape[1], obs.shape[0] // steps
    size = sum(leaf.size for leaf in jax.tree.leaves(policy))

    def window(sums: tuple[Array, Array], samples: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], Array]:
        by_chain = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), samples)
        chains = min(count, max(1, at_once(jax.tree.map(lambda leaf: leaf[0], samples)) // steps))
        gradients = jax.lax.map(partial(mean_gradient, vanilla, policy), by_chain, batch_size=chains)
        products = gradients @ gradients.T
        return (sums[0] + products, sums[1] + gradients), jnp.diagonal(products)

    cut = jax.tree.map(lambda leaf: leaf.reshape(windows, steps, *leaf.shape[1:]), (obs, action, advantage))
    nothing = (jnp.zeros((count, count)), jnp.zeros((count, size)))
    (products, total), squares = jax.lax.scan(window, nothing, cut)
    return products / windows, total / windows, squares


def reset_together(chains: Chains) -> np.ndarray:
    """[C, C]: whether two different chains were reset at the same time."""
    group = np.arange(chains.count) * chains.groups // chains.count
    return (group[:, None] == group) & ~np.eye(chains.count, dtype=bool)


def _products(vectors: Float[Array, "C P"]) -> np.ndarray:
    return np.asarray(vectors @ vectors.T, float)


@dataclass(frozen=True)
class Measured:
    """N environments x T steps under one lambda: the estimates, each as its value followed by bootstrap resamples."""

    num_envs: int
    num_steps: int
    gae_lambda: float
    variance: np.ndarray  # of the batch gradient, the trace of its covariance
    individual: np.ndarray  # the part of it that independent samples would have
    within: np.ndarray  # the part by covariance within environments
    across: np.ndarray  # and between them
    squared_bias: np.ndarray
    signal: np.ndarray  # |E[G_B]|^2
    effective_samples: np.ndarray  # independent samples with the same variance
    critical_batch: np.ndarray  # samples of independent batches like this one whose noise equals the signal

    @property
    def error(self) -> np.ndarray:
        """Mean squared error of the batch gradient against the true one.

        The squared bias is estimated without its noise and can fall below zero, where it counts as none.
        """
        return self.variance + np.maximum(self.squared_bias, 0.0)


def at_geometry(
    products: ChainProducts, num_envs: int, variant: Variant, staggered: bool, weights: np.ndarray
) -> Measured:
    """The formulas of this module's docstring, for every row of `weights` (see `weights_of`)."""
    steps, lam = variant
    signal = squared_mean(products.mean, weights, products.together)
    one_environment = unit_mean(np.diagonal(products.windows), weights) - signal
    shared = pair_mean(products.windows, weights, products.together) - signal
    sample = unit_mean(products.sample, weights) - signal
    spread = staggered and num_envs > 1
    across = -shared / num_envs if spread else (1 - 1 / num_envs) * shared
    variance = one_environment / num_envs + across
    individual = sample / (num_envs * steps)
    return Measured(
        num_envs=num_envs,
        num_steps=steps,
        gae_lambda=lam,
        variance=variance,
        individual=individual,
        within=one_environment / num_envs - individual,
        across=across,
        squared_bias=squared_mean(products.bias, weights, products.together),
        signal=signal,
        effective_samples=ratio(sample, variance, otherwise=np.inf),
        critical_batch=ratio(num_envs * steps * variance, signal, otherwise=np.inf),
    )


def squared_mean(products: np.ndarray, weights: np.ndarray, together: np.ndarray) -> np.ndarray:
    """|E x|^2 from inner products of different chains, where chains come in groups of equal size.

    Two independent draws are of one group 1/groups of the time, which is more often than two of these chains are.
    """
    apart = ~together & ~np.eye(len(together), dtype=bool)
    if not apart.any():
        return pair_mean(products, weights)
    share = (together[0].sum() + 1) / len(together)
    within, between = (pair_mean(products, weights, which) for which in (together, apart))
    return share * within + (1 - share) * between


def weights_of(chains: int, seed: int = 0) -> np.ndarray:
    """[1 + R, C]: every chain once, then resamples of whole chains."""
    return np.concatenate([np.ones((1, chains)), resample(chains, seed=seed)])
