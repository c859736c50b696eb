"""Convolutions: the three ways to compute them agree, with their gradients, for one seed and for several."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from isobatch.networks import convolutions
from isobatch.networks.layers import Conv

pytestmark = pytest.mark.usefixtures("float64")

SHAPES = [(3, 1, 1), (3, 1, 0), (4, 2, 0), (3, 2, 1), (8, 4, 0)]  # kernel, stride, padding
rng = np.random.default_rng(0)


def loss(weight: jax.Array, images: jax.Array, stride: int, padding: int) -> jax.Array:
    return jnp.sum(jnp.sin(Conv(weight, jnp.arange(4.0), stride, padding)(images)))


def theirs(weight: jax.Array, images: jax.Array, stride: int, padding: int) -> jax.Array:
    sides, names = [(padding, padding)] * 2, ("NHWC", "HWIO", "NHWC")
    out = jax.lax.conv_general_dilated(images, weight, (stride, stride), sides, dimension_numbers=names)
    return jnp.sum(jnp.sin(out + jnp.arange(4.0)))


@pytest.mark.parametrize(("size", "stride", "padding"), SHAPES)
@pytest.mark.parametrize("method", ["rows", "in turn", "plain"])
def test_value_and_gradients_are_those_of_the_library(monkeypatch, method, size, stride, padding):
    """Two seeds, each with weights of its own; six images, of which two have room in the cache."""
    monkeypatch.setattr(convolutions, "MATMUL_NUMBERS", 2**60 if method == "rows" else 0)
    monkeypatch.setattr(convolutions, "CACHED_NUMBERS", 2 * 9 * 8 * size**2 * 3)
    if method == "plain":
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    weights, images = (jnp.asarray(rng.normal(size=shape)) for shape in ((2, size, size, 3, 4), (2, 6, 9, 8, 3)))
    ours, expected = (
        jax.vmap(jax.value_and_grad(lambda w, x, f=f: f(w, x, stride, padding), argnums=(0, 1)))(weights, images)
        for f in (loss, theirs)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), ours, expected)


def test_seeds_may_share_what_they_look_at():
    """A vmap over the weights alone, as over proximal policies that judge the same observations."""
    weights, images = jnp.asarray(rng.normal(size=(3, 3, 3, 2, 4))), jnp.asarray(rng.normal(size=(5, 7, 6, 2)))
    together = jax.vmap(lambda w: convolutions.convolve(1, 1, images, w))(weights)
    for one, weight in zip(together, weights, strict=True):
        np.testing.assert_allclose(one, convolutions.convolve(1, 1, images, weight), rtol=1e-9)


def test_a_number_of_images_that_nothing_divides_is_no_problem(monkeypatch):
    monkeypatch.setattr(convolutions, "CACHED_NUMBERS", 3 * 5 * 5 * 9 * 2)
    weight, images = jnp.asarray(rng.normal(size=(3, 3, 2, 4))), jnp.asarray(rng.normal(size=(7, 5, 5, 2)))
    ours = jax.grad(lambda w: jnp.sum(convolutions.convolve(1, 1, images, w) ** 2))(weight)
    expected = jax.grad(lambda w: jnp.sum(convolutions._plain(1, 1, images, w) ** 2))(weight)
    np.testing.assert_allclose(ours, expected, rtol=1e-9)
