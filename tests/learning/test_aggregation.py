"""The four aggregations of FACTS 7 against explicit loops over trajectories. On real gradients: test_policy_phase."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobatch.learning.aggregation import aggregate, sample_weights

pytestmark = pytest.mark.usefixtures("float64")

KINDS = ("timestep", "trajectory", "trajectory-mean", "constant")
ROOM = 20  # samples in every batch here; those no trajectory fills are not in use
compiled = {kind: jax.jit(partial(sample_weights, kind)) for kind in KINDS}


def lay_out(trajectories: list[list[float]]) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Losses, length of the sample's trajectory, and whether it is in use, as one flat batch."""
    flat = [(loss, len(t), True) for t in trajectories for loss in t]
    flat += [(7e7, 3, False)] * (ROOM - len(flat))  # what is not in use must not show
    losses, lengths, used = zip(*flat, strict=True)
    return jnp.array(losses), jnp.array(lengths, float), jnp.array(used)


trajectory_lists = st.lists(
    st.lists(st.floats(-10, 10), min_size=1, max_size=5), min_size=1, max_size=4
)  # up to 4 trajectories of up to 5 steps


@pytest.mark.parametrize("kind", KINDS)
def test_a_trajectory_without_samples_counts_in_none(kind):
    """A response of a language model that is masked as a whole has length 0."""
    lengths, used = jnp.array([2.0, 2.0, 0.0]), jnp.array([True, True, False])
    found = aggregate(jnp.array([1.0, 2.0, 7e7]), sample_weights(kind, lengths, used, horizon=4.0))
    alone = aggregate(jnp.array([1.0, 2.0]), sample_weights(kind, lengths[:2], used[:2], horizon=4.0))
    assert float(found) == pytest.approx(float(alone))


@pytest.mark.parametrize("kind", KINDS)
@given(trajectories=trajectory_lists)
def test_agrees_with_the_loop_over_trajectories(kind, trajectories):
    losses, lengths, used = lay_out(trajectories)
    ours = aggregate(losses, compiled[kind](lengths, used, 50.0))
    assert float(ours) == pytest.approx(oracles.aggregate(kind, trajectories, 50.0), rel=1e-9, abs=1e-9)


def test_two_trajectories_by_hand():
    """Losses 1, 2, 3 and 10; N = 2, sum T = 4, horizon 8.

    timestep 16/4 = 4; trajectory (6 + 10)/2 = 8; trajectory-mean (2 + 10)/2 = 6; constant 8/8 = 1.
    """
    losses, lengths, used = jnp.array([1.0, 2.0, 3.0, 10.0]), jnp.array([3.0, 3.0, 3.0, 1.0]), jnp.ones(4, bool)
    ours = [float(aggregate(losses, sample_weights(kind, lengths, used, 8.0))) for kind in KINDS]
    assert ours == pytest.approx([4.0, 8.0, 6.0, 1.0])


@given(trajectory_lists)
def test_timestep_is_trajectory_times_n_over_the_sum_of_lengths(trajectories):
    _, lengths, used = lay_out(trajectories)
    factor = len(trajectories) / sum(map(len, trajectories))
    timestep, trajectory = (compiled[kind](lengths, used, 50.0) for kind in KINDS[:2])
    np.testing.assert_allclose(timestep, factor * trajectory, rtol=1e-9)


def test_equal_lengths_make_three_of_them_proportional():
    """N = 4 trajectories of T = 5: weights 1, T, 1 and T/H, the same for every sample."""
    lengths, used = jnp.full(ROOM, 5.0), jnp.ones(ROOM, bool)
    for kind, weight in zip(KINDS, (1.0, 5.0, 1.0, 0.1), strict=True):
        np.testing.assert_allclose(compiled[kind](lengths, used, 50.0), weight, rtol=1e-12)


def test_the_mean_over_random_minibatches_is_the_whole():
    """A minibatch takes its samples' weights along: the mean over all minibatches is the whole iteration's."""
    losses, lengths, used = lay_out([[1.0, 2.0, 3.0, 4.0, 5.0], [-1.0], [3.0, 9.0]])
    order = np.random.default_rng(0).permutation(ROOM).reshape(5, 4)
    for kind in KINDS:
        weights = compiled[kind](lengths, used, 50.0)
        parts = [float(aggregate(losses[part], weights[part])) for part in order]
        assert np.mean(parts) == pytest.approx(float(aggregate(losses, weights)))
