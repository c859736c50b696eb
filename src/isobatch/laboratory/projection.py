"""Inner products by a random projection: for networks or samples too large for the exact ones.

With k directions r of independent signs, z_i = (g_i . r_1, ..., g_i . r_k)/sqrt(k), and E[z_i . z_j] = g_i . g_j with
    Var(z_i . z_j) = (|g_i|^2 |g_j|^2 + (g_i . g_j)^2 - 2 sum_p g_ip^2 g_jp^2) / k
(Achlioptas 2003). g_i . r is a directional derivative: one forward pass for all samples, whatever the network.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from isobatch.laboratory.layers import Losses, Plain, swap_layers

Seed = int | Int[Array, ""]


def project(losses: Losses, network: PyTree, samples: PyTree, directions: int, seed: Seed = 0) -> Float[Array, "n k"]:
    """z [n, k]: per-sample gradients in k random directions."""
    leaves, structure = jax.tree.flatten(network)

    def along(key: Array) -> Float[Array, " n"]:
        keys = jax.random.split(key, len(leaves))
        signs = [jax.random.rademacher(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=True)]
        return directional(losses, network, samples, jax.tree.unflatten(structure, signs))

    keys = jax.random.split(jax.random.key(seed), directions)
    return jax.lax.map(along, keys).T / jnp.sqrt(directions)


def directional(losses: Losses, network: PyTree, samples: PyTree, direction: PyTree) -> Float[Array, " n"]:
    """g_n . direction, a pytree like the network, for every sample."""

    def per_sample(net: PyTree) -> Array:
        return losses(swap_layers(net, lambda _, layer: Plain(layer)), samples)

    return jax.jvp(per_sample, (network,), (direction,))[1]


def projected_gram(
    losses: Losses, network: PyTree, samples: PyTree, directions: int, seed: Seed = 0
) -> tuple[Float[Array, "n n"], Float[Array, "n n"]]:
    """g_i . g_j by k random directions of signs, for networks or samples too large for the exact ones.

    z_i = (g_i . r_1, ..., g_i . r_k)/sqrt(k) has E[z_i . z_j] = g_i . g_j: Achlioptas 2003,
    https://doi.org/10.1016/S0022-0000(03)00025-4.

    Args:
        losses: (network, samples) -> losses [n].
        network: a pytree of parameters.
        samples: a pytree of arrays [n, ...].
        directions: k.
        seed: of the directions.

    Returns:
        The inner products [n, n], and a standard error of each [n, n] that is never too small on average.

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> def losses(weights, samples):  # [P], [n, P] -> [n]
        ...     return samples @ weights
        >>> weights, samples = jnp.zeros(2), jnp.array([[1.0, 0.0], [1.0, 2.0]])
        >>> products, errors = ib.laboratory.projected_gram(losses, weights, samples, directions=8)
        >>> products.shape, round(float(products[0, 0]), 3)  # exact where a gradient has one number, whatever its sign
        ((2, 2), 1.0)
    """
    z = project(losses, network, samples, directions, seed)
    products = z @ z.T
    squares = jnp.diagonal(products)
    return products, jnp.sqrt((squares[:, None] * squares[None, :] + products**2) / directions)
