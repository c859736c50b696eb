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

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from isobatch.laboratory.chains import Chains, true_advantages, window_advantages
from isobatch.laboratory.external_policy import ExternalPolicy
from isobatch.laboratory.partial_results import NOTHING_KEPT, MadePiece, Make, PartialResults, Piece, spans
from isobatch.laboratory.per_sample import at_once, mean_gradient, vanilla
from isobatch.networks.actor_critic import Policy
from isobatch.settings.config import Config
from isobatch.statistics.bootstrap import pair_mean, ratio, resample, unit_mean

Variant = tuple[int, float]  # T and lambda
Samples = tuple[Array, Array, Array]  # observations, actions and advantages [L, C, ...]


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
    watch: Callable[[float], None] = lambda done: None, parts: PartialResults = NOTHING_KEPT,
) -> tuple[dict[Variant, ChainProducts], np.ndarray]:  # fmt: skip
    """Products of each variant, and [C, C] inner products of the true gradients. `watch` gets the part that is done."""
    obs, action = chains.segment.obs, chains.segment.action
    passes = len(variants) + 2
    norms, true = jnp.zeros(0), jnp.zeros(0)

    def make(first: int, last: MadePiece | None) -> Iterator[Piece]:
        for number in range(first, passes):
            within = f"pass-{number}"
            sums = partial(window_products, policy, obs, action, parts=parts, name=within)
            if number == 0:
                yield {"norms": sums(jnp.ones(obs.shape[:2]), 1)[2]}
            elif number == 1:
                yield {"true": sums(true_advantages(config, chains), chains.length)[1]}
            else:
                steps, lam = variants[number - 2]
                advantage = window_advantages(config, chains, steps, lam)
                products, mean, _ = sums(advantage, steps)
                yield {
                    "windows": np.asarray(products, float),
                    "sample": np.asarray(jnp.mean(advantage**2 * norms, axis=0), float),
                    "mean": _products(mean),
                    "bias": _products(mean - true),
                }
            parts.drop(within)

    by_variant = {}
    for number, made in enumerate(parts.pieces("passes", make)):
        if number == 0:
            norms = jnp.asarray(made["norms"])
        elif number == 1:
            true = jnp.asarray(made["true"])
        else:
            by_variant[variants[number - 2]] = ChainProducts(**made, together=reset_together(chains))
        watch((number + 1) / passes)
    return by_variant, _products(true)


WindowProducts = tuple[Float[Array, "C C"], Float[Array, "C P"], Float[Array, "W C"]]


def window_products(
    policy: Policy | ExternalPolicy,
    obs: Float[Array, "L C *S"],
    action: Array,
    advantage: Float[Array, "L C"],
    steps: int,
    parts: PartialResults = NOTHING_KEPT,
    name: str = "pass",
) -> WindowProducts:
    """Mean over windows of G_uw . G_vw, mean gradient of each chain, and |G_uw|^2. `parts` keeps the sums so far."""
    windows = len(obs) // steps
    if isinstance(policy, ExternalPolicy):
        played, acted, advantages = (np.asarray(leaf)[: windows * steps] for leaf in (obs, action, advantage))
        make: Make = partial(policy.window_sums, (played, acted, advantages), steps)
    else:
        make = partial(_window_sums, policy, (obs, action, advantage), steps)
    (sums,) = deque(parts.pieces(name, make, only_last=True), maxlen=1)
    products, total, squares = (jnp.asarray(sums[leaf]) for leaf in WindowSums._fields)
    return (*_over_windows((products, total), windows), squares)


class WindowSums(NamedTuple):
    """Of the windows so far."""

    products: Float[Array, "C C"]
    total: Float[Array, "C P"]
    squares: Float[Array, "W C"]


def _window_sums(policy: Policy, samples: Samples, steps: int, first: int, last: MadePiece | None) -> Iterator[Piece]:
    """Some windows at a time; where the chains of a window are differentiated in turns, some chains of it at a time."""
    count, windows = samples[2].shape[1], len(samples[2]) // steps
    size = sum(leaf.size for leaf in jax.tree.leaves(policy))
    sums = WindowSums(jnp.zeros((count, count)), jnp.zeros((count, size)), jnp.zeros((windows, count)))
    window = turn = 0
    if last is not None:
        sums = WindowSums(*(jnp.asarray(last[leaf]) for leaf in WindowSums._fields))
        window, turn = map(int, last["place"])
    at_a_time = min(count, max(1, at_once(jax.tree.map(lambda leaf: leaf[0, :1], samples)) // steps))
    if at_a_time == count:
        for begin, end in spans(window, windows):
            sums = _add_windows(policy, samples, steps, sums, begin, end)
            yield sums._asdict() | {"place": np.array([end, 0])}
        return
    turns = count // at_a_time
    for current in range(window, windows):
        gradients = jnp.zeros((count, size)) if last is None or not turn else jnp.asarray(last["gradients"])
        for begin, end in spans(turn, turns):
            gradients = _add_chains(policy, samples, steps, at_a_time, current, gradients, begin, end)
            yield sums._asdict() | {"gradients": gradients, "place": np.array([current, end])}
        if rest := count % at_a_time:
            gradients = _add_rest(policy, samples, steps, rest, current, gradients)
        sums, turn = _add_window(sums, gradients, current), 0
        yield sums._asdict() | {"place": np.array([current + 1, 0])}


@partial(jax.jit, static_argnums=2)
def _add_windows(policy: Policy, samples: Samples, steps: int, sums: WindowSums, begin: int, end: int) -> WindowSums:
    """Of windows whose chains are differentiated at the same time."""

    def add(window: Array, sums: WindowSums) -> WindowSums:
        by_chain = _window(samples, steps, window)
        return _added(
            sums,
            jax.lax.map(partial(mean_gradient, vanilla, policy), by_chain, batch_size=sums.products.shape[0]),
            window,
        )

    return jax.lax.fori_loop(begin, end, add, sums)


@partial(jax.jit, static_argnums=(2, 3))
def _add_chains(
    policy: Policy, samples: Samples, steps: int, at_a_time: int, window: int, gradients: Float[Array, "C P"],
    begin: int, end: int,
) -> Float[Array, "C P"]:  # fmt: skip
    """Mean gradients of a window's chains, from turn `begin` to `end` of so many at a time."""
    by_chain = _window(samples, steps, window)

    def add(turn: Array, gradients: Array) -> Array:
        first = turn * at_a_time
        chains = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, at_a_time), by_chain)
        mine = jax.vmap(partial(mean_gradient, vanilla, policy))(chains)
        return jax.lax.dynamic_update_slice_in_dim(gradients, mine, first, 0)

    return jax.lax.fori_loop(begin, end, add, gradients)


@partial(jax.jit, static_argnums=(2, 3))
def _add_rest(
    policy: Policy, samples: Samples, steps: int, rest: int, window: int, gradients: Float[Array, "C P"]
) -> Float[Array, "C P"]:
    """Those of the last chains, which do not fill a turn."""
    chains = jax.tree.map(lambda leaf: leaf[-rest:], _window(samples, steps, window))
    return gradients.at[-rest:].set(jax.vmap(partial(mean_gradient, vanilla, policy))(chains))


@jax.jit
def _add_window(sums: WindowSums, gradients: Float[Array, "C P"], window: int) -> WindowSums:
    return _added(sums, gradients, window)


def _added(sums: WindowSums, gradients: Float[Array, "C P"], window: Array | int) -> WindowSums:
    products = gradients @ gradients.T
    squares = sums.squares.at[window].set(jnp.diagonal(products))
    return WindowSums(sums.products + products, sums.total + gradients, squares)


def _window(samples: Samples, steps: int, window: Array | int) -> Samples:
    """By chain, [C, T, ...]."""
    return jax.tree.map(
        lambda leaf: jnp.moveaxis(jax.lax.dynamic_slice_in_dim(leaf, window * steps, steps), 1, 0), samples
    )


@partial(jax.jit, static_argnums=1)
def _over_windows(sums: tuple[Array, Array], windows: int) -> tuple[Array, Array]:
    return sums[0] / windows, sums[1] / windows


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
