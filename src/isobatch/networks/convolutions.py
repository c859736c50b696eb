"""Convolutions that are fast on a CPU, inside loops and for several seeds at once.

XLA's CPU backend has one fast convolution: the plain one. Inside a loop its gradients are not, as JAX writes them, and
neither is a convolution with a weight for each seed: both were 10 to 50 times slower here. So the gradients are written
as what is fast, a plain convolution and a product of matrices, and seeds take turns. Small ones are a product of
matrices altogether (`patches`), which XLA can fuse with what is around.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

MATMUL_NUMBERS = 2**21  # in the rows of a convolution, below which it is one product of matrices
CACHED_NUMBERS = 2**20  # numbers in rows that stay in the cache of a core


def few_rows(size: int, stride: int, x: Float[Array, "*B H W In"]) -> bool:
    """Whether the rows of these images are so few that they are best multiplied at once."""
    return x.size * size**2 // stride**2 < MATMUL_NUMBERS


def patches(size: int, stride: int, padding: int, x: Float[Array, "*B H W In"]) -> Float[Array, "*B H2 W2 KKIn"]:
    """The part of the image that each output of a convolution sees, as a row: shifted copies, side by side."""
    if padding:
        x = jnp.pad(x, [(0, 0)] * (x.ndim - 3) + [(padding, padding), (padding, padding), (0, 0)])
    height, width = x.shape[-3] - size + 1, x.shape[-2] - size + 1
    shifts = [x[..., i : i + height : stride, j : j + width : stride, :] for i in range(size) for j in range(size)]
    return jnp.concatenate(shifts, axis=-1)


def convolve(
    stride: int, padding: int, x: Float[Array, "B H W In"], weight: Float[Array, "K K In Out"]
) -> Float[Array, "B H2 W2 Out"]:
    """The convolution of images with zeros around them."""
    on_cpu = jax.default_backend() == "cpu"
    return (_convolve_in_turn if on_cpu else _plain)(stride, padding, x, weight)


def _plain(stride: int, padding: int, x: Array, weight: Array) -> Array:
    sides = [(padding, padding)] * 2
    return jax.lax.conv_general_dilated(x, weight, (stride,) * 2, sides, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def in_turn(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """The function, with seeds (vmap) one after another: each of them uses all cores."""
    single = jax.custom_batching.custom_vmap(function)

    @single.def_vmap
    def rule(size: int, batched: list[bool], *args: Array) -> tuple[Array, bool]:
        of_seed = [[arg[i] if mapped else arg for arg, mapped in zip(args, batched, strict=True)] for i in range(size)]
        return jnp.stack([single(*args) for args in of_seed]), True

    return single


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _convolve_in_turn(stride: int, padding: int, x: Array, weight: Array) -> Array:
    return in_turn(partial(_plain, stride, padding))(x, weight)


def _forwards(stride: int, padding: int, x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return _convolve_in_turn(stride, padding, x, weight), (x, weight)


def _backwards(stride: int, padding: int, saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    x, weight = saved
    to_images = in_turn(partial(_to_images, stride, padding, x.shape[-3:]))
    to_weight = in_turn(partial(_to_weight, weight.shape[0], stride, padding))
    return to_images(weight, gradient), to_weight(x, gradient)


_convolve_in_turn.defvjp(_forwards, _backwards)


def _to_images(stride: int, padding: int, image: tuple[int, ...], weight: Array, gradient: Array) -> Array:
    """The gradient of the images: with stride 1 a plain convolution, else that of the rows."""
    size = weight.shape[0]
    if stride == 1:
        return _plain(1, size - 1 - padding, gradient, jnp.flip(weight, (0, 1)).swapaxes(2, 3))
    blank = jnp.zeros((len(gradient), *image), gradient.dtype)
    _, pull = jax.vjp(partial(patches, size, stride, padding), blank)
    return pull(gradient @ weight.reshape(-1, weight.shape[-1]).T)[0]


def _to_weight(size: int, stride: int, padding: int, x: Array, gradient: Array) -> Array:
    """The gradient of the weights: a product of matrices, for so few images at a time that their rows stay cached."""
    inputs, outputs = x.shape[-1], gradient.shape[-1]
    rows_of_image = gradient[0, ..., 0].size * size**2 * inputs
    largest = min(len(x), max(1, CACHED_NUMBERS // rows_of_image))
    count = next(n for n in range(largest, 0, -1) if len(x) % n == 0)

    def add(total: Array, images: tuple[Array, Array]) -> tuple[Array, None]:
        rows = patches(size, stride, padding, images[0])
        return total + images[1].reshape(-1, outputs).T @ rows.reshape(-1, rows.shape[-1]), None

    chunks = jax.tree.map(lambda leaf: leaf.reshape(-1, count, *leaf.shape[1:]), (x, gradient))
    total, _ = jax.lax.scan(add, jnp.zeros((outputs, size**2 * inputs), x.dtype), chunks)
    return total.T.reshape(size, size, inputs, outputs)
