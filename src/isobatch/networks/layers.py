"""Layers with weights: dense ones and convolutions, which are both a product of matrices."""

from __future__ import annotations

import abc

import equinox as eqx
import jax
from jaxtyping import Array, Float

from isobatch.networks.convolutions import convolve, few_rows, patches


@jax.custom_vjp
def matmul(x: Float[Array, "*B In"], weight: Float[Array, "In Out"]) -> Float[Array, "*B Out"]:
    """x W, with a fast gradient of W on the CPU.

    That gradient is x' g, summed over samples. XLA's CPU backend multiplies by a transpose that exists in memory about
    twice as fast as it contracts leading axes, and the barrier keeps it from turning one into the other.
    """
    return x @ weight


def _matmul_forwards(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return x @ weight, (x, weight)


def _matmul_backwards(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    x, weight = saved
    transposed = jax.lax.optimization_barrier(x.reshape(-1, x.shape[-1]).T)
    return gradient @ weight.T, transposed @ gradient.reshape(-1, gradient.shape[-1])


matmul.defvjp(_matmul_forwards, _matmul_backwards)


class Affine(eqx.Module):
    """rows(x) W + b: what layers with weights have in common, and all that the gradient laboratory knows of them."""

    weight: eqx.AbstractVar[Array]
    bias: eqx.AbstractVar[Float[Array, "Out"]]

    @abc.abstractmethod
    def rows(self, x: Array) -> Array:
        """The input as rows [..., In] that are multiplied by the weights, one for each position of the output."""

    @property
    def matrix(self) -> Float[Array, "In Out"]:
        return self.weight.reshape(-1, self.weight.shape[-1])

    def __call__(self, x: Array) -> Array:
        return matmul(self.rows(x), self.matrix) + self.bias


class Dense(Affine):
    """x W + b."""

    weight: Float[Array, "In Out"]
    bias: Float[Array, "Out"]

    def rows(self, x: Float[Array, "*B In"]) -> Float[Array, "*B In"]:
        return x


class Conv(Affine):
    """A square convolution; height x width x channels."""

    weight: Float[Array, "K K In Out"]
    bias: Float[Array, "Out"]
    stride: int = eqx.field(static=True, default=1)
    padding: int = eqx.field(static=True, default=0)  # zeros on each side

    def rows(self, x: Float[Array, "*B H W In"]) -> Float[Array, "*B H2 W2 KKIn"]:
        return patches(self.weight.shape[0], self.stride, self.padding, x)

    def __call__(self, x: Float[Array, "*B H W In"]) -> Float[Array, "*B H2 W2 Out"]:
        if few_rows(self.weight.shape[0], self.stride, x):
            return super().__call__(x)
        images = x.reshape(-1, *x.shape[-3:])
        out = convolve(self.stride, self.padding, images, self.weight)
        return out.reshape(*x.shape[:-3], *out.shape[1:]) + self.bias
