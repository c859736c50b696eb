"""The gradient noise scale as a running estimate (McCandlish 2018, appendix A), by whole environments.

With the policy gradient G_s of a part of the environments (B_s samples) and G_b of all of them (B_b samples):
    |G|^2 = (B_b |G_b|^2 - B_s |G_s|^2) / (B_b - B_s)        the signal,
    S     = (|G_s|^2 - |G_b|^2) / (1/B_s - 1/B_b)            the noise of one sample, tr Cov,
both unbiased. The critical batch size is about S / |G|^2, a ratio of means: `metrics.critical_batch` averages both
over iterations first. Samples of one environment are correlated, so parts are made of environments, not of steps.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from isobatch.algorithms.policy_phase import Batch, total_loss
from isobatch.config import Config, Hypers
from isobatch.geometry import divisors
from isobatch.state import Learner

MOST_PARTS = 8


def noise_metrics(config: Config, batch: Batch, learner: Learner, hypers: Hypers) -> dict[str, Float[Array, ""]]:
    """Signal and noise of the policy gradient before an iteration's updates; costs one more pass over the batch."""
    parts = max(n for n in divisors(config.num_envs) if n <= MOST_PARTS)
    averaged = None if learner.proximal is None else learner.proximal.params

    def gradient(part: Batch) -> Float[Array, " P"]:
        loss = jax.grad(total_loss, argnums=3, has_aux=True)
        tree, _ = loss(config, "policy", part, learner.networks, averaged, hypers)
        return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)])

    def split(leaf: Array) -> Array:
        steps, envs, *shape = leaf.shape
        rows = jnp.moveaxis(leaf.reshape(steps, parts, envs // parts, *shape), 1, 0)
        return rows.reshape(parts, -1, *shape)

    gradients = jax.lax.map(gradient, jax.tree.map(split, batch))
    small, big = jnp.mean(jnp.sum(gradients**2, axis=1)), optax.tree.norm(jnp.mean(gradients, axis=0), squared=True)
    samples = config.geometry.iteration_batch
    signal, trace = signal_and_noise(small, big, samples / parts, samples)
    return {"noise/signal": signal, "noise/trace": trace}


def signal_and_noise(
    small: Float[Array, ""], big: Float[Array, ""], small_batch: float, big_batch: float
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """|G|^2 and S from the mean squared norms of gradients at two batch sizes."""
    signal = (big_batch * big - small_batch * small) / (big_batch - small_batch)
    return signal, (small - big) / (1 / small_batch - 1 / big_batch)
