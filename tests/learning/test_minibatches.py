"""How an epoch is cut into minibatches: every sample exactly once, whatever the scheme."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isobatch.learning import losses
from isobatch.learning.minibatches import minibatch_indices
from isobatch.settings.geometry import minibatch_counts
from isobatch.settings.presets import preset

SIZES = [(1, 1), (1, 6), (4, 6), (6, 4), (3, 8)]  # (rows, steps)


@pytest.mark.parametrize(("rows", "steps"), SIZES)
@pytest.mark.parametrize("scheme", ["shuffle", "envs"])
@settings(max_examples=5)
@given(seed=st.integers(0, 2**31))
def test_each_epoch_visits_each_sample_exactly_once(rows, steps, scheme, seed):
    for count in minibatch_counts(rows, steps, scheme):
        indices = np.asarray(minibatch_indices(jax.random.key(seed), rows, steps, count, scheme))
        assert indices.shape == (count, rows * steps // count)
        assert sorted(indices.ravel().tolist()) == list(range(rows * steps))


@pytest.mark.parametrize(("rows", "steps"), SIZES)
def test_envs_takes_whole_rows_or_chunks_of_their_time(rows, steps):
    """Sample number step x rows + row. The order of the rows is random; what follows from it is not."""
    for count in minibatch_counts(rows, steps, "envs"):
        indices = np.asarray(minibatch_indices(jax.random.key(3), rows, steps, count, "envs"))
        row_of = indices.ravel() % rows
        row_order = list(dict.fromkeys(row_of.tolist()))  # rows in order of first appearance
        expected = oracles.env_minibatches(row_order, steps, count)
        ours = [[(i // rows, i % rows) for i in part.tolist()] for part in indices]
        assert ours == expected


def test_chunks_by_hand():
    """2 rows of 4 steps, 4 minibatches: each row in two halves. Samples of row 0: 0 2 4 6, of row 1: 1 3 5 7."""
    indices = np.asarray(minibatch_indices(jax.random.key(0), 2, 4, 4, "envs")).tolist()
    assert sorted(indices) == [[0, 2], [1, 3], [4, 6], [5, 7]]


@pytest.mark.parametrize("scheme", ["shuffle", "envs"])
def test_epochs_differ_and_the_same_key_repeats(scheme):
    one, again, other = (np.asarray(minibatch_indices(jax.random.key(seed), 16, 2, 4, scheme)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


@pytest.mark.parametrize(("scheme", "items"), [("shuffle", 6), ("envs", 3)])
def test_every_order_is_equally_likely(scheme, items):
    """Where sample 0 lands among 600 epochs of 6 samples: each place 600/items times, within 5 standard deviations."""
    epochs = jax.vmap(lambda key: minibatch_indices(key, 3, 2, 3, scheme))(jax.random.split(jax.random.key(0), 600))
    place = np.argmax(np.asarray(epochs).reshape(600, 6) == 0, axis=1) // (6 // items)
    counts = np.bincount(place, minlength=items)
    deviation = np.sqrt(600 / items * (1 - 1 / items))
    assert np.all(np.abs(counts - 600 / items) < 5 * deviation)


def test_mistake_one_whole_batch_leaves_ppo_nothing_to_clip():
    """One step on all data is the vanilla policy gradient: r = 1, whatever eps is. Minibatches move the policy between
    steps, and only then a ratio can leave its bounds: with r = 1.5 and A > 0 the clipped loss has no gradient left."""
    log_behav, advantage = jnp.log(jnp.array([0.2, 0.5, 0.9])), jnp.array([1.0, -2.0, 3.0])

    def gradient(log_prob: jax.Array, eps: float) -> np.ndarray:
        return np.asarray(jax.grad(lambda x: losses.clipped(x, log_behav, log_behav, advantage, eps).sum())(log_prob))

    for eps in (0.01, 0.2, np.inf):
        np.testing.assert_allclose(gradient(log_behav, eps), -advantage, rtol=1e-5)
    moved = gradient(log_behav + jnp.log(jnp.array([1.5, 1.0, 1.0])), 0.2)
    np.testing.assert_allclose(moved, [0.0, 2.0, -3.0], atol=1e-6)
    one, four = (preset("ppo", "CartPole-v1", num_minibatches=count, update_epochs=4) for count in (1, 4))
    assert (one.geometry.gradient_steps, four.geometry.gradient_steps) == (4, 16)


def test_mistake_two_random_fetching_leaves_a_third_of_the_data_unused():
    """B draws with replacement miss a sample with chance (1 - 1/B)^B, 36.8 % for large B; M subsets of B/M drawn anew
    each time with (1 - 1/M)^M, 31.6 % for M = 4. One permutation that is cut misses none."""
    size, count, rng = 1024, 4, np.random.default_rng(0)
    fetched = [rng.integers(size, size=size) for _ in range(50)]
    unused = np.mean([1 - len(np.unique(draw)) / size for draw in fetched])
    assert unused == pytest.approx((1 - 1 / size) ** size, abs=0.005)
    subsets = [[rng.permutation(size)[: size // count] for _ in range(count)] for _ in range(50)]
    unused = np.mean([1 - len(np.unique(np.concatenate(draw))) / size for draw in subsets])
    assert unused == pytest.approx((1 - 1 / count) ** count, abs=0.005)
    ours = np.asarray(minibatch_indices(jax.random.key(0), 8, size // 8, count, "shuffle"))
    assert len(np.unique(ours)) == size
