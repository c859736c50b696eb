"""Initial weights are orthogonal, depend on the seed alone, and networks have the published sizes."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from needs import one_more_case
from small_networks import OBS, encoder, networks

from isobatch.envs.spaces import Box, Discrete
from isobatch.networks.distributions import Categorical, DiagonalGaussian

pytestmark = pytest.mark.usefixtures("float64")


def test_initial_weights_are_orthogonal_with_the_gain_of_their_kind():
    """Rows or columns, whichever are fewer, are orthonormal up to the gain: sqrt 2 hidden, .01 policy, 1 value."""
    nets = networks(shape=(6, 6, 2), channels="4", hidden_sizes="5,7")  # narrower and wider ones
    kernel = nets.policy.torso.convs[0].weight
    layers = [
        (kernel.reshape(-1, kernel.shape[-1]), math.sqrt(2)),
        *((layer.weight, math.sqrt(2)) for layer in nets.policy.torso.denses),
        (nets.policy.head.weight, 0.01),
        (nets.value_head.weight, 1.0),
    ]
    for weight, gain in layers:
        w = np.asarray(weight) / gain
        gram = w.T @ w if w.shape[0] >= w.shape[1] else w @ w.T
        np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-9)
    biases = [leaf for leaf in jax.tree.leaves(nets) if leaf.ndim == 1]
    assert biases
    assert all(np.all(np.asarray(bias) == 0) for bias in biases)


def test_the_same_seed_gives_the_same_bits_and_another_one_others():
    one, again, other = (jax.tree.leaves(networks(seed)) for seed in (0, 0, 1))
    for a, b in zip(one, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert all(np.any(a != b) for a, b in zip(one, other, strict=True) if a.ndim == 2)
    dual = networks(0)
    assert np.any(dual.policy.torso.denses[0].weight != dual.value_torso.denses[0].weight)


def test_continuous_actions_begin_with_a_standard_deviation_of_one():
    """The mean depends on the observation, the deviation is one parameter per dimension."""
    nets = networks(space=Box((2,), (-1.0, -1.0), (1.0, 1.0)))
    policy = nets.policy(jnp.asarray(OBS))
    assert isinstance(policy, DiagonalGaussian)
    assert policy.mean.shape == policy.log_std.shape == (4, 2)
    np.testing.assert_array_equal(policy.log_std, 0.0)
    gradient = jax.grad(lambda p: jnp.sum(p(jnp.asarray(OBS)).entropy()))(nets.policy)
    np.testing.assert_allclose(gradient.log_std, 4.0)  # each of the 4 entropies grows by 1 with each log_std


def test_discrete_actions_begin_almost_uniform():
    """The small gain of the policy head: no action is preferred by more than a few per cent."""
    policy = networks(space=Discrete(3)).policy(jnp.asarray(OBS))
    assert isinstance(policy, Categorical)
    np.testing.assert_allclose(np.exp(policy.log_probs), 1 / 3, rtol=0.1)


def test_impala_has_the_published_size():
    """64 x 64 x 3. Stage of i to o channels: 9 i o + o, and four times 9 o o + o: 448 + 9280, 4640 + 36992 and
    9248 + 36992, 97600 in all; 8 x 8 x 32 features to 256: 524544; 15 actions: 3855."""
    policy = encoder("impala", (64, 64, 3)).policy
    assert sum(leaf.size for leaf in jax.tree.leaves(policy)) == 97_600 + 524_544 + 3_855


def test_nature_has_the_published_size():
    """84 x 84 x 4: 8 x 8 x 4 x 32 + 32 = 8224, 4 x 4 x 32 x 64 + 64 = 32832, 3 x 3 x 64 x 64 + 64 = 36928; 7 x 7 x 64
    features to 512: 1606144; 15 actions: 7695."""
    policy = encoder("nature", (84, 84, 4)).policy
    assert sum(leaf.size for leaf in jax.tree.leaves(policy)) == 8_224 + 32_832 + 36_928 + 1_606_144 + 7_695


@pytest.mark.parametrize("arrangement", ["shared", pytest.param("dual", marks=one_more_case)])
def test_impala_begins_as_the_reference_does(arrangement: str):
    """Lengths of the weights of an output: 1, then (3 stages x 2 blocks)^(-1/4) = .639 in blocks, 1.4, and .1 in heads.

    On images of noise the reference's features have a root mean square of .3 to .8 and its first values are within .1.
    """
    nets = encoder("impala", (64, 64, 3), arrangement=arrangement)
    torsos = [nets.policy.torso] + ([nets.value_torso] if nets.value_torso else [])
    for torso in torsos:
        for place, conv in enumerate(torso.convs):
            length = np.linalg.norm(np.asarray(conv.weight).reshape(-1, conv.weight.shape[-1]), axis=0)
            np.testing.assert_allclose(length, 1.0 if place % 5 == 0 else 6**-0.25, rtol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(torso.denses[0].weight, axis=0), 1.4, rtol=1e-6)
    for head in (nets.policy.head, nets.value_head):
        np.testing.assert_allclose(np.linalg.norm(head.weight, axis=0), 0.1, rtol=1e-6)
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (4, 8, 8, 3), dtype=np.uint8).repeat(8, axis=1).repeat(8, axis=2)
    for images in (coarse, rng.integers(0, 256, (4, 64, 64, 3), dtype=np.uint8)):
        features = np.asarray(torsos[0](jnp.asarray(images)))
        assert 0.2 < np.sqrt(np.mean(features**2)) < 1.2
        assert np.abs(nets.value(jnp.asarray(images))).max() < 0.2
