"""Torsos: the stages of IMPALA by hand, images in any order of their axes, and encoders that do not fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_networks import encoder

from isobatch.envs.spaces import Discrete
from isobatch.errors import UsageError
from isobatch.networks.initialization import make_networks
from isobatch.networks.layers import Conv
from isobatch.networks.torso import residual_stages
from isobatch.settings.presets import preset

pytestmark = pytest.mark.usefixtures("float64")


def test_a_residual_stage_by_hand():
    """One channel, kernels that only keep the middle, scaled by 1, .5, 2, .25 and 4; x = 8 everywhere. The pooling
    takes every second pixel; the blocks add 2 x .5 x 8 and 4 x .25 x 16: 8 -> 16 -> 32."""
    middle = np.zeros((3, 3, 1, 1))
    middle[1, 1] = 1
    convs = tuple(Conv(jnp.asarray(scale * middle), jnp.zeros(1), 1, 1) for scale in (1, 0.5, 2, 0.25, 4))
    out = residual_stages(convs, jax.nn.relu, jnp.full((2, 6, 5, 1), 8.0))
    np.testing.assert_allclose(out, np.full((2, 3, 3, 1), 32.0))


@pytest.mark.parametrize("name", ["impala", "conv"])
def test_channels_in_front_are_as_good_as_at_the_end(name):
    image = np.random.default_rng(0).integers(0, 256, size=(2, 12, 12, 3), dtype=np.uint8)
    last, first = (encoder(name, shape, hidden_sizes="8") for shape in ((12, 12, 3), (3, 12, 12)))
    ours = first.policy(jnp.asarray(np.moveaxis(image, -1, -3))).logits
    np.testing.assert_allclose(ours, last.policy(jnp.asarray(image)).logits, rtol=1e-9)


def test_encoders_that_do_not_fit_are_refused():
    for name, shape, says in (
        ("impala", (4,), "needs images"),
        ("nature", (20, 20, 3), "at least 36 pixels"),
        ("auto", (64, 64, 3), "use impala or nature"),
    ):
        with pytest.raises(UsageError, match=says):
            make_networks(preset("ppo", encoder=name), shape, Discrete(2), 0)
    with pytest.raises(UsageError, match="three sizes"):
        preset("ppo", encoder="nature", channels="8,8")
