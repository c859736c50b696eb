"""The optimizers by name, with every constant a hyperparameter that may be traced."""

from __future__ import annotations

from typing import TypeVar

import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from isobatch.learning.micro_batches import Gradient
from isobatch.settings.config import Config, Hypers

Weights = TypeVar("Weights", bound=PyTree)


def make_optimizer(config: Config, hypers: Hypers) -> optax.GradientTransformationExtraArgs:
    """Clip by global norm, then precondition. The caller scales by the learning rate of the iteration.

    One flat vector instead of a tree: a small network's update is dominated by the number of operations.
    """
    clip = optax.clip_by_global_norm(hypers.max_grad_norm)
    match config.optimizer:
        case "adam":
            inner = optax.chain(clip, optax.scale_by_adam(b1=hypers.beta1, b2=hypers.beta2, eps=hypers.optimizer_eps))
        case "adam-micro":
            inner = micro_adam(hypers)
        case "rmsprop":
            precondition = optax.scale_by_rms(decay=hypers.beta2, eps=hypers.optimizer_eps, eps_in_sqrt=False)
            inner = optax.chain(clip, precondition)
        case "sgd":
            inner = optax.chain(clip, optax.identity())
    return optax.flatten(inner)


def updated(
    config: Config, hypers: Hypers, gradient: Gradient, state: optax.OptState, weights: Weights
) -> tuple[Weights, optax.OptState]:
    """What the optimizer makes of a gradient, before the learning rate, and its next state."""
    squares = {} if gradient.squares is None else {"squares": ravel_pytree(gradient.squares)[0]}
    return make_optimizer(config, hypers).update(gradient.mean, state, weights, **squares)


def micro_adam(hypers: Hypers) -> optax.GradientTransformationExtraArgs:
    """Adam whose second moment averages the squares of micro-batch gradients, of vectors.

    m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) (1/K) sum_k g_k^2, update m_hat / (sqrt(v_hat) + eps): Wang &
    Aitchison (2024), https://arxiv.org/abs/2402.18824. The expectation of v, G^2 + S/b, knows the size b of a
    micro-batch and not that of the batch. With one micro-batch it is Adam. Where the norm of g is clipped, every g_k is
    made shorter by the same factor.
    """

    def update(
        gradient: Float[Array, " P"],
        state: optax.ScaleByAdamState,
        params: PyTree = None,
        *,
        squares: Float[Array, " P"],
    ) -> tuple[Float[Array, " P"], optax.ScaleByAdamState]:
        shorter = jnp.minimum(1.0, hypers.max_grad_norm / jnp.linalg.norm(gradient))
        m = hypers.beta1 * state.mu + (1 - hypers.beta1) * shorter * gradient
        v = hypers.beta2 * state.nu + (1 - hypers.beta2) * shorter**2 * squares
        count = state.count + 1
        m_hat, v_hat = m / (1 - hypers.beta1**count), v / (1 - hypers.beta2**count)
        return m_hat / (jnp.sqrt(v_hat) + hypers.optimizer_eps), optax.ScaleByAdamState(count, m, v)

    return optax.GradientTransformationExtraArgs(optax.scale_by_adam().init, update)
