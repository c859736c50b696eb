"""Variance, bias and error of the policy gradient at every N x T of one budget, from one set of chains.

A rollout of T steps is a window of a chain, and the windows of one chain are all the rollouts of T steps that training
would have made of it. All T and lambda share the scores grad log pi: g_i = -A_i(T, lambda) grad log pi_i, so the inner
products of the scores, computed once for a pair of chains, give those of the gradients by two multiplications.

With G_w the mean gradient of a window and mu = E[G_w]:
    V(T) = E|G_w|^2 - |mu|^2                     variance of one environment's part of a batch
    C(T) = E[G_w . G'_w] - |mu|^2                its covariance with another environment that was reset at the same time
    Var(G_B) = V/N + (1 - 1/N) C                 all environments reset together
             = (V - C)/N                         staggered: they are spread evenly over the time limit (N > 1)
    bias     = E[G_w] - E[G_true]                G_true uses Monte-Carlo returns on the same steps
|mu|^2 and |bias|^2 are products of different pairs of chains, so they carry no noise term.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from isobatch import losses
from isobatch.config import Config
from isobatch.gradients.bootstrap import Estimate, pair_mean, resample, unit_mean
from isobatch.gradients.chains import Chains, true_advantages, window_advantages
from isobatch.gradients.gram import gram
from isobatch.networks import Policy

Variant = tuple[int, float]  # T and lambda


def score_losses(policy: Policy, samples: tuple[Array, Array]) -> Float[Array, " n"]:
    """Losses whose gradients are minus the scores."""
    obs, action = samples
    log_prob = policy(obs).log_prob(action)
    return losses.policy_gradient(log_prob, jnp.ones_like(log_prob))


def weighted_losses(policy: Policy, samples: tuple[Array, Array, Array]) -> Float[Array, " n"]:
    """The vanilla policy gradient of samples with their advantages."""
    obs, action, advantage = samples
    return losses.policy_gradient(policy(obs).log_prob(action), advantage)


@dataclass(frozen=True)
class Moments:
    """What one (T, lambda) comes to, pair by pair: all that the estimates below need."""

    window: np.ndarray  # [U] mean |G_w|^2
    partner: np.ndarray  # [U] mean G_w . G'_w
    sample: np.ndarray  # [U] mean |g_i|^2
    mean: np.ndarray  # [U, U] inner products of the pairs' mean gradients
    bias: np.ndarray  # [U, U] the same of their differences from the true gradients


def measure(
    config: Config,
    policy: Policy,
    chains: Chains,
    variants: list[Variant],
    watch: Callable[[float], None] = lambda done: None,
) -> tuple[dict[Variant, Moments], np.ndarray]:
    """Moments of each variant, and [U, U] inner products of the true gradients. `watch` gets the part that is done."""
    true = true_advantages(config, chains)
    advantages = [window_advantages(config, chains, *variant) for variant in variants]
    steps = tuple(steps for steps, _ in variants)
    obs, action = (chains.by_pair(leaf) for leaf in (chains.segment.obs, chains.segment.action))
    by_pair = jnp.stack([chains.by_pair(a) for a in advantages])  # [V, U, 2, L]
    reduce = jax.jit(partial(_pair_moments, steps))
    sums = []
    for pair in range(chains.pairs):
        sums.append(jax.tree.map(np.asarray, reduce(policy, obs[pair], action[pair], by_pair[:, pair])))
        watch((pair + 1) / (chains.pairs + len(variants) + 1))
    window, partner, sample = (np.stack(x).astype(float) for x in zip(*sums, strict=True))
    gradients = jax.jit(partial(pair_gradients, policy))
    true_gradients = gradients(obs, action, chains.by_pair(true))
    moments = {}
    for i, variant in enumerate(variants):
        mine = gradients(obs, action, by_pair[i])
        difference = mine - true_gradients
        moments[variant] = Moments(
            window[:, i], partner[:, i], sample[:, i], _products(mine), _products(difference)
        )
        watch((chains.pairs + i + 2) / (chains.pairs + len(variants) + 1))
    return moments, _products(true_gradients)


def _pair_moments(
    steps: tuple[int, ...], policy: Policy, obs: Array, action: Array, advantages: Float[Array, "V 2 L"]
) -> tuple[Array, Array, Array]:
    """Mean |G_w|^2, G_w . G'_w and |g_i|^2 of one pair, for each variant."""
    length = advantages.shape[-1]
    flat = tuple(leaf.reshape(2 * length, *leaf.shape[2:]) for leaf in (obs, action))
    scores = gram(score_losses, policy, flat).reshape(2, length, 2, length)

    def one(steps: int, advantage: Float[Array, "2 L"]) -> tuple[Array, Array, Array]:
        windows = length // steps
        products = scores * advantage[:, :, None, None] * advantage
        # Windows on both axes: [2, W, T, 2, W, T], of which the same window is needed.
        sums = jnp.sum(products.reshape(2, windows, steps, 2, windows, steps), axis=(2, 5))
        same = jnp.diagonal(sums, axis1=1, axis2=3) / steps**2  # [2, 2, W]
        squares = jnp.diagonal(products.reshape(2 * length, 2 * length))
        return (same[0, 0] + same[1, 1]).mean() / 2, same[0, 1].mean(), squares.mean()

    each = [one(steps, advantage) for steps, advantage in zip(steps, advantages, strict=True)]
    window, partner, sample = (jnp.stack(x) for x in zip(*each, strict=True))
    return window, partner, sample


def pair_gradients(policy: Policy, obs: Array, action: Array, advantages: Float[Array, "U 2 L"]) -> Float[Array, "U P"]:
    """The mean gradient of each pair's samples."""

    def one(pair: tuple[Array, Array, Array]) -> Array:
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), pair)
        return ravel_pytree(jax.grad(lambda net: jnp.mean(weighted_losses(net, flat)))(policy))[0]

    return jax.lax.map(one, (obs, action, advantages))


def _products(vectors: Float[Array, "U P"]) -> np.ndarray:
    return np.asarray(vectors @ vectors.T, float)


@dataclass(frozen=True)
class Geometry:
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
    critical_batch: np.ndarray  # samples of this geometry's kind at which the noise equals the signal

    @property
    def error(self) -> np.ndarray:
        """Mean squared error of the batch gradient against the true one."""
        return self.variance + self.squared_bias

    @property
    def name(self) -> str:
        return f"{self.num_envs}x{self.num_steps}"


def geometry(moments: Moments, num_envs: int, variant: Variant, staggered: bool, weights: np.ndarray) -> Geometry:
    """The formulas of this module's docstring, for every row of `weights` (see `weights_of`)."""
    steps, lam = variant
    signal = pair_mean(moments.mean, weights)
    own, shared, sample = (
        unit_mean(x, weights) - signal for x in (moments.window, moments.partner, moments.sample)
    )
    spread = staggered and num_envs > 1
    across = -shared / num_envs if spread else (1 - 1 / num_envs) * shared
    variance = own / num_envs + across
    individual = sample / (num_envs * steps)
    with np.errstate(divide="ignore", invalid="ignore"):
        critical = np.where(signal > 0, num_envs * steps * variance / signal, np.inf)
        effective = np.where(variance > 0, sample / variance, np.nan)
    return Geometry(
        num_envs=num_envs,
        num_steps=steps,
        gae_lambda=lam,
        variance=variance,
        individual=individual,
        within=own / num_envs - individual,
        across=across,
        squared_bias=pair_mean(moments.bias, weights),
        signal=signal,
        effective_samples=effective,
        critical_batch=critical,
    )


def weights_of(pairs: int, resamples: int = 1000, seed: int = 0) -> np.ndarray:
    """[1 + R, U]: every pair once, then resamples of whole pairs."""
    return np.concatenate([np.ones((1, pairs)), resample(pairs, resamples, seed)])
