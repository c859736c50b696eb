"""The gradient noise scale as a running estimate (McCandlish 2018, appendix A), by whole environments.

The policy gradient of a part of the environments and that of all of them are two batch sizes; from them follow the
signal |G|^2 and the noise S of one sample, both unbiased (`gradients.noise.two_batch_sizes`). The critical batch size
is about S / |G|^2, a ratio of means: `metrics.critical_batch` averages both over iterations first. Samples of one
environment are correlated, so parts are made of environments, not of steps.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from isobatch.gradients.noise import two_batch_sizes
from isobatch.learning.policy_phase import Batch, total_loss
from isobatch.learning.state import Learner
from isobatch.networks.shards import axes_of, mean, total
from isobatch.settings.config import Config, Hypers
from isobatch.settings.geometry import divisors

MOST_PARTS = 8


def noise_metrics(config: Config, batch: Batch, learner: Learner, hypers: Hypers) -> dict[str, Float[Array, ""]]:
    """Signal and noise of the policy gradient before an iteration's updates; costs one more pass over the batch."""
    shards, across = config.num_shards, axes_of(config.num_shards)
    parts_here = max(
        n for n in divisors(config.num_envs // shards) if n * shards <= max(MOST_PARTS, shards)
    )  # of this shard
    parts = parts_here * shards
    averaged = None if learner.proximal is None else learner.proximal.params

    def gradient(part: Batch) -> Float[Array, " P"]:
        loss = jax.grad(total_loss, argnums=3, has_aux=True)
        tree, _ = loss(config, "policy", part, learner.networks, averaged, hypers)
        return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)])

    def split(leaf: Array) -> Array:
        steps, envs, *shape = leaf.shape
        rows = jnp.moveaxis(leaf.reshape(steps, parts_here, envs // parts_here, *shape), 1, 0)
        return rows.reshape(parts_here, -1, *shape)

    gradients = jax.lax.map(gradient, jax.tree.map(split, batch))
    small, whole = mean((jnp.mean(jnp.sum(gradients**2, axis=1)), jnp.mean(gradients, axis=0)), across)
    big = optax.tree.norm(whole, squared=True)
    signal, of_a_part = two_batch_sizes(small, big, 1, parts)
    return {"noise/signal": signal, "noise/trace": of_a_part * total(jnp.sum(batch.used), across) / parts}
