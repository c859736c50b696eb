"""Per-sample gradients, one row each, for any network; and the losses of a policy that the laboratory takes them of.

Convention: the gradient of a sample is that of its own loss, unscaled, so that the mean over a batch is the gradient of
the batch's mean loss.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from isobatch.laboratory.layers import Losses, in_pieces, num_samples
from isobatch.learning.losses import policy_gradient
from isobatch.learning.policy_phase import Batch, policy_loss
from isobatch.networks.actor_critic import Policy
from isobatch.settings.config import Config, Hypers

MOST_SAMPLES = 8192  # that are differentiated at the same time: what a network keeps of each of them takes memory
MOST_NUMBERS = 2**21  # in them: a convolution keeps some hundred times as many as there are in its image


def vanilla(policy: Policy, samples: tuple[Array, Array, Array]) -> Float[Array, " n"]:
    """-A log pi(a|s), whose gradients g_i are those of the policy gradient.

    Sutton et al. 1999, https://papers.nips.cc/paper/1713; the formula is `isobatch.losses.policy_gradient`.

    Args:
        policy: observations -> a distribution, such as `networks.policy`.
        samples: observations [n, ...], actions [n, ...] and advantages [n].

    Returns:
        Losses [n].

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> networks = ib.make_actor_critic(ib.preset("ppo", "CartPole-v1"), (4,), ib.Discrete(2), seed=0)
        >>> samples = jnp.zeros((3, 4)), jnp.array([0, 1, 1]), jnp.array([1.0, -1.0, 0.0])
        >>> ib.laboratory.vanilla(networks.policy, samples).shape
        (3,)
    """
    obs, action, advantage = samples
    return policy_gradient(policy(obs).log_prob(action), advantage)


def full(config: Config, hypers: Hypers, averaged: Policy | None = None) -> Losses:
    """The objective of a run at any policy: ratios, clipping or KL penalty, around the proximal policy of its batch.

    Its formulas are those of `isobatch.losses`, with their sources.

    Args:
        config: whose objective, importance and proximal policy are taken.
        hypers: the coefficients.
        averaged: the averaged proximal policy, where the objective has one.

    Returns:
        A function (policy, batch) -> losses [n], for `per_sample_gradients` and `gram`.

    Example:
        >>> import isobatch as ib
        >>> config = ib.preset("ppo", "CartPole-v1")
        >>> callable(ib.laboratory.full(config, config.hypers))
        True
    """

    def of(policy: Policy, batch: Batch) -> Float[Array, " n"]:
        return policy_loss(config, batch, policy(batch.obs), averaged, hypers)[0]

    return of


def per_sample_gradients(
    losses: Losses, network: PyTree, samples: PyTree, microbatch: int = 256
) -> Float[Array, "n P"]:
    """g_i = d loss_i / d parameters of single samples, one row each.

    Args:
        losses: (network, samples) -> losses [n].
        network: a pytree of P parameters.
        samples: a pytree of arrays [n, ...].
        microbatch: samples that are differentiated at the same time.

    Returns:
        Gradients [n, P].

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> def losses(weights, samples):  # [P], [n, P] -> [n]
        ...     return samples @ weights
        >>> weights, samples = jnp.zeros(2), jnp.array([[1.0, 0.0], [1.0, 2.0]])
        >>> ib.laboratory.per_sample_gradients(losses, weights, samples).tolist()
        [[1.0, 0.0], [1.0, 2.0]]
    """

    def gradient(sample: PyTree) -> Float[Array, " P"]:
        alone = jax.tree.map(lambda leaf: leaf[None], sample)
        return ravel_pytree(jax.grad(lambda net: losses(net, alone)[0])(network))[0]

    return jax.lax.map(gradient, samples, batch_size=min(microbatch, num_samples(samples)))


def at_once(samples: PyTree) -> int:
    """Samples like these that are differentiated at the same time."""
    numbers = sum(math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(samples))
    return max(1, min(MOST_SAMPLES, MOST_NUMBERS // numbers))


def mean_gradient(losses: Losses, network: PyTree, samples: PyTree) -> Float[Array, " P"]:
    """The gradient of the mean loss, [P]; of many large samples piece by piece, to bound the memory."""
    count, most = num_samples(samples), at_once(samples)
    pieces = -(-count // most)
    if pieces == 1:
        return ravel_pytree(jax.grad(lambda net: jnp.mean(losses(net, samples)))(network))[0]
    size = -(-count // pieces)
    weight = jnp.where(jnp.arange(pieces * size) < count, 1 / count, 0.0).reshape(pieces, size)

    def add(total: Array, piece: tuple[PyTree, Array]) -> tuple[Array, None]:
        part, weight = piece
        gradient = jax.grad(lambda net: jnp.sum(weight * losses(net, part)))(network)
        return total + ravel_pytree(gradient)[0], None

    nothing = jnp.zeros(sum(leaf.size for leaf in jax.tree.leaves(network)))
    return jax.lax.scan(add, nothing, (in_pieces(samples, pieces, size), weight))[0]
