"""Settings of PPO and PPOEWMA at other numbers of environments, and those of models."""

import doctest
import math
from typing import Any

import jax.numpy as jnp
import pytest

import isobatch as ib
from isobatch.settings.geometry import center_of_mass, span

pytest.importorskip("stable_baselines3", reason="the extra sb3 is not installed")

from sb3_models import small, walks
from stable_baselines3 import A2C, PPO

from isobatch.learning.policy_phase import rollout_policy_age
from isobatch.torch import PPOEWMA, ppo_ewma, rescaled, sb3_settings
from isobatch.torch.sb3_settings import config_of

PAPER = dict(n_envs=256, n_steps=256, batch_size=8192, n_epochs=1, learning_rate=5e-4, beta_prox=8 / 9)
# The ladder of the paper: environments -> learning rate, beta_prox, decay of advantage moments.
LADDER = {64: (2.5e-4, 0.969697, 0.6), 16: (1.25e-4, 0.992248, 0.882353), 1: (3.125e-5, 0.999512, 0.992218)}


def test_examples() -> None:
    for module in (sb3_settings, ppo_ewma):
        found = doctest.testmod(module)
        assert found.attempted > 0
        assert found.failed == 0


@pytest.mark.parametrize("n_envs", LADDER)
def test_the_paper_s_ladder(n_envs: int) -> None:
    after = rescaled(PAPER, n_envs)
    assert after["n_envs"] == n_envs
    assert after["batch_size"] == 8192 * n_envs // 256
    assert after["advantage_norm"] == "ewma"
    found = after["learning_rate"], after["beta_prox"], after["adv_norm_decay"]
    assert found == pytest.approx(LADDER[n_envs], rel=1e-5)
    back = rescaled(after, 256)
    assert back.pop("adv_norm_decay") == pytest.approx(0, abs=1e-12)
    assert {name: back[name] for name in PAPER} == pytest.approx(PAPER)


def test_ppo_stays_ppo_and_what_no_rule_is_about_stays() -> None:
    env, hook = walks(8), dict(net_arch=[8])
    before = dict(policy="MlpPolicy", env=env, n_steps=32, batch_size=64, clip_range=lambda p: 0.1, policy_kwargs=hook)
    after = rescaled(before, 2)
    assert after.pop("learning_rate") == pytest.approx(3e-4 / 2)  # SB3's default
    assert after.pop("batch_size") == 16
    before.pop("batch_size")
    assert after == before
    assert after["env"] is env
    assert after["policy_kwargs"] is hook


def test_a_schedule_is_scaled() -> None:
    before = dict(n_steps=64, learning_rate=lambda p: 1e-3 * p)
    after = rescaled(before, 32, n_envs_before=8, keep="minibatch-count")
    assert after["learning_rate"](0.5) == pytest.approx(1e-3)
    assert after["batch_size"] == 256


def test_keeping_the_rollout_changes_nothing_else() -> None:
    settings = dict(n_envs=16, n_steps=1024, batch_size=64, n_epochs=4, learning_rate=3e-4, beta_prox=0.9)
    assert rescaled(settings, 64, n_steps=256) == settings | dict(n_envs=64, n_steps=256)


@pytest.mark.parametrize(("batch_size", "n_epochs"), [(128, 1), (32, 1), (32, 10)])
def test_the_average_of_from_ppo_is_as_old_as_the_policy_that_ppo_holds_on_to(batch_size: int, n_epochs: int) -> None:
    settings = dict(n_steps=32, batch_size=batch_size, n_epochs=n_epochs)
    made = PPOEWMA.from_ppo(settings, n_envs=4)
    config = ib.Config().replace(
        num_envs=4, num_steps=32, num_minibatches=128 // batch_size, update_epochs=n_epochs, proximal_policy="behavior"
    )
    age = float(rollout_policy_age(config, config.hypers, jnp.zeros(())))
    assert center_of_mass(made["beta_prox"]) == pytest.approx(age)
    model = PPOEWMA("MlpPolicy", walks(4), device="cpu", **settings)  # chosen by default, too
    assert model.proximal.beta == pytest.approx(made["beta_prox"])
    steps = [math.floor(i) for i in range(128 // batch_size * n_epochs)]  # the ages of PPO's, one by one
    assert sum(steps) / len(steps) == pytest.approx(age)


def test_rescaled_keeps_age_and_samples_in_environment_steps() -> None:
    before = PPOEWMA.from_ppo(dict(n_steps=32, batch_size=64, n_epochs=4), n_envs=16)
    after = rescaled(before, 2, n_envs_before=16)
    ages = [center_of_mass(s["beta_prox"]) * s["batch_size"] for s in (before, after)]
    assert ages[0] == pytest.approx(ages[1])
    assert span(after["adv_norm_decay"]) == pytest.approx(8)
    PPOEWMA("MlpPolicy", walks(2), device="cpu", **after)  # its constructor takes them


@pytest.mark.parametrize("settings", [dict(n_steps=8), dict(n_steps=8, n_envs=0)])
def test_a_missing_number_of_environments_is_one_sentence(settings: dict[str, Any]) -> None:
    with pytest.raises(ib.UsageError, match="give n_envs_before"):
        rescaled(settings, 4)


def test_the_settings_of_a_model() -> None:
    model = small(PPOEWMA, beta_prox=0.7, learning_rate=lambda p: 1e-3 * p, clip_range=0.1, vf_coef=0.25, gamma=0.9)
    config = config_of(model)
    assert (config.algo, config.proximal_policy, config.hypers.beta_prox) == ("ppo-ewma", "ewma", 0.7)
    assert (config.geometry.iteration_batch, config.geometry.optimization_batch, config.update_epochs) == (24, 12, 2)
    assert (config.lr_schedule, config.hypers.learning_rate, config.hypers.clip_eps) == ("linear", 1e-3, 0.1)
    assert (config.hypers.vf_coef, config.hypers.gamma, config.advantage_norm) == (0.5, 0.9, "iteration")
    assert config.clip_schedule == "constant"
    assert config_of(small(PPO, clip_range=lambda p: 0.1 * p)).clip_schedule == "linear"
    plain = config_of(small(PPO))
    assert (plain.algo, plain.proximal_policy, plain.advantage_norm) == ("ppo", "behavior", "minibatch")
    a2c = config_of(A2C("MlpPolicy", walks(3), device="cpu"))
    assert (a2c.algo, a2c.objective, a2c.geometry.optimization_batch) == ("a2c", "policy-gradient", 15)
    assert a2c.advantage_norm == "none"
