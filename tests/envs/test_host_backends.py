"""Environments outside JAX: ids, spaces, what is done in which order, evaluation."""

from typing import Any

import gymnasium
import gymnax
import host_envs  # registers its environments
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import tiny

import isobatch as ib
from isobatch.envs.gymnasium_backend import GymnasiumEnvironment
from isobatch.envs.host_interface import episode_seed
from isobatch.envs.interface import Settings
from isobatch.envs.registry import IN_GYMNAX_TOO, environment_of, host_environment_of, make_env
from isobatch.envs.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from isobatch.rollouts.evaluation import evaluate
from isobatch.rollouts.segment import clip_to_bounds
from isobatch.settings.config import Config
from isobatch.settings.presets import preset
from isobatch.studies.grid import Cell
from isobatch.studies.lanes import train_cells
from isobatch.training.checkpoints import flatten
from isobatch.training.programs import initial_states
from isobatch.training.trainer import train

pytestmark = pytest.mark.xdist_group("hosts")
MODES = ("disabled", "same-step", "next-step")


def test_ids_name_their_backend():
    assert host_environment_of(Config(env="CartPole-v1")) is None
    assert host_environment_of(Config(env="gymnasium/CartPole-v1")) is not None
    assert host_environment_of(Config(env="Blackjack-v1")) is not None  # gymnax does not have it
    assert make_env("host_envs:Walk-v0").obs_shape == (2,)
    assert make_env("Blackjack-v1").obs_shape == (32 + 11 + 2,)
    assert set(IN_GYMNAX_TOO) == set(gymnax.registered_envs) & set(gymnasium.registry)


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ("gymnasium/CartPole-v7", "did you mean gymnasium/CartPole-v1"),
        ("Blackjak-v1", "did you mean Blackjack-v1"),
        ("no_such_module:Walk-v0", "module that cannot be imported"),
        ("host_envs:Text-v0", r"observations of the kind Text.*Box"),
    ],
)
def test_ids_that_cannot_be_are_refused_in_one_sentence(env: str, says: str):
    with pytest.raises(ib.UsageError, match=says) as caught:
        make_env(env)
    assert "\n" not in str(caught.value)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch):
    """Atari, MuJoCo and Box2D of Gymnasium live in packages of their own, here taken to be absent."""

    def missing(env: str, **_: Any) -> None:
        name = "Box2D" if "Lunar" in env else "MuJoCo"
        raise gymnasium.error.DependencyNotInstalled(
            f'{name} is not installed, run `pip install "gymnasium[{name.lower()}]"`'
        )

    monkeypatch.setattr(gymnasium, "make", missing)
    with pytest.raises(ib.UsageError, match=r"'LunarLander-v3' needs Box2D.*: pip install 'isobatch\[box2d\]'\."):
        GymnasiumEnvironment("LunarLander-v3", Settings())
    with pytest.raises(ib.UsageError, match=r"'HalfCheetah-v5' needs a package.*pip install \"gymnasium\[mujoco\]\""):
        GymnasiumEnvironment("HalfCheetah-v5", Settings())
    monkeypatch.setattr(gymnasium, "registry", {})
    for env in ("ALE/Pong-v5", "gymnasium/ALE/Pong-v5"):
        with pytest.raises(ib.UsageError, match=r"pip install ale-py, and use env='ale_py:ALE/Pong-v5'.*envpool/Pong"):
            make_env(env)


def test_presets_go_by_the_bare_id():
    plain = preset("ppo", "CartPole-v1").to_dict()
    for env in ("gymnasium/CartPole-v1", "envpool/CartPole-v1", "some_module:CartPole-v1"):
        assert preset("ppo", env).to_dict() == plain | {"env": env}


def test_arguments_of_the_constructor_are_part_of_the_config():
    config = tiny(env="host_envs:Clock-v0", env_kwargs="{actions: multi-binary}")
    assert config.to_dict()["env_kwargs"] == {"actions": "multi-binary"}
    assert Config.from_dict(config.to_dict()) == config
    assert hash(config) == hash(tiny(env="host_envs:Clock-v0", env_kwargs={"actions": "multi-binary"}))
    assert environment_of(config).action_space == MultiBinary(3)
    for wrong in ("[1]", "{", 3):
        with pytest.raises(ib.UsageError, match=r"env_kwargs.*a mapping"):
            tiny(env_kwargs=wrong)
    with pytest.raises(ib.UsageError, match=r"cannot be made \(TypeError.*env_kwargs are {'mass': 3}"):
        environment_of(tiny(env="host_envs:Clock-v0", env_kwargs={"mass": 3}))
    with pytest.raises(ib.UsageError, match=r"env_kwargs=.*written in JAX"):
        environment_of(tiny(env="CartPole-v1", env_kwargs={"gravity": 3}))


@pytest.mark.parametrize(
    ("kind", "space"),
    [
        ("discrete", Discrete(2)),
        ("multi-discrete", MultiDiscrete((2, 3))),
        ("multi-binary", MultiBinary(3)),
        ("box", Box((2,), (-2.0, 0.0), (2.0, 4.0))),
    ],
)
def test_every_kind_of_action_is_learned(kind: str, space: Any):
    """The environment itself asserts that the actions are in its space, a Discrete one that starts at 5 included."""
    config = tiny("ppo-ewma", "host_envs:Clock-v0", env_kwargs={"actions": kind}, total_timesteps=32 * 2)
    assert environment_of(config).action_space == space
    result = train(config)
    assert np.isfinite(result.metrics["losses/policy_loss"]).all()
    assert result.metrics["charts/episodes"].sum() > 0


def test_rescaled_actions_reach_the_bounds():
    env = make_env("host_envs:Clock-v0", Settings('{"actions": "box"}', rescale_actions=True))
    taken = clip_to_bounds(jnp.array([[-1.0, -1.0], [0.0, 0.5], [3.0, 3.0]]), env)
    np.testing.assert_allclose(taken, [[-2, 0], [0, 3], [2, 4]])


def test_observations_of_many_parts_stand_one_after_another_by_name():
    """a: 4 numbers; b: one-hot of 3; c: 2 bits, then one-hots of 2 and 3."""
    env = make_env("host_envs:Parts-v0")
    assert env.obs_shape == (4 + 3 + 2 + 2 + 3,)
    vector = env.open([1, 2])
    obs = vector.reset([1, 2], np.ones(2, bool))
    vector.close()
    for row, seed in zip(obs, (1, 2), strict=True):
        one, _ = host_envs.Parts().reset(seed=seed)
        bits, choices = one["c"]
        expected = [one["a"].ravel(), np.eye(3)[one["b"] - 1], bits, np.eye(2)[choices[0]], np.eye(3)[choices[1]]]
        np.testing.assert_allclose(row, np.concatenate(expected), rtol=1e-6)


def test_images_among_other_parts_are_refused():
    with pytest.raises(ib.UsageError, match="images alone"):
        make_env("host_envs:Pixels-v0", Settings('{"kind": "dict"}'))


def test_bytes_stay_bytes_until_the_network():
    config = tiny("ppg", "host_envs:Pixels-v0", channels="2", staleness=1, total_timesteps=32 * 13)
    states = initial_states(config, [0])
    assert states.queue.obs.dtype == states.learning.phase.obs.dtype == np.uint8
    result = train(config)
    assert result.states.queue.obs.dtype == np.uint8
    assert len(np.unique(result.states.learning.phase.obs)) > 100


def test_gymnasium_may_warn_again_when_environments_run():
    """Its logger is silent while faults of workers are raised and copies are made, and not a moment longer."""
    level = gymnasium.logger.min_level
    vector = make_env("host_envs:Walk-v0").open([1, 2])
    vector.reset([1, 2], np.ones(2, bool))
    vector.close()
    assert gymnasium.logger.min_level == level <= gymnasium.logger.WARN


def test_every_episode_has_a_seed_of_its_own():
    seeds = {episode_seed(run, env, episode) for run in range(9) for env in range(9) for episode in range(9)}
    assert len(seeds) == 9**3
    assert all(0 <= seed < 2**31 for seed in seeds)


def bits(states: Any) -> dict[str, bytes]:
    return {name: leaf.tobytes() for name, leaf in flatten(states).items()}


@pytest.mark.parametrize(("algo", "staleness"), [("ppo", 0), ("ppg-ewma", 1), ("reinforce", 0)])
def test_same_seed_same_bits(algo: str, staleness: int):
    sizes = dict(num_steps=40, total_timesteps=160 * 3) if algo == "reinforce" else {}
    sizes |= dict(total_timesteps=32 * (3 + staleness)) if algo == "ppg-ewma" else {}
    config = tiny(algo, "host_envs:Walk-v0", staleness=staleness, normalize_observations=True, **sizes)
    one, again = train(config, num_seeds=2), train(config, num_seeds=2)
    assert bits(one.states) == bits(again.states)
    weights = flatten(one.states)["learning/learner/networks/policy/head/weight"]
    assert not np.array_equal(weights[0], weights[1])


def test_a_seed_in_a_group_meets_what_it_meets_alone():
    config = tiny("ppo", "host_envs:Walk-v0", normalize_observations=True)
    group, alone = train(config, num_seeds=2), train(config, seed=1)
    for name in ("charts/episodic_length", "losses/entropy"):
        rows = group.metrics["seed"] == 1
        np.testing.assert_allclose(alone.metrics[name][0], group.metrics[name][rows][0], rtol=1e-3)


def test_evaluation_plays_whole_episodes(monkeypatch: pytest.MonkeyPatch):
    """Episodes of the clock last 3, 4, 5, 3, ... steps in each environment; 20 of them on 16: 16 firsts, 4 seconds."""
    for mode in MODES:
        config = tiny("ppo", "host_envs:Clock-v0", autoreset=mode)
        states = initial_states(config, [0, 1])
        for deterministic in (True, False):
            played = evaluate(config, states, 20, deterministic, 3)
            returns, lengths = played.returns, played.lengths
            np.testing.assert_array_equal(lengths, np.tile([3] * 16 + [4] * 4, (2, 1)))
            # Rewards are clock + half of an action of 5 or 6.
            base = np.where(lengths == 3, 1 + 2 + 3, 1 + 2 + 3 + 4) + 2.5 * lengths
            assert np.all((returns >= base) & (returns <= base + 0.5 * lengths))


def test_cells_of_a_study_are_lanes_outside_too():
    """Two learning rates, two seeds: the first rollouts are the same, what is learned from them is not."""
    configs = [tiny("ppo", "host_envs:Walk-v0", total_timesteps=32 * 4, learning_rate=rate) for rate in (1e-3, 1e-1)]
    cells = [Cell(config, {"learning_rate": config.hypers.learning_rate}) for config in configs]
    slow, fast = (outcome.table for outcome in train_cells(cells, [0, 1]))
    assert slow["seed"].tolist() == [0, 1] * 4
    first = slow["iteration"] == 1
    np.testing.assert_array_equal(slow["charts/episodes"][first], fast["charts/episodes"][first])
    assert np.all(slow["losses/entropy"][~first] != fast["losses/entropy"][~first])


def test_what_environments_outside_cannot_do_is_refused():
    with pytest.raises(ib.UsageError, match=r"staggered_resets.*cannot be set"):
        train(tiny("ppo", "host_envs:Walk-v0", staggered_resets=True))
    with pytest.raises(ib.UsageError, match=r"complete_episodes.*time limit"):
        train(tiny("reinforce", "host_envs:Clock-v0"))
