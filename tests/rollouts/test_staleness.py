"""Artificial staleness: a rollout is used exactly s iterations after it was collected, as it was collected."""

from collections import deque
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from made_up import make_config, make_segment

from isobatch.envs.registry import make_env
from isobatch.learning.iteration import Learned, iterate, policy_phase
from isobatch.learning.policy_phase import Metrics
from isobatch.learning.state import TrainState, initial_state
from isobatch.rollouts.jax_rollout import collect
from isobatch.rollouts.staleness import empty_queue, exchange
from isobatch.settings.config import Config
from isobatch.settings.presets import STALE_OBJECTIVES, with_stale_objective

pytestmark = pytest.mark.usefixtures("float64")

ENV = make_env("Probe-ActionObserved")
STALENESS = 2


def stale_config(objective: str = "decoupled", **settings: Any) -> Config:
    """PPO on a probe, large steps, so that policies of different iterations differ much."""
    config = make_config(
        env="Probe-ActionObserved", objective="clip", num_minibatches=2, learning_rate=0.1, total_timesteps=240,
        **(dict(staleness=STALENESS) | settings),
    )  # fmt: skip
    return with_stale_objective(config, objective)


def run(config: Config, iterations: int) -> tuple[list[TrainState], list[Metrics]]:
    """The states before and after each iteration, and the metrics of each."""
    step = jax.jit(partial(iterate, config, ENV))
    states, metrics = [initial_state(config, ENV, 0)], []
    for i in range(iterations):
        state, one, _ = step(states[-1], config.hypers, jnp.int32(i))
        states.append(state)
        metrics.append(one)
    return states, metrics


@pytest.fixture(scope="module")
def decoupled(float64: None) -> tuple[list[TrainState], list[Metrics]]:
    return run(stale_config(), 6)


def assert_same(a: Any, b: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize("staleness", [1, 2, 5])
def test_the_queue_is_first_in_first_out(staleness):
    """Against a deque: iteration i gives back what iteration i - s put in, all of it."""
    config = make_config()
    segments = [make_segment(config, seed=i) for i in range(9)]
    queue = jax.tree.map(lambda leaf: jnp.zeros((staleness, *leaf.shape), leaf.dtype), segments[0])
    waiting: deque = deque()
    for i, fresh in enumerate(segments):
        due, queue = exchange(queue, fresh, jnp.int32(i), staleness)
        waiting.append(fresh)
        if i >= staleness:
            assert_same(due, waiting.popleft())


def test_the_queue_has_room_for_s_rollouts():
    config = stale_config()
    state = initial_state(config, ENV, 0)
    queue = empty_queue(config, ENV, state.networks)
    one = jax.eval_shape(
        lambda: collect(ENV, state.networks, state.envs, None, 10.0, config.num_steps, jax.random.key(0))[1]
    )
    assert jax.tree.structure(queue) == jax.tree.structure(one)
    for room, leaf in zip(jax.tree.leaves(queue), jax.tree.leaves(one), strict=True):
        assert (room.shape, room.dtype) == ((STALENESS, *leaf.shape), leaf.dtype)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(queue))


def test_the_first_s_iterations_only_collect(decoupled):
    states, metrics = decoupled
    for i in range(STALENESS):
        assert_same(states[i + 1].learning.learner, states[i].learning.learner)
        assert_same(states[i + 1].learning.advantage_moments, states[i].learning.advantage_moments)
        assert all(float(value) == 0 for value in metrics[i].values())
        assert np.any(jax.random.key_data(states[i + 1].key) != jax.random.key_data(states[i].key))
    assert np.any(states[STALENESS + 1].networks.policy.head.weight != states[0].networks.policy.head.weight)


@pytest.mark.parametrize("iteration", [2, 3, 5])
def test_an_update_is_that_of_the_rollout_collected_s_iterations_before(decoupled, iteration):
    """Collected again from the state of that time, and given to the learner of now."""
    states, _ = decoupled
    config = stale_config()
    then, now = states[iteration - STALENESS], states[iteration]
    rollout_key = jax.random.split(then.key, 5)[2]
    _, segment, _, _ = collect(
        ENV, then.networks, then.envs, None, config.hypers.obs_clip, config.num_steps, rollout_key
    )
    update_key = jax.random.split(now.key, 5)[3]
    learned = Learned(now.learning.learner, None, now.learning.advantage_moments, jnp.zeros(segment.reward.shape))
    (learner, *_), _ = jax.jit(partial(policy_phase, config))(
        learned, segment, config.hypers, jnp.int32(iteration), update_key
    )
    for ours, theirs in zip(
        jax.tree.leaves(states[iteration + 1].learning.learner), jax.tree.leaves(learner), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_staleness_shows_in_the_ratio_to_the_behavior_policy(decoupled):
    """Iteration 2 is the first update and its data still fresh; from then on the policy has moved since. With s = 2 the
    data of iteration 4 is two updates old."""
    _, metrics = decoupled
    config = stale_config()
    fresh, stale = float(metrics[2]["losses/approx_kl"]), float(metrics[4]["losses/approx_kl"])
    assert stale > 2 * fresh
    assert float(metrics[4]["staleness/iterations"]) == 2
    assert float(metrics[4]["staleness/env_steps"]) == 2 * config.geometry.iteration_batch


def test_the_three_objectives_differ_on_stale_data_only(decoupled):
    """The first update uses data of the policy it changes: all three are PPO. After that they go their own ways."""
    states = {name: run(stale_config(name), 5)[0] for name in STALE_OBJECTIVES if name != "decoupled"}
    states["decoupled"] = decoupled[0][:6]
    first = [s[STALENESS + 1].networks for s in states.values()]
    for other in first[1:]:
        for a, b in zip(jax.tree.leaves(other), jax.tree.leaves(first[0]), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    last = [np.asarray(s[5].networks.policy.head.weight) for s in states.values()]
    for i in range(3):
        for j in range(i):
            assert not np.allclose(last[i], last[j], atol=1e-4)


def test_fresh_data_needs_no_queue_and_all_three_objectives_are_one():
    states = {name: run(stale_config(name, staleness=0), 2)[0] for name in STALE_OBJECTIVES}
    assert all(s[0].queue is None for s in states.values())
    for name in ("recent", "behavior"):
        assert_same(states[name][-1].learning.learner, states["decoupled"][-1].learning.learner)
