"""How an epoch is cut into minibatches: every sample exactly once, whatever the scheme."""

import jax
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isobatch.learning.minibatches import minibatch_indices
from isobatch.settings.geometry import minibatch_counts

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
