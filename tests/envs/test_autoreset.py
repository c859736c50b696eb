"""The three modes of resetting against one oracle, which plays the episodes itself and resets them when they end."""

from functools import partial
from typing import Any, NamedTuple

import host_envs
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from isobatch.envs.host_interface import episode_seed
from isobatch.envs.registry import environment_of
from isobatch.learning.policy_phase import prepare, total_loss
from isobatch.networks.actor_critic import ActorCritic
from isobatch.networks.distributions import Categorical
from isobatch.networks.initialization import make_networks
from isobatch.networks.moments import Moments, RewardScale
from isobatch.rollouts.collector import Actor, Collector
from isobatch.rollouts.host_rollout import PolicyOutput, ProcessedRollout, host_carry, process, replaced, value
from isobatch.rollouts.packing import Packing, packed
from isobatch.settings.config import Config

pytestmark = pytest.mark.xdist_group("hosts")
MODES = ("disabled", "same-step", "next-step")
RUN_SEED, ENVS = 7, 2
MEAN, VARIANCE, CLIP = np.array([1.5, 0.4]), np.array([2.0, 0.3]), 10.0
MOMENTS = Moments(jnp.asarray(MEAN, jnp.float32), jnp.asarray(VARIANCE, jnp.float32), jnp.float32(9.0))


def choice(obs: np.ndarray) -> np.ndarray:
    """Acts by what it sees alone."""
    return (np.round(obs[..., 0] * 7 + obs[..., 1] * 100) % 2).astype(np.int32)


def scripted(key: Any, obs: np.ndarray) -> Any:
    """The same as an actor, which thinks something of each state."""
    return key, packed(thoughts(obs[0]))[None]


def thoughts(obs: Any) -> PolicyOutput:
    action = jnp.asarray(choice(obs))
    return PolicyOutput(action, action, Categorical(jnp.stack([obs[..., 0], 2 * obs[..., 1]], axis=-1)), None)


def settings(mode: str, steps: int, **overrides: Any) -> Config:
    return Config(
        env="host_envs:Clock-v0", num_envs=ENVS, num_steps=steps, num_minibatches=1, total_timesteps=1000,
        hidden_sizes=(4,), autoreset=mode, **overrides,
    ).replace(ent_coef=0.0, gamma=0.9, gae_lambda=0.8)  # fmt: skip


def networks_of(config: Config) -> ActorCritic:
    env = environment_of(config)
    return make_networks(config, env.obs_shape, env.action_space, 0)


def played(config: Config, networks: ActorCritic, rollouts: int) -> list[ProcessedRollout]:
    """Some rollouts of two environments, as a run makes them."""
    env = environment_of(config)
    collector = Collector(env, config, np.array([RUN_SEED]), 30.0)
    shown = np.zeros((ENVS, *env.obs_shape), np.float32)
    judged = partial(value, networks, MOMENTS, jnp.float32(CLIP))
    actor = Actor(scripted, lambda obs: judged(jnp.asarray(obs)), Packing(thoughts(shown)))
    process_rollout = jax.jit(partial(process, False, env, networks, MOMENTS, CLIP))
    carry = jax.tree.map(lambda leaf: np.asarray(leaf)[None], host_carry(env, ENVS, RUN_SEED))
    carry, found = collector.open(carry, 0, print), []
    for i in range(rollouts):
        before = (carry.episodes, carry.state.fills_in)
        carry, rollout = collector.wait(collector.start(carry, actor, [jax.random.key(0)], i))
        found.append(process_rollout(*jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], (*before, rollout))))
        left = (found[-1].open_episodes, found[-1].fills_in)
        episodes, fills_in = jax.tree.map(lambda leaf: np.asarray(leaf)[None], left)
        carry = replaced(carry, state=replaced(carry.state, fills_in=fills_in), episodes=episodes)
    collector.close()
    return found


def valid_rows(found: ProcessedRollout) -> np.ndarray:
    segment = found.segment
    return np.ones(segment.reward.shape, bool) if segment.valid is None else np.asarray(segment.valid)


class Record(NamedTuple):
    """What an oracle saw of its steps, [take, envs, ...]. It has no rows that are no steps."""

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    led_to: np.ndarray  # also where the episode ended


def play(skip: int, take: int) -> Record:
    """Steps skip .. skip + take - 1 of each environment, in one loop with its own resets."""
    columns = []
    for n in range(ENVS):
        env, steps = host_envs.Clock(), []
        obs, _ = env.reset(seed=episode_seed(RUN_SEED, n, 0))
        for _ in range(skip + take):
            action = int(choice(obs))
            led_to, reward, terminated, truncated, _ = env.step(action + 5)  # its actions begin with 5
            steps.append((obs, action, reward, terminated, truncated, led_to))
            obs = env.reset()[0] if terminated or truncated else led_to
        columns.append(steps[skip:])
    fields = zip(*(zip(*steps, strict=True) for steps in columns), strict=True)
    return Record(*(np.stack([np.array(column, float) for column in field], axis=1) for field in fields))


def seen(obs: np.ndarray) -> np.ndarray:
    return np.clip((obs - MEAN) / (np.sqrt(VARIANCE) + 1e-8), -CLIP, CLIP)


def weights_by_hand(kind: str, done: np.ndarray) -> np.ndarray:
    """Of each sample in the sum over all: a trajectory is what a rollout holds of an episode."""
    weight, trajectories = np.zeros(done.shape), oracles.split_trajectories(done)
    for samples in trajectories:
        for sample in samples:
            one_only = [[float(other == sample) for other in each] for each in trajectories]
            weight[sample] = oracles.aggregate(kind, one_only, horizon=1.0)
    return weight


def taught_by_hand(config: Config, networks: ActorCritic, record: Record) -> dict[str, Any]:
    """Advantages, targets, weights and the clipped policy loss, from the equations; networks are given functions."""
    hypers = config.hypers
    states, after = (jnp.asarray(seen(obs), jnp.float32) for obs in (record.obs, record.led_to))
    now, then = (np.asarray(networks.value(obs), float) for obs in (states, after))
    reward, done = record.reward, (record.terminated + record.truncated) > 0
    if config.normalize_rewards:
        (reward,), _ = oracles.scale_rewards([(reward, done)], hypers.reward_norm_gamma, hypers.reward_clip)
    advantage = oracles.gae(reward, now, then, record.terminated, record.truncated, hypers.gamma, hypers.gae_lambda)
    target = advantage + now
    if config.advantage_norm != "none":
        advantage = (advantage - advantage.mean()) / (advantage.std() + hypers.adv_norm_eps)
    weight = weights_by_hand(config.aggregation, done)
    action = record.action.astype(int)
    current = np.exp(np.asarray(networks.policy(states).log_prob(jnp.asarray(action)), float))
    loss = 0.0
    for t, n in np.ndindex(*reward.shape):
        behavior = oracles.softmax(np.array([record.obs[t, n, 0], 2 * record.obs[t, n, 1]]))[action[t, n]]
        pi, old, a = (np.array([x]) for x in (current[t, n], behavior, advantage[t, n]))
        loss += weight[t, n] * oracles.ppo_clip(pi, old, a, hypers.clip_eps)[0]
    return dict(advantage=advantage, target=target, weight=weight, obs=seen(record.obs), action=action, loss=loss)


@partial(jax.jit, static_argnums=0)
def taught(config: Config, networks: ActorCritic, segment: Any) -> Any:
    scale = RewardScale.empty(ENVS) if config.normalize_rewards else None
    batch, *_ = prepare(config, segment, networks.policy, scale, Moments.empty(), config.hypers)
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), batch)
    return batch, total_loss(config, "policy", flat, networks, None, config.hypers)[0]


SETTINGS: dict[str, Any] = {
    "plain": {},
    "trajectory": dict(aggregation="trajectory", advantage_norm="none"),
    "normalized": dict(normalize_rewards=True, advantage_norm="ewma", aggregation="trajectory-mean"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("rows", "rollouts", "kind"),
    [
        # Of three and four rows: rollouts that end with an end, with a step that was cut off, within an episode;
        # in mode next-step some begin or end with a row that is none.
        (3, 3, "plain"),
        (4, 4, "plain"),
        (12, 1, "trajectory"),
        (12, 1, "normalized"),
    ],
)
def test_every_mode_teaches_what_the_oracle_says(mode: str, rows: int, rollouts: int, kind: str):
    """Episodes of 3, 4 and 5 steps in turn, every second one cut off. The oracle has steps, the modes have rows."""
    config = settings(mode, rows, **SETTINGS[kind])
    networks, skip = networks_of(config), 0
    for found in played(config, networks, rollouts):
        valid = valid_rows(found)
        take = int(valid[:, 0].sum())
        assert (valid.sum(axis=0) == take).all()
        expected = taught_by_hand(config, networks, play(skip, take))
        batch, loss = taught(config, networks, found.segment)
        for name in ("obs", "action", "advantage", "target", "weight"):
            ours = np.asarray(getattr(batch, name))
            ours = ours / ours.size if name == "weight" else ours
            shape = (take, ENVS, *ours.shape[2:])
            np.testing.assert_allclose(ours[valid].reshape(shape), expected[name], rtol=2e-5, atol=1e-5, err_msg=name)
        assert np.all(np.asarray(batch.weight)[~valid] == 0)
        np.testing.assert_allclose(loss, expected["loss"], rtol=2e-5, atol=1e-5)
        skip += take
    # Rows that are none: one after each end, unless it is in the last row.
    whole = play(0, skip)
    ends = int((whole.terminated + whole.truncated)[:, 0].sum() - found.fills_in[0])
    assert skip == rows * rollouts - (ends if mode == "next-step" else 0)


def test_a_row_that_fills_in_at_the_beginning_of_a_rollout_is_known_to_be_none():
    """Rollouts of 3 rows: the first is the episode of 3 steps, so the second begins with the row of its reset."""
    config = settings("next-step", 3)
    _, second, third = played(config, networks_of(config), 3)
    np.testing.assert_array_equal(second.segment.valid, [[False] * 2, [True] * 2, [True] * 2])
    # Two more steps of the episode of 4, then the next reset.
    np.testing.assert_array_equal(third.segment.valid, [[True] * 2, [True] * 2, [False] * 2])
    np.testing.assert_array_equal([third.episodes.count, third.episodes.length_sum], [2, 8])


def test_an_array_that_is_shown_again_and_again_keeps_what_an_episode_ended_with():
    """In mode same-step the reset comes before anybody has read the last observation."""
    for vectorization in ("sync", "async"):
        config = settings("same-step", 5, vectorization=vectorization).replace(env_kwargs={"shows": "one-array"})
        vector = environment_of(config).open([1, 2])
        try:
            vector.reset([1, 2], np.ones(2, bool))
            for _ in range(3):
                vector.send(np.zeros(2, np.int32))
                moved = vector.receive()
        finally:
            vector.close()
        assert sorted(moved.final) == [0, 1]
        assert [moved.final[i][0] for i in range(2)] == [3.0, 3.0]
        assert moved.obs[:, 0].tolist() == [0.0, 0.0]
