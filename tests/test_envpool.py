"""EnvPool: pools behind the same interface, Procgen on the paper's network, and one seed, one result."""

import numpy as np
import pytest
from tiny import tiny

import isobatch as ib
from isobatch.checkpoints import flatten
from isobatch.envs import env_of, make_env
from isobatch.envs.spaces import Box, Discrete
from isobatch.evaluation import evaluate
from isobatch.hosts import envpool_envs
from isobatch.trainer import train

pytestmark = pytest.mark.xdist_group("envpool")
needs_envpool = pytest.mark.skipif(not envpool_envs.is_installed(), reason="the extra envpool is not installed")


def needs_qt() -> bool:
    try:
        make_env("envpool/CoinrunEasy-v0")
    except ib.UsageError:
        return True
    return False


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
    head = one["learner/networks/policy/head/weight"]
    assert not np.array_equal(head[0], head[1])


@needs_envpool
def test_evaluation_counts_steps_only():
    config = tiny("ppo", "envpool/CartPole-v1", total_timesteps=32)
    returns, lengths = evaluate(config, train(config).states, 20, False, 0)
    np.testing.assert_array_equal(returns, lengths)
    assert np.all(lengths >= 8)


@needs_envpool
@pytest.mark.skipif(envpool_envs.is_installed() and needs_qt(), reason="Procgen's system library is not installed")
def test_procgen_learns_from_bytes():
    """A whole phase of PPG on a game, with a small network of the paper's kind."""
    config = tiny("ppg-ewma", "envpool/CoinrunEasy-v0", encoder="impala", channels="2,2,2", hidden_sizes="8",
                  num_envs=2, num_steps=4, total_timesteps=8 * 3)  # fmt: skip
    result = train(config)
    assert result.states.phase.obs.dtype == np.uint8
    assert np.isfinite(result.metrics["losses/policy_loss"]).all()
    assert np.isfinite(result.metrics["aux/clone_kl"][-1])


@needs_envpool
def test_what_does_not_exist_is_refused():
    with pytest.raises(ib.UsageError, match=r"envpool/CoinrunEazy-v0' is unknown; did you mean CoinrunEasy-v0"):
        make_env("envpool/CoinrunEazy-v0")
    config = tiny("ppo", "envpool/CartPole-v1", env_kwargs={"gravity": 3})
    with pytest.raises(ib.UsageError, match=r"cannot be made .* env_kwargs are {'gravity': 3}"):
        env_of(config)


def test_a_missing_extra_and_a_missing_library_come_with_their_commands(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(envpool_envs, "is_installed", lambda: False)
    with pytest.raises(ib.UsageError, match=r"not installed: make setup-envpool, or pip install 'isobatch\[envpool\]'"):
        envpool_envs.imported()
    error = envpool_envs.missing_library(ImportError("libQt5Gui.so.5: cannot open shared object file"))
    assert "apt-get install libqt5gui5" in str(error)
