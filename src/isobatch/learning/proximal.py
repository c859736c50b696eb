"""The proximal policy as an exponentially weighted moving average of weights (paper, section 4 and appendix A)."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree


class Ewma(eqx.Module):
    """The debiased average theta_prox = sum_i beta^(n-i) theta_i / sum_i beta^(n-i) over gradient steps i.

    Hilton, Cobbe & Schulman 2021, section 4 and appendix A, https://arxiv.org/abs/2110.00641. `optax.ema` debiases
    towards zero and `optax.incremental_update` not at all: neither is this average. `params` is any pytree of arrays;
    its center of mass lies 1/(1 - beta) - 1 gradient steps back, once there were many.

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> average = ib.Ewma.start(jnp.array(0.0)).update(jnp.array(3.0), beta=0.5)
        >>> float(average.params), float(average.weight)
        (2.0, 1.5)
    """

    params: PyTree
    weight: Float[Array, ""]  # sum_i beta^(n-i)
    age: Float[Array, ""]  # mean age of the averaged weights, in gradient steps

    @classmethod
    def start(cls, params: PyTree) -> Ewma:
        return cls(params, jnp.ones(()), jnp.zeros(()))

    def update(self, params: PyTree, beta: Float[Array, ""] | float) -> Ewma:
        """w' = beta w + 1;  theta_prox <- (beta w / w') theta_prox + theta / w'."""
        weight = beta * self.weight + 1
        keep = beta * self.weight / weight
        averaged = jax.tree.map(lambda old, new: keep * old + new / weight, self.params, params)
        return Ewma(averaged, weight, keep * (self.age + 1))
