"""Normalized returns by hand, and the returns of random actions as they are stated."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import jax
import numpy as np
import pytest

from isobatch.envs.catalog import IN_JAX
from isobatch.envs.registry import make_env
from isobatch.errors import UsageError
from isobatch.statistics.bootstrap import Estimate
from isobatch.statistics.normalization import (
    FIRST_EIGHT,
    LAST_EIGHT,
    OTHERS,
    PROCGEN_HARD,
    ReturnRange,
    band,
    bounds_of,
    normalize,
    possible,
    range_of,
)


def test_an_interval_goes_no_further_than_episodes_can() -> None:
    """CartPole's 500 is 1; its 0 is -22.3/477.7. Acrobot's 0 is 498.7/419.3, and LunarLander has no bounds."""
    most, least, acrobat = 1.0, -22.3 / 477.7, 498.7 / 419.3
    assert possible(Estimate(0.8, -0.5, 1.3), ["CartPole-v1"]) == Estimate(0.8, pytest.approx(least), most)
    assert possible(Estimate(0.8, 0.7, 0.9), ["CartPole-v1"]) == Estimate(0.8, 0.7, 0.9)
    both = possible(Estimate(0.8, 0.5, 1.3), ["CartPole-v1", "Acrobot-v1"])
    assert both.high == pytest.approx((most + acrobat) / 2)
    assert possible(Estimate(0.8, -9.0, 9.0), ["CartPole-v1", "LunarLander-v3"]) == Estimate(0.8, -9.0, 9.0)
    longer = Estimate(1.5, 1.2, 1.8)  # a time limit of one's own may allow more, and then the mean says so
    assert possible(longer, ["CartPole-v1"]) == Estimate(1.5, 1.2, 1.5)
    assert possible(Estimate(0.5, 0.1, 2.0), ["my_module:Unknown-v0"]).high == 2.0


def test_procgen_by_hand() -> None:
    """bigfish 0 to 40; fruitbot -.5 to 27.2: 13.35 is half way; coinrun 5 to 10."""
    assert normalize("bigfish", 20) == 0.5
    np.testing.assert_allclose(normalize("fruitbot", [-0.5, 13.35, 27.2]), [0, 0.5, 1])
    np.testing.assert_allclose(normalize("coinrun", [0, 7.5, 10]), [-1, 0.5, 1])
    assert range_of("BigfishHard-v0") == range_of("bigfish")
    assert len(PROCGEN_HARD) == 16
    assert FIRST_EIGHT == ("coinrun", "starpilot", "caveflyer", "dodgeball", "fruitbot", "chaser", "miner", "jumper")
    assert {*FIRST_EIGHT, *LAST_EIGHT} == set(PROCGEN_HARD)


def test_other_environments_and_given_ranges() -> None:
    mujoco = {f"{name}-v4" for name in ("Hopper", "Swimmer", "HalfCheetah", "Walker2d", "InvertedDoublePendulum")}
    assert set(OTHERS) <= {*IN_JAX, *mujoco, "LunarLander-v3", "BipedalWalker-v3"}
    assert all("random actions" in found.source for found in OTHERS.values())
    assert normalize("CartPole-v1", 500) == 1
    assert normalize("Probe-Delay", 3, {"Probe-Delay": ReturnRange(1, 5, "by hand")}) == 0.5
    assert normalize("bigfish", 20, {"bigfish": ReturnRange(0, 20)}) == 1


def test_refused_ranges() -> None:
    with pytest.raises(UsageError, match=r"'Probe-Delay' has no return range: give one as ranges=\{'Probe-Delay'"):
        normalize("Probe-Delay", 1)
    with pytest.raises(UsageError, match="did you mean bigfish"):
        normalize("bigfsh", 1)
    for low, high in ((1, 1), (2, 1), (float("nan"), 1)):
        with pytest.raises(UsageError, match="two finite returns with low < high"):
            ReturnRange(low, high)


def test_random_returns_are_those_measured() -> None:
    """The committed script on one environment: the table holds what it prints, to within 4 standard errors."""
    path = Path(__file__).parents[2] / "docs" / "results" / "random_returns.py"
    spec = importlib.util.spec_from_file_location("random_returns", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    returns, lengths = script.play(make_env("CartPole-v1"), 256, jax.random.key(1))
    np.testing.assert_array_equal(returns, lengths)
    assert abs(np.mean(returns) - OTHERS["CartPole-v1"].low) < 4 * np.std(returns) / 256**0.5


def test_bands_stay_within_what_an_episode_can_return() -> None:
    """CartPole-v1 gives at most 500; a limit of one's own may be higher, and then the mean itself says so."""
    mean, deviation = np.array([100.0, 490.0, 700.0]), np.array([150.0, 40.0, 60.0])
    for env in ("CartPole-v1", "gymnasium/CartPole-v1"):
        low, high = band(env, mean, deviation)
        np.testing.assert_allclose(low, [0, 450, 640])
        np.testing.assert_allclose(high, [250, 500, 700])
    np.testing.assert_allclose(band("MyEnv-v0", mean, deviation), [mean - deviation, mean + deviation])
    assert bounds_of("envpool/CoinrunHard-v0") == (0, 10)
