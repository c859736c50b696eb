"""The examples run, as small as they can be, and show what they say."""

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import jax.numpy as jnp
import numpy as np
import pytest
from needs import one_more_case
from tiny import tiny

import isobatch as ib

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"


@cache
def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for their annotations
    spec.loader.exec_module(module)
    return module


def test_sweep_learning_rates() -> None:
    """The returns of each rate and seed are those of a run of its own."""
    config, rates = tiny(), jnp.array([1e-3, 1e-1])
    returns = example("sweep_learning_rates").sweep(config, rates, range(2))
    assert returns.shape == (2, 2, config.num_iterations)
    for i, rate in enumerate((1e-3, 1e-1)):
        result = ib.train(config.replace(learning_rate=rate), num_seeds=2)
        alone = result.metrics["charts/episodic_return"].reshape(config.num_iterations, 2).T
        np.testing.assert_allclose(returns[i], alone, rtol=1e-5)


def test_own_environment(capsys: pytest.CaptureFixture[str]) -> None:
    result = example("own_environment").main(total_timesteps=16 * 32 * 2)
    assert result.config.env == "Corridor"
    assert "ppo on ShortCorridor" in capsys.readouterr().out
    assert result.agent().predict(np.eye(10)[0])[0] in (0, 1)


def test_own_gymnasium_environment(capsys: pytest.CaptureFixture[str]) -> None:
    result = example("own_gymnasium_environment").main(total_timesteps=8 * 64)
    assert result.config.env == "make_thermostat"
    assert "ppo on Thermostat, iteration 1, most likely actions, 20 episodes" in capsys.readouterr().out


@pytest.mark.parametrize("algo", ["ppo-ewma", pytest.param("a2c", marks=one_more_case)])
def test_own_networks(algo: str) -> None:
    result = example("own_networks").main(total_timesteps=2048, algo=algo)
    assert result.config.networks == "make"
    assert result.agent(seed=1).predict(np.zeros(4))[0] in (0, 1)


def test_own_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    result = example("own_schedule").main(total_timesteps=8 * 128 * 20)
    rates = result.metrics["charts/learning_rate"] / result.config.hypers.learning_rate
    progress = np.arange(len(rates)) / len(rates)
    np.testing.assert_allclose(rates, np.minimum(progress / 0.1, (1 - progress) / 0.9), atol=1e-6)
    assert "ppo on CartPole-v1" in capsys.readouterr().out


def test_cleanrl_ppo_ewma(capsys: pytest.CaptureFixture[str]) -> None:
    """Learns, and rescales itself: a quarter of the environments, minibatches of a quarter."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    module = example("cleanrl_ppo_ewma")
    returns = module.main(module.Args(total_timesteps=8_192))
    assert np.mean(returns[-20:]) > 2 * np.mean(returns[:20])
    assert module.main(module.Args(total_timesteps=1_024, num_envs=4))
    said = capsys.readouterr().out
    assert "16 environments: minibatches of 128, learning rate 0.0025, beta_prox 0.8889, advantage decay 0.0000" in said
    assert "4 environments: minibatches of 32, learning rate 0.00125, beta_prox 0.9697, advantage decay 0.6000" in said
