"""Running moments against sums over everything seen, and the reward scale step by step."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from isobatch.networks.moments import Moments, RewardScale

pytestmark = pytest.mark.usefixtures("float64")

CLOSE = dict(rtol=1e-9, atol=1e-9)
batches = arrays(np.float64, (4, 3, 2), elements=st.floats(-100, 100))  # four batches of 3 x 2 samples
update = jax.jit(Moments.update)
update_used = jax.jit(lambda moments, sample, decay, used: moments.update(sample, decay, used))


def after(seen: list[np.ndarray], decay: float) -> Moments:
    moments = Moments.empty()
    for batch in seen:
        moments = update(moments, jnp.asarray(batch), decay)
    return moments


@given(batches, st.floats(0, 1))
def test_moments_are_those_of_all_samples_weighted_by_age(seen, decay):
    ours, (mean, variance, weight) = after(list(seen), decay), oracles.moments(list(seen), decay)
    np.testing.assert_allclose([ours.mean, ours.variance, ours.weight], [mean, variance, weight], **CLOSE)


@given(batches)
def test_decay_one_remembers_everything(seen):
    ours = after(list(seen), 1.0)
    np.testing.assert_allclose([ours.mean, ours.variance], [np.mean(seen), np.var(seen)], **CLOSE)
    assert ours.weight == seen.size


@given(batches)
def test_decay_zero_knows_only_the_newest_batch(seen):
    ours = after(list(seen), 0.0)
    np.testing.assert_allclose([ours.mean, ours.variance], [np.mean(seen[-1]), np.var(seen[-1])], **CLOSE)


def test_batches_count_by_their_size():
    """decay 0.5, first 4 samples of mean 0, then 1 of 6. Weights: 4 x 0.5 = 2 and 1; mean (2 x 0 + 6)/3 = 2;
    variance (2 x (1 + 4) + 1 x 16)/3 = 26/3, the first batch having variance 1 about its own mean."""
    moments = Moments.empty().update(jnp.array([-1.0, 1.0, -1.0, 1.0])).update(jnp.array([6.0]), 0.5)
    np.testing.assert_allclose([moments.mean, moments.variance, moments.weight], [2.0, 26 / 3, 3.0])
    np.testing.assert_allclose(oracles.moments([np.array([-1.0, 1, -1, 1]), np.array([6.0])], 0.5), [2, 26 / 3, 3])


@given(batches, arrays(bool, (4, 3, 2)), st.floats(0, 1))
def test_only_used_samples_count(seen, used, decay):
    used[:, 0, 0] = True
    moments = Moments.empty()
    for batch, mask in zip(seen, used, strict=True):
        moments = update_used(moments, jnp.asarray(batch), decay, jnp.asarray(mask))
    expected = oracles.moments([batch[mask] for batch, mask in zip(seen, used, strict=True)], decay)
    np.testing.assert_allclose([moments.mean, moments.variance, moments.weight], expected, **CLOSE)


def test_a_batch_without_a_used_sample_teaches_nothing():
    """A minibatch of whole-episode data may hold none of the samples in use; its moments must stay numbers."""
    sample, nothing = jnp.array([1.0, 2.0]), jnp.zeros(2, bool)
    before = Moments.empty().update(jnp.array([3.0, 5.0]))
    for moments, expected in ((before, before), (Moments.empty(), Moments.empty())):
        later = moments.update(sample, 1.0, nothing)
        for ours, theirs in zip(jax.tree.leaves(later), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_moments_of_vectors_are_those_of_each_component():
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(3, 5, 4, 2))  # three batches of 5 x 4 observations with 2 components
    moments = Moments.empty((2,))
    for batch in seen:
        moments = moments.update(jnp.asarray(batch), 0.7)
    for i in range(2):
        mean, variance, weight = oracles.moments(list(seen[..., i]), 0.7)
        np.testing.assert_allclose([moments.mean[i], moments.variance[i]], [mean, variance], **CLOSE)
        assert float(moments.weight) == pytest.approx(weight)


def test_normalized_samples_have_mean_0_and_deviation_1():
    sample = jnp.asarray(np.random.default_rng(0).normal(5.0, 3.0, size=(4, 25)))
    normalized = Moments.empty().update(sample).normalize(sample, 0.0)
    np.testing.assert_allclose([np.mean(normalized), np.std(normalized)], [0.0, 1.0], atol=1e-12)


def test_normalize_adds_eps_to_the_deviation():
    """mean 4, standard deviation 2, eps 0.5: (9 - 4)/2.5 = 2."""
    moments = Moments(jnp.array(4.0), jnp.array(4.0), jnp.array(1.0))
    assert float(moments.normalize(jnp.array(9.0), 0.5)) == pytest.approx(2.0)


def test_no_cancellation_in_float32():
    """Raw sums would lose a deviation of 1 on top of 10^4: (10^4)^2 = 10^8 has a spacing of 8 in float32."""
    with jax.enable_x64(False):
        moments = Moments.empty()
        for _ in range(3):
            moments = moments.update(jnp.array([9999.0, 10001.0], jnp.float32))
        assert float(moments.variance) == pytest.approx(1.0, abs=1e-3)


segments = arrays(np.float64, (3, 4, 2), elements=st.floats(-5, 5))  # three segments [T 4, N 2]
ends = arrays(bool, (3, 4, 2), elements=st.booleans())
scale_update = jax.jit(RewardScale.update)
scale_apply = jax.jit(RewardScale.apply)


@given(segments, ends, st.floats(0, 1), st.floats(0.5, 10))
def test_reward_scale_agrees_with_the_step_by_step_oracle(reward, done, gamma, clip):
    expected, variance = oracles.scale_rewards(list(zip(reward, done, strict=True)), gamma, clip)
    scale, ours = RewardScale.empty(2), []
    for r, d in zip(reward, done, strict=True):
        scale = scale_update(scale, jnp.asarray(r), jnp.asarray(d), gamma)
        ours.append(scale_apply(scale, jnp.asarray(r), clip))
    np.testing.assert_allclose(scale.moments.variance, variance, **CLOSE)
    np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-6)


def test_the_discounted_return_begins_anew_with_each_episode():
    """gamma 0.5, rewards 1: returns 1, 1.5 (end), 1, 1.5; the next segment begins at gamma x 1.5 + 1 = 1.75."""
    reward, done = jnp.ones((4, 1)), jnp.array([[False], [True], [False], [False]])
    scale = RewardScale.empty(1).update(reward, done, 0.5)
    np.testing.assert_allclose(scale.moments.mean, np.mean([1, 1.5, 1, 1.5]))
    scale = scale.update(reward[:1], done[:1], 0.5)
    np.testing.assert_allclose(scale.discounted_return, [1.75])


def test_rewards_are_scaled_but_not_shifted():
    """Their sign is what the policy learns from."""
    scale = RewardScale(jnp.zeros(1), Moments(jnp.array(100.0), jnp.array(4.0), jnp.array(1.0)))
    scaled = scale.apply(jnp.array([[6.0], [-1.0], [50.0]]), 10.0)
    np.testing.assert_allclose(scaled[:, 0], [3.0, -0.5, 10.0], rtol=1e-6)
