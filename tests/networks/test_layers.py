"""Layers against sums over their inputs and against the library."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from isobatch.networks.layers import Conv

pytestmark = pytest.mark.usefixtures("float64")


def test_a_convolution_is_a_sum_over_its_window():
    rng = np.random.default_rng(0)
    image, kernel, bias = rng.normal(size=(5, 6, 2)), rng.normal(size=(3, 3, 2, 4)), rng.normal(size=4)
    expected = np.zeros((3, 4, 4))
    for y, x, out in np.ndindex(*expected.shape):
        expected[y, x, out] = bias[out] + sum(
            image[y + i, x + j, c] * kernel[i, j, c, out] for i in range(3) for j in range(3) for c in range(2)
        )
    ours = Conv(jnp.asarray(kernel), jnp.asarray(bias))(jnp.asarray(image))
    np.testing.assert_allclose(ours, expected, rtol=1e-9)


@pytest.mark.parametrize(("size", "stride", "padding"), [(3, 1, 1), (4, 2, 0), (3, 2, 1)])
def test_convolutions_with_strides_and_padding(size, stride, padding):
    rng = np.random.default_rng(0)
    image, kernel = rng.normal(size=(2, 9, 8, 3)), rng.normal(size=(size, size, 3, 4))
    ours = Conv(jnp.asarray(kernel), jnp.zeros(4), stride, padding)(jnp.asarray(image))
    sides, names = [(padding, padding)] * 2, ("NHWC", "HWIO", "NHWC")
    theirs = jax.lax.conv_general_dilated(image, kernel, (stride, stride), sides, dimension_numbers=names)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
