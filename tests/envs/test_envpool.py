"""EnvPool: pools behind the same interface, Atari and MuJoCo, and one seed, one result."""

from typing import Any

import numpy as np
import pytest
from needs import needs_envpool
from tiny import tiny

import isobatch as ib
from isobatch.envs import catalog
from isobatch.envs import envpool_backend as envpool_envs
from isobatch.envs.interface import Settings
from isobatch.envs.registry import environment_of, make_env
from isobatch.envs.spaces import Box, Discrete
from isobatch.rollouts.evaluation import evaluate
from isobatch.training.checkpoints import flatten
from isobatch.training.programs import initial_states
from isobatch.training.trainer import train

pytestmark = pytest.mark.xdist_group("envpool")


@needs_envpool
def test_pools_of_every_kind_are_described():
    cartpole = make_env("envpool/CartPole-v1")
    assert (cartpole.obs_shape, cartpole.action_space, cartpole.max_steps) == ((4,), Discrete(2), 500)
    assert make_env("envpool/FrozenLake-v1").obs_shape == (16,)  # one-hot
    assert make_env("envpool/Pong-v5").obs_shape == (4, 84, 84)
    assert make_env("envpool/Pong-v5").obs_dtype == "uint8"
    cheetah = make_env("envpool/HalfCheetah-v4")
    assert (cheetah.obs_shape, cheetah.action_space) == ((17,), Box((6,), (-1.0,) * 6, (1.0,) * 6))
    assert make_env("envpool/Catch-v0").max_steps == 0  # no time limit is known


@needs_envpool
def test_a_step_after_an_end_is_none():
    """CartPole pushed to one side falls within a dozen steps; the row after that has no reward and is not used."""
    config = tiny("ppo", "envpool/CartPole-v1", num_steps=60, total_timesteps=240, staleness=0)
    result = train(config)
    metrics = result.metrics
    assert metrics["charts/episodes"].sum() > 4
    # Each step is rewarded with 1: returns are lengths, and rows that are no steps are in neither.
    np.testing.assert_array_equal(metrics["charts/episodic_return"], metrics["charts/episodic_length"])


@needs_envpool
@pytest.mark.parametrize("algo", ["ppo", "ppg-ewma"])
def test_same_seed_same_bits(algo: str):
    config = tiny(algo, "envpool/CartPole-v1", total_timesteps=32 * 3, normalize_rewards=True)
    one, again = (flatten(train(config, num_seeds=2).states) for _ in range(2))
    assert all(one[name].tobytes() == again[name].tobytes() for name in one)
    head = one["learning/learner/networks/policy/head/weight"]
    assert not np.array_equal(head[0], head[1])


@needs_envpool
def test_evaluation_counts_steps_only():
    config = tiny("ppo", "envpool/CartPole-v1", total_timesteps=32)
    played = evaluate(config, train(config).states, 20, False, 0)
    returns, lengths = played.returns, played.lengths
    np.testing.assert_array_equal(returns, lengths)
    assert np.all(lengths >= 8)


@needs_envpool
def test_whole_episodes():
    """REINFORCE: each iteration resets the pool, and uses the episodes that began early enough to end within it."""
    limit = dict(max_episode_steps=20)
    config = tiny("reinforce", "envpool/CartPole-v1", env_kwargs=limit, num_steps=63, total_timesteps=63 * 4 * 2)
    metrics = train(config).metrics
    # Three episodes of up to 20 steps, with a row between two of them, always fit into 63 rows.
    assert np.all(metrics["charts/episodes"] >= 3 * 4)
    np.testing.assert_array_equal(metrics["charts/episodic_return"], metrics["charts/episodic_length"])
    assert np.all(metrics["charts/episodic_length"] <= 20)
    with pytest.raises(ib.UsageError, match=r"complete_episodes=True needs a time limit, and envpool/Catch-v0 has no"):
        train(tiny("reinforce", "envpool/Catch-v0"))


@needs_envpool
def test_atari_on_the_nature_network():
    config = tiny("ppo", "envpool/Pong-v5", encoder="nature", channels="2,2,2", hidden_sizes="8", num_envs=2,
                  num_steps=4, total_timesteps=8 * 2)  # fmt: skip
    states = initial_states(config, [0])
    result = train(config)
    assert np.isfinite(result.metrics["losses/policy_loss"]).all()
    old, new = (flatten(s.networks) for s in (states, result.states))
    assert all(not np.array_equal(old[name], new[name]) for name in old if name.endswith("weight"))


@needs_envpool
@pytest.mark.parametrize(("env", "rescaled"), [("HalfCheetah-v4", False), ("Pendulum-v1", True)])
def test_continuous_actions(env: str, rescaled: bool):
    config = tiny("ppo", f"envpool/{env}", rescale_actions=rescaled, normalize_observations=True,
                  normalize_rewards=True, total_timesteps=32 * 2)  # fmt: skip
    assert environment_of(config).action_space.rescaled == rescaled
    result = train(config)
    assert np.isfinite(result.metrics["losses/policy_loss"]).all()
    assert float(result.states.obs_moments.weight[0]) == 32 * 2


@needs_envpool
def test_what_does_not_exist_is_refused():
    with pytest.raises(ib.UsageError, match=r"envpool/CoinrunEazy-v0' is unknown; did you mean envpool/CoinrunEasy-v0"):
        make_env("envpool/CoinrunEazy-v0")
    config = tiny("ppo", "envpool/CartPole-v1", env_kwargs={"gravity": 3})
    with pytest.raises(ib.UsageError, match=r"cannot be made .* env_kwargs are {'gravity': 3}"):
        environment_of(config)


def test_a_missing_extra_comes_with_its_command(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(catalog, "is_installed", lambda: False)
    with pytest.raises(ib.UsageError, match=r"not installed: make setup-envpool, or pip install 'isobatch\[envpool\]'"):
        catalog.import_envpool()


@needs_envpool
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("libQt5Gui.so.5: cannot open shared object file", r"Procgen needs Qt .*: apt-get install libqt5gui5"),
        ("EnvPool Procgen requires the system Qt 5 runtime on Linux.", r"Procgen needs Qt .*: apt-get install libqt5"),
        ("libGL.so.1: cannot open shared object file", r"EnvPool cannot be loaded \(libGL.so.1: .*: install what it"),
    ],
)
def test_a_missing_library_comes_with_its_command(text: str, says: str, monkeypatch: pytest.MonkeyPatch):
    """EnvPool loads the library of an environment when one is made."""

    def missing(*_: Any, **__: Any) -> None:
        raise ImportError(text)

    monkeypatch.setattr(catalog.import_envpool(), "make_spec", missing)
    with pytest.raises(ib.UsageError, match=says):
        envpool_envs.EnvPoolEnvironment("CoinrunEasy-v0", Settings())
