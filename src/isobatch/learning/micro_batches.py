"""The gradient of a minibatch, and for `adam-micro` the mean square of the gradients of its micro-batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from isobatch.networks.actor_critic import Networks
from isobatch.settings.config import Config

Metrics = dict[str, Float[Array, ""]]
Weights = TypeVar("Weights", bound=Networks)
Samples = TypeVar("Samples", bound=eqx.Module)


class Gradient(NamedTuple):
    """What an optimizer gets. Means over shards are means of both."""

    mean: PyTree
    squares: PyTree | None = None  # parameter by parameter; None unless the optimizer asks for them


def gradient_of(
    config: Config,
    loss: Callable[[Weights, Samples], tuple[Float[Array, ""], Metrics]],
    networks: Weights,
    batch: Samples,
) -> tuple[Gradient, Metrics]:
    """The gradient of a mean over B samples, and the metrics of the loss, which are means too.

    With `adam-micro` the samples are cut, in their order, into K = B / b micro-batches, b = `micro_batch_size`:
    g = (1/K) sum_k g_k and squares = (1/K) sum_k g_k^2 (Wang & Aitchison 2024, https://arxiv.org/abs/2402.18824). One
    after another: all at once would take K times the memory of the parameters.
    """
    derivative = jax.grad(loss, has_aux=True)
    if config.optimizer != "adam-micro":
        gradient, metrics = derivative(networks, batch)
        return Gradient(gradient), metrics

    def add(total: tuple[Gradient, Metrics], samples: Samples) -> tuple[tuple[Gradient, Metrics], None]:
        gradient, metrics = derivative(networks, samples)
        return jax.tree.map(jnp.add, total, (Gradient(gradient, jax.tree.map(jnp.square, gradient)), metrics)), None

    parts = jax.tree.map(lambda leaf: leaf.reshape(-1, config.micro_batch_size, *leaf.shape[1:]), batch)
    count = len(jax.tree.leaves(parts)[0])
    first = jax.tree.map(lambda leaf: leaf[0], parts)
    shapes = jax.eval_shape(derivative, networks, first)
    gradient, metrics = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    total, _ = jax.lax.scan(add, (Gradient(gradient, gradient), metrics), parts)
    return jax.tree.map(lambda leaf: leaf / count, total)
