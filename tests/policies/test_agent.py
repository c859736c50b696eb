"""A trained policy in other people's loops: it acts as in training, and says what is wrong with an observation."""

import dataclasses
from pathlib import Path

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trained import Runs

import isobatch as ib
from isobatch.envs.registry import make_env
from isobatch.policies.agent import Agent
from isobatch.rollouts.segment import clip_to_bounds, preprocessor
from isobatch.training.loading import load_run

pytestmark = pytest.mark.xdist_group("trained")


def test_actions_are_those_of_the_networks(runs: Runs) -> None:
    """Box actions, normalized observations: recomputed from the checkpoint with the functions that training uses."""
    path = runs("Pendulum-v1", normalize_observations=True)
    run = load_run(path)
    state = jax.tree.map(lambda leaf: leaf[1], run.states)
    obs = np.random.default_rng(0).normal(0, 3, (5, 3)).astype(np.float32)
    seen = preprocessor(state.obs_moments, run.config.hypers.obs_clip)(jnp.asarray(obs))
    assert not np.allclose(seen, obs)
    mode = state.networks.policy(seen).mode()
    agent = ib.load_agent(path, policy_seed=1)
    actions, memory = agent.predict(obs, deterministic=True)
    np.testing.assert_allclose(actions, np.clip(mode, -2, 2), atol=1e-6)
    assert memory is None
    one, _ = agent.predict(obs[2], deterministic=True)
    assert one.shape == (1,)
    np.testing.assert_allclose(one, actions[2], atol=1e-6)


def test_actions_stay_within_their_bounds(runs: Runs) -> None:
    agent = ib.load_agent(runs("Pendulum-v1", normalize_observations=True))
    wild = eqx.tree_at(lambda n: n.policy.log_std, agent.learned.networks, jnp.full(1, 3.0))
    actions, _ = Agent(dataclasses.replace(agent.learned, networks=wild)).predict(np.zeros((50, 3)))
    assert actions.dtype == np.float32
    assert actions.min() == -2
    assert actions.max() == 2
    assert np.array_equal(actions, clip_to_bounds(jnp.asarray(actions), make_env("Pendulum-v1")))


def test_the_same_seed_samples_the_same_actions(runs: Runs) -> None:
    agent = ib.load_agent(runs("Pendulum-v1", normalize_observations=True))
    obs = np.zeros((4, 3), np.float32)
    agent.set_random_seed(7)
    first, second = agent.predict(obs)[0], agent.predict(obs)[0]
    assert not np.array_equal(first, second)
    assert len(np.unique(first)) > 1
    agent.set_random_seed(7)
    assert np.array_equal(agent.predict(obs)[0], first)
    agent.set_random_seed(8)
    assert not np.array_equal(agent.predict(obs)[0], first)


def test_discrete_actions_and_seeds(runs: Runs) -> None:
    path = runs("CartPole-v1")
    agent = ib.load_agent(str(path), checkpoint="best")
    assert agent.learned.seed == 0
    many, state = agent.predict(np.zeros((3, 4)), state=("kept",), episode_start=np.ones(3, bool))
    assert (many.shape, many.dtype, state) == ((3,), np.int64, ("kept",))
    one, _ = agent.predict([0.0, 0.0, 0.0, 0.0])
    assert (one.shape, one.dtype) == ((), np.int64)
    with pytest.raises(ib.UsageError, match=r"policy_seed=5 is not in this run: use 0 or 1"):
        ib.load_agent(path, policy_seed=5)


def test_one_compilation_for_a_size(runs: Runs) -> None:
    agent = ib.load_agent(runs("CartPole-v1"))
    for _ in range(3):
        agent.predict(np.zeros(4))
    agent.set_random_seed(1)
    agent.predict(np.ones(4, np.float64))
    assert agent._act._cache_size() == 1


def test_an_episode_of_gymnasium(runs: Runs) -> None:
    agent, env = ib.load_agent(runs("CartPole-v1")), gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=0)
    over, steps = False, 0
    while not over:
        obs, _, terminated, truncated, _ = env.step(agent.predict(obs, deterministic=True)[0])
        over, steps = terminated or truncated, steps + 1
    assert steps >= 8


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "Taxi-v4"])
def test_actions_can_be_looked_up_in_a_table(env_id: str, runs: Runs) -> None:
    """Both keep their transitions in a dictionary, by the number of the action."""
    agent, env = ib.load_agent(runs(env_id)), gymnasium.make(env_id)
    obs, _ = env.reset(seed=0)
    over, steps = False, 0
    while not over:
        action, _ = agent.predict(obs)
        assert env.action_space.contains(action)
        assert env.action_space.contains(int(action))
        obs, _, terminated, truncated, _ = env.step(action)
        over, steps = terminated or truncated, steps + 1
    assert steps >= 2


ACTIONS = {
    "discrete": ((), {5, 6}),
    "multi-discrete": ((2,), {0, 1, 2}),
    "multi-binary": ((3,), {0, 1}),
    "box": ((2,), None),
}


@pytest.mark.parametrize("kind", ACTIONS)
def test_actions_are_those_that_gymnasium_takes(kind: str, runs: Runs) -> None:
    """Of their dtype, from their first number on, and within bounds: the environment asserts as much."""
    env = gymnasium.make("host_envs:Clock-v0", actions=kind)
    agent = ib.load_agent(runs("host_envs:Clock-v0", env_kwargs=f"{{actions: {kind}}}"))
    obs, _ = env.reset(seed=0)
    over, taken = False, set()
    while not over:
        action, _ = agent.predict(obs)
        obs, _, terminated, truncated, _ = env.step(action)
        over, taken = terminated or truncated, taken | set(np.ravel(action).tolist())
    shape, allowed = ACTIONS[kind]
    assert action.shape == shape
    assert allowed is None or taken <= allowed
    many, _ = agent.predict(np.stack([obs] * 3))
    assert many.shape == (3, *shape)


def test_observations_of_many_parts(runs: Runs) -> None:
    """A dictionary as the environment shows it, or a batch of them; both are flattened as in training."""
    env = gymnasium.make("host_envs:Parts-v0")
    agent = ib.load_agent(runs("host_envs:Parts-v0"))
    shown = [env.observation_space.sample() for _ in range(3)]
    many = {
        "a": np.stack([o["a"] for o in shown]),
        "b": np.stack([o["b"] for o in shown]),
        "c": tuple(np.stack([o["c"][i] for o in shown]) for i in range(2)),
    }
    actions, _ = agent.predict(many, deterministic=True)
    assert actions.shape == (3,)
    assert [int(agent.predict(o, deterministic=True)[0]) for o in shown] == actions.tolist()
    for bad in (many["a"], {"a": many["a"]}, shown[0] | {"b": 9}):
        with pytest.raises(ib.UsageError, match=r"observation does not fit: use one of Dict\("):
            agent.predict(bad)


@pytest.mark.parametrize(
    ("observation", "complaint"),
    [
        (np.zeros(3), r"observation of shape \(3,\) does not fit: use \(4,\), or a batch \(n, 4\)"),
        (np.zeros((2, 2, 4)), r"observation of shape \(2, 2, 4\) does not fit"),
        (0.0, r"observation of shape \(\) does not fit"),
        (np.array(["a", "b", "c", "d"]), r"observation of dtype <U1 is not numeric: use float32"),
        ([0, 0, 0, np.nan], r"observation has values that are not finite"),
    ],
)
def test_bad_observations_are_named(runs: Runs, observation: object, complaint: str) -> None:
    with pytest.raises(ib.UsageError, match=complaint):
        ib.load_agent(runs("CartPole-v1")).predict(observation)


def test_images_of_zeros_and_ones(runs: Runs) -> None:
    agent = ib.load_agent(runs("Breakout-MinAtar"))
    obs = np.random.default_rng(0).random((2, 10, 10, 4)) > 0.5
    assert np.array_equal(
        agent.predict(obs, deterministic=True)[0], agent.predict(obs.astype(float), deterministic=True)[0]
    )
    with pytest.raises(ib.UsageError, match="observation of dtype float64 has values that are no bool: use bool"):
        agent.predict(obs * 0.5)


def test_a_directory_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(ib.UsageError, match="holds no run"):
        ib.load_agent(tmp_path)
