"""Collecting data: what a segment holds, the values at ends and cuts, episode statistics, resets, whole episodes."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import oracles

from isobatch.envs.interface import Environment
from isobatch.envs.probes import Probe
from isobatch.envs.registry import make_env
from isobatch.envs.spaces import Box, Discrete
from isobatch.networks.actor_critic import ActorCritic, Policy
from isobatch.networks.initialization import make_networks
from isobatch.networks.layers import Dense
from isobatch.networks.moments import Moments
from isobatch.networks.torso import Torso
from isobatch.rollouts.jax_rollout import collect, start_envs
from isobatch.rollouts.segment import EnvCarry, Segment, complete_episodes
from isobatch.settings.config import Config

CLIP = 10.0
# An environment that shows its clock, so that a state's value tells where it is: cut off, or ended, after 3 steps.
CLOCK = {
    cut: Probe(Discrete(2), 3, lambda s: s.time * 1.0, lambda s, a: s.time * 1.0, truncates=cut)
    for cut in (False, True)
}


def linear_networks(slope: float, offset: float) -> ActorCritic:
    """V(obs) = slope x obs + offset, and a uniform policy over two actions."""
    torso = Torso((), (), "tanh", 1)
    policy = Policy(torso, Dense(jnp.zeros((1, 2)), jnp.zeros(2)), None)
    return ActorCritic(policy, None, Dense(jnp.full((1, 1), slope), jnp.full(1, offset)), None, "shared")


@cache
def networks_for(env: Environment) -> ActorCritic:
    return make_networks(Config(hidden_sizes=(8,)), env.obs_shape, env.action_space, 0)


@partial(jax.jit, static_argnums=(0, 4))
def run(
    env: Environment, networks: ActorCritic, carry: EnvCarry, moments: Moments | None, num_steps: int, key: jax.Array
):
    return collect(env, networks, carry, moments, CLIP, num_steps, key)


def roll(env: Environment, networks: ActorCritic, num_envs: int, num_steps: int, **kwargs):
    carry = start_envs(env, num_envs, kwargs.get("staggered", False), jax.random.key(1))
    return run(env, networks, carry, kwargs.get("moments"), num_steps, jax.random.key(2))


def test_where_an_episode_is_cut_off_the_next_value_is_that_of_its_final_observation():
    """V = 10 + clock. Observations 0 1 2 | 0 1 2 | 0: each step leads to the clock + 1, also the cut ones, to 3. Valued
    by the observation after the reset they would be 10."""
    _, segment, _, _ = roll(CLOCK[True], linear_networks(1.0, 10.0), 2, 7)
    for n in range(2):
        np.testing.assert_allclose(segment.value[:, n], [10, 11, 12, 10, 11, 12, 10])
        np.testing.assert_allclose(segment.next_value[:, n], [11, 12, 13, 11, 12, 13, 11])
        np.testing.assert_array_equal(segment.truncated[:, n], [0, 0, 1, 0, 0, 1, 0])
    assert not segment.terminated.any()


def test_a_cut_at_the_very_end_of_a_rollout_is_valued_too():
    _, segment, _, _ = roll(CLOCK[True], linear_networks(1.0, 10.0), 2, 6)
    np.testing.assert_allclose(segment.next_value[-1], [13, 13])


def test_an_end_is_not_a_cut():
    _, segment, _, _ = roll(CLOCK[False], linear_networks(1.0, 10.0), 2, 7)
    np.testing.assert_array_equal(segment.terminated[:, 0], [0, 0, 1, 0, 0, 1, 0])
    assert not segment.truncated.any()


def test_many_cuts_at_once_are_all_valued():
    """Cuts are valued N at a time: with 5 environments and 12 steps there are 20 of them, in 4 rounds."""
    _, segment, _, _ = roll(CLOCK[True], linear_networks(2.0, 1.0), 5, 12)
    clock = np.arange(12) % 3 + 1
    np.testing.assert_allclose(segment.next_value, np.tile((2.0 * clock + 1)[:, None], (1, 5)))


def test_cuts_of_some_environments_only():
    """Staggered over 3 environments the clocks start at 0, 1, 2: their cuts fall on different steps."""
    _, segment, _, _ = roll(CLOCK[True], linear_networks(1.0, 10.0), 3, 4, staggered=True)
    # The first observation is that of the reset; from then on the clock shows.
    np.testing.assert_allclose(segment.next_value, [[11, 12, 13], [12, 13, 11], [13, 11, 12], [11, 12, 13]])
    np.testing.assert_array_equal(segment.truncated, [[0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 0, 1]])


def test_cartpole_s_time_limit_bootstraps_from_the_state_before_the_reset():
    """Two environments, one of which is 2 steps from the limit of 500. Played again by hand from the same state, with
    the same actions, its final observation is the one that was valued."""
    env = make_env("CartPole-v1")
    networks = networks_for(env)
    carry = start_envs(env, 2, False, jax.random.key(1))
    times = jnp.array([0, 498])
    carry = EnvCarry(jax.vmap(env.at_time)(carry.state, times), carry.obs, carry.episodes)
    _, segment, episodes, _ = run(env, networks, carry, None, 4, jax.random.key(3))
    np.testing.assert_array_equal(segment.truncated[:, 1], [0, 1, 0, 0])
    assert not segment.truncated[:, 0].any()
    state = jax.tree.map(lambda leaf: leaf[1], carry.state)
    for t in range(2):
        after = env.step(jax.random.key(0), state, segment.action[t, 1])  # CartPole's steps are not random
        state = after.state
    assert not after.terminated
    np.testing.assert_allclose(segment.next_value[1, 1], networks.value(after.obs), rtol=1e-5)
    assert abs(segment.next_value[1, 1] - segment.value[2, 1]) > 1e-3  # the value after the reset is another one
    assert episodes.count == 1
    np.testing.assert_allclose(segment.next_value[0], segment.value[1])


def test_a_segment_holds_what_the_policy_saw_thought_and_did():
    env = make_env("Probe-ActionObserved")
    networks = networks_for(env)
    _, segment, _, raw_obs = roll(env, networks, 8, 16)
    behavior, value = networks(segment.obs)
    np.testing.assert_array_equal(segment.obs, raw_obs)
    np.testing.assert_allclose(segment.behavior.logits, behavior.logits, rtol=1e-6)
    np.testing.assert_allclose(segment.log_prob, behavior.log_prob(segment.action), rtol=1e-6)
    np.testing.assert_allclose(segment.value, value, rtol=1e-6)
    # The reward is that of this observation and this action.
    expected = np.where(np.asarray(segment.action) == np.asarray(segment.obs[..., 0]), 1.0, -1.0)
    np.testing.assert_array_equal(segment.reward, expected)
    assert {-1.0, 1.0} == set(np.unique(segment.reward))  # both happened


def test_environments_and_steps_draw_their_own_actions():
    env = make_env("Probe-ActionObserved")
    _, segment, _, _ = roll(env, networks_for(env), 8, 16)
    actions = np.asarray(segment.action)
    assert len(np.unique(actions, axis=0)) == 16
    assert len(np.unique(actions, axis=1)) > 1
    assert 0.25 < actions.mean() < 0.75


def test_episodes_are_counted_once_whole_and_across_rollouts():
    """Probe-Delay: 2 steps, return 1. 5 steps x 3 environments finish 2 episodes each, the next 5 steps 3 each."""
    env = make_env("Probe-Delay")
    networks = networks_for(env)
    carry, _, first, _ = roll(env, networks, 3, 5)
    np.testing.assert_array_equal([first.count, first.return_sum, first.length_sum], [6, 6, 12])
    np.testing.assert_array_equal(carry.episodes.length, 1)
    carry, _, second, _ = run(env, networks, carry, None, 5, jax.random.key(4))
    np.testing.assert_array_equal([second.count, second.return_sum, second.length_sum], [9, 9, 18])
    np.testing.assert_array_equal(carry.episodes.length, 0)


def test_staggered_resets_desynchronize():
    """Pendulum is cut off every 200 steps. 4 environments start at 0, 50, 100, 150 and are cut at 200, 150, 100, 50."""
    env = make_env("Pendulum-v1")
    networks = networks_for(env)
    _, segment, _, _ = roll(env, networks, 4, 200, staggered=True)
    assert [np.flatnonzero(segment.truncated[:, n]).tolist() for n in range(4)] == [[199], [149], [99], [49]]
    _, together, _, _ = roll(env, networks, 4, 200)
    assert [np.flatnonzero(together.truncated[:, n]).tolist() for n in range(4)] == [[199]] * 4


def test_episodes_that_staggering_shortened_do_not_count():
    """Clocks at 0, 1, 2 of 3: the first episodes of environments 1 and 2 are 2 and 1 steps long. In 3 steps only
    environment 0 finishes a whole one, in 6 steps 1 + 1 + 1 more."""
    carry, _, first, _ = roll(CLOCK[True], linear_networks(0.0, 0.0), 3, 3, staggered=True)
    np.testing.assert_array_equal([first.count, first.length_sum], [1, 3])
    _, _, second, _ = run(CLOCK[True], linear_networks(0.0, 0.0), carry, None, 3, jax.random.key(5))
    np.testing.assert_array_equal([second.count, second.length_sum], [3, 9])


def test_actions_are_clipped_on_their_way_to_the_environment_only():
    """A target of 0.5 within [-1, 1], actions of deviation 1: the reward is that of the clipped action, while
    the log-probability belongs to the action as sampled."""
    env = make_env("Probe-Target")
    _, segment, _, _ = roll(env, networks_for(env), 8, 16)
    action = np.asarray(segment.action)[..., 0]
    assert np.abs(action).max() > 1
    np.testing.assert_allclose(segment.reward, -((np.clip(action, -1, 1) - 0.5) ** 2), rtol=1e-5)
    np.testing.assert_allclose(segment.log_prob, segment.behavior.log_prob(segment.action), rtol=1e-6)


def test_bounds_of_several_dimensions_each_clip_their_own():
    env = Probe(Box((2,), (-1.0, -0.1), (1.0, 0.1)), 1, lambda s: s.sign, lambda s, a: a[0] * 100 + a[1])
    _, segment, _, _ = roll(env, networks_for(env), 4, 8)
    clipped = np.clip(np.asarray(segment.action), [-1, -0.1], [1, 0.1])
    np.testing.assert_allclose(segment.reward, clipped[..., 0] * 100 + clipped[..., 1], rtol=1e-4, atol=1e-4)


def test_normalized_observations_are_what_the_networks_see_and_the_learner_gets():
    """mean 1, deviation 0.5: the clock 0 1 2 is seen as -2, 0, 2 and the final 3 as 4; the raw clock is kept too."""
    moments = Moments(jnp.full(1, 1.0), jnp.full(1, 0.25), jnp.array(1.0))
    _, segment, _, raw_obs = roll(CLOCK[True], linear_networks(1.0, 10.0), 2, 4, moments=moments)
    np.testing.assert_allclose(segment.obs[:, 0, 0], [-2, 0, 2, -2], atol=1e-5)
    np.testing.assert_allclose(raw_obs[:, 0, 0], [0, 1, 2, 0])
    np.testing.assert_allclose(segment.value[:, 0], [8, 10, 12, 8], atol=1e-5)
    np.testing.assert_allclose(segment.next_value[:, 0], [10, 12, 14, 10], atol=1e-5)


def test_normalized_observations_are_clipped():
    moments = Moments(jnp.zeros(1), jnp.full(1, 0.01), jnp.array(1.0))  # deviation 0.1: the clock 2 would be 20
    _, segment, _, _ = roll(CLOCK[True], linear_networks(1.0, 0.0), 2, 3, moments=moments)
    np.testing.assert_allclose(segment.obs[:, 0, 0], [0, CLIP, CLIP], atol=1e-4)


def test_vmapped_seeds_agree_with_seeds_one_by_one():
    env = CLOCK[True]
    keys = jax.random.split(jax.random.key(7), 3)
    slopes = jnp.arange(3.0)

    def one(key: jax.Array, slope: jax.Array) -> Segment:
        carry = start_envs(env, 2, False, key)
        return collect(env, linear_networks(slope, 1.0), carry, None, CLIP, 5, key)[1]

    together = jax.jit(jax.vmap(one))(keys, slopes)
    for i in range(3):
        alone = jax.jit(one)(keys[i], slopes[i])
        for ours, theirs in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(ours[i], theirs, rtol=1e-6)


def flags(rows: list[str]) -> jax.Array:
    """`done` [T, N] from one text per environment, in which x marks the end of an episode."""
    return jnp.array([[mark == "x" for mark in row] for row in rows]).T


def test_complete_episodes_by_hand():
    """10 steps, limit 4: an episode is used if it began at step 6 or before, so that it ends in time at any length."""
    rows = [
        "..x...x..x",  # begin 0, 3, 7: the third is not used although it ended
        "...x...x..",  # begin 0, 4, 8: the third never ended
        "xxxxxxxxxx",  # the first seven
    ]
    lengths, used = complete_episodes(flags(rows), 4)
    expected_used = ["1111111...", "11111111..", "1111111..."]
    np.testing.assert_array_equal(used, jnp.array([[mark == "1" for mark in row] for row in expected_used]).T)
    np.testing.assert_array_equal(lengths[:7, 0], [3, 3, 3, 4, 4, 4, 4])
    np.testing.assert_array_equal(lengths[:8, 1], [4] * 8)
    np.testing.assert_array_equal(lengths[:7, 2], [1] * 7)


def random_rows(steps: int, count: int, limit: int, seed: int) -> np.ndarray:
    """`done` of rows whose episodes last 1 or `limit` steps, each with probability 1/2."""
    rng = np.random.default_rng(seed)
    done = np.zeros((steps, count), bool)
    for n in range(count):
        t = -1
        while True:
            t += 1 if rng.random() < 0.5 else limit
            if t >= steps:
                break
            done[t, n] = True
    return done


def test_used_episodes_are_whole_and_their_lengths_true():
    """Against the list of episodes: every used sample belongs to one that ended, and knows its length."""
    done = random_rows(25, 50, 8, seed=0)
    lengths, used = map(np.asarray, complete_episodes(jnp.asarray(done), 8))
    expected_used, expected_lengths = np.zeros_like(used), np.zeros_like(lengths)
    for episode in oracles.split_episodes(done):
        if episode[0][0] + 8 <= 25:
            for sample in episode:
                expected_used[sample], expected_lengths[sample] = True, len(episode)
    np.testing.assert_array_equal(used, expected_used)
    np.testing.assert_array_equal(lengths[used], expected_lengths[used])


def test_the_choice_of_episodes_does_not_prefer_short_ones():
    """Episodes of 1 or 10 steps, equally likely: mean length 5.5. Rows of 25 steps, 4000 of them.

    Whether an episode is used depends on when it began, not on how long it lasts, so by Wald's identity the lengths of
    used episodes sum to 5.5 times their expected number. Taking every episode that ended would prefer short ones.
    """
    done = random_rows(25, 4000, 10, seed=1)
    lengths, used = map(np.asarray, complete_episodes(jnp.asarray(done), 10))
    ends = used & done
    row_sums, row_counts = np.where(ends, lengths, 0.0).sum(axis=0), ends.sum(axis=0)
    mean = row_sums.sum() / row_counts.sum()
    error = np.std(row_sums - mean * row_counts) / row_counts.mean() / np.sqrt(4000)  # of a ratio of means
    assert abs(mean - 5.5) < 4 * error < 0.3
    every_ended = [len(episode) for episode in oracles.split_episodes(done)]
    assert np.mean(every_ended) < 5.5 - 20 * error
