"""From settings of Stable-Baselines3 to a run here, compared with Stable-Baselines3 and rl-zoo3 themselves."""

from __future__ import annotations

import ast
import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_interop import ENTRIES, SAMPLE, ZOO

import isobatch as ib
from isobatch import interop
from isobatch.errors import UsageError
from isobatch.interop.conversion import as_algorithm, for_isobatch
from isobatch.settings.config import Config
from isobatch.settings.schedules import STANDARD, ranges_at


def zoo(text: str, algo: str = "ppo") -> Config:
    return interop.read(ZOO, text, algo=algo).config


def zoo_function(name: str) -> Callable[..., Any]:
    """A method of rl_zoo3's ExperimentManager by itself: its module imports what is not installed with it."""
    try:
        files = importlib.metadata.files("rl_zoo3") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("rl_zoo3 is not installed")
    path = next(Path(str(f.locate())) for f in files if f.name == "exp_manager.py")
    found = next(node for node in ast.walk(ast.parse(path.read_text())) if getattr(node, "name", "") == name)
    assert isinstance(found, ast.FunctionDef)
    names: dict[str, Any] = {"Any": Any}
    exec(compile(ast.Module([found], []), str(path), "exec"), names)
    function: Callable[..., Any] = names[name]
    return function


@pytest.mark.parametrize(("algo", "env", "entry"), ENTRIES)
def test_the_reward_normalizer_has_the_discount_that_rl_zoo3_gives_it(
    algo: str, env: str, entry: dict[str, Any]
) -> None:
    """Every entry of its files, through its own function."""
    config = interop.from_settings(ZOO, entry, env=env, algo=algo).config
    there = SimpleNamespace(normalize=False, normalize_kwargs={})
    zoo_function("_preprocess_normalization")(there, dict(entry))
    assert (config.normalize_observations or config.normalize_rewards) == bool(there.normalize)
    if config.normalize_rewards:
        assert config.hypers.reward_norm_gamma == there.normalize_kwargs.get("gamma", 0.99)


def test_what_is_inside_normalize_is_read_and_written() -> None:
    text = "n_envs: 8\nn_steps: 8\nbatch_size: 64\ngamma: 0.999\n"
    text += 'normalize: "dict(norm_obs=True, clip_obs=5.0, epsilon=1e-6)"\n'
    there = interop.read(ZOO, text)
    hypers = there.config.hypers
    assert (hypers.obs_clip, hypers.reward_clip, hypers.reward_norm_gamma) == (5.0, 10.0, 0.999)
    assert there.kept == ["normalize (epsilon)"]
    assert there.text(there.config) == text
    changed = there.write(there.config.replace(obs_clip=3.0))["normalize"]
    assert changed == {"norm_obs": True, "clip_obs": 3.0, "epsilon": 1e-6}
    off = there.config.replace(normalize_observations=False, normalize_rewards=False)
    assert there.write(off)["normalize"] is False
    other = interop.answer(there.config.replace(reward_norm_gamma=0.9), there, ZOO)
    assert other.unsaid == {"reward_norm_gamma": 0.9}  # the zoo always takes the algorithm's


def test_schedules_of_both_clip_ranges_are_read_and_written() -> None:
    there = interop.read(ZOO, "n_envs: 8\nn_steps: 8\nbatch_size: 64\nclip_range: lin_0.2\nclip_range_vf: lin_0.5\n")
    config = there.config
    assert (config.clip_schedule, config.value_clip_schedule, there.kept) == ("linear", "linear", [])
    assert (config.hypers.clip_eps, config.hypers.value_clip_eps, config.hypers.clip_eps_end) == (0.2, 0.5, 0)
    assert there.write(config.replace(value_clip_eps=0.25))["clip_range_vf"] == "lin_0.25"
    assert there.write(config.replace(clip_schedule="constant"))["clip_range"] == 0.2
    plain = interop.read(ZOO, "n_envs: 8\nn_steps: 8\nbatch_size: 64\nclip_range: 0.2\n")
    assert plain.write(plain.config.replace(clip_schedule="linear"))["clip_range"] == "lin_0.2"
    other_end = interop.answer(config.replace(clip_eps_end=0.1), there, ZOO)
    assert other_end.consequences == {"clip_eps_end": "0.0 there: the clip range ends at another width"}


@pytest.mark.parametrize("name", [name for name in interop.LIBRARIES if name != "zoo"])
def test_a_clip_range_that_falls_is_written_or_listed(name: str) -> None:
    """From 0.3 in a line to 0, and the learning rate with it."""
    sizes = dict(num_envs=64, num_steps=32, num_minibatches=4, total_timesteps=64 * 32 * 10, clip_eps=0.3)
    config = ib.preset("ppo", "CartPole-v1", lr_schedule="linear", clip_schedule="linear", **sizes)
    answer = interop.answer(config, None, interop.library(name))
    said = {
        "torchrl": lambda: answer.settings["loss"]["anneal_clip_epsilon"] is True,
        "ml-agents": lambda: answer.consequences["clip_eps_end"].startswith("0.1 there"),
    }
    listed = "constant there: the clip range does not fall over the run"
    assert said[name]() if name in said else answer.consequences["clip_schedule"] == listed


def test_another_schedule_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"clip_range='cos_0.2' is no schedule that is known: use a number, or lin_0.2"
    ):
        zoo("n_envs: 8\nn_steps: 8\nbatch_size: 64\nclip_range: cos_0.2\n")


@pytest.mark.parametrize("rms", [True, False])
def test_a2c_has_the_optimizer_of_stable_baselines(rms: bool) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    model = sb3.A2C("MlpPolicy", "CartPole-v1", use_rms_prop=rms, rms_prop_eps=3e-4, device="cpu")
    config = zoo(f"n_envs: 1\nuse_rms_prop: {rms}\nrms_prop_eps: 3.0e-4\n", algo="a2c")
    defaults = model.policy.optimizer.defaults
    assert config.optimizer == ("rmsprop" if rms else "adam")
    assert config.hypers.beta2 == (defaults["alpha"] if rms else defaults["betas"][1])
    assert config.hypers.optimizer_eps == defaults["eps"]


def test_lengths_and_linear_rates_against_a_run_of_stable_baselines() -> None:
    """100 steps in rollouts of 2 x 16: four iterations there, and here too; the rates are one iteration apart."""
    sb3 = pytest.importorskip("stable_baselines3")
    util = pytest.importorskip("stable_baselines3.common.env_util")
    rates: list[float] = []
    ranges: list[float] = []

    class Recorded(sb3.PPO):  # type: ignore[misc, name-defined]
        def train(self) -> None:
            rates.append(self.lr_schedule(self._current_progress_remaining))
            ranges.append(self.clip_range(self._current_progress_remaining))

    falling = dict(learning_rate=lambda progress: 1e-3 * progress, clip_range=lambda progress: 0.2 * progress)
    settings = dict(n_steps=16, batch_size=32, **falling)
    envs = util.make_vec_env("CartPole-v1", n_envs=2)
    model = Recorded("MlpPolicy", envs, device="cpu", **settings)
    steps = model.learn(100).num_timesteps
    config = ib.from_sb3(settings, env="CartPole-v1", n_envs=2, total_timesteps=100)
    assert (config.env_steps, config.num_iterations) == (steps, len(rates)) == (128, 4)
    rates.clear()
    ranges.clear()
    model.learn(128)
    falls = STANDARD["linear"]
    ours = [config.hypers.learning_rate * falls(i / config.num_iterations) for i in range(config.num_iterations)]
    assert [ours[i] - rates[i] for i in range(4)] == pytest.approx([1e-3 / 4] * 4)
    here = [ranges_at(config, config.hypers, i / 4)["clip_eps"] for i in range(4)]
    assert [here[i] - ranges[i] for i in range(4)] == pytest.approx([0.2 / 4] * 4)
    for number, name in enumerate(("learning rate", "clip range")):
        sentence = f"a linear {name} is one iteration further on there, by 1/4 = 25 % of its start"
        assert sentence in ZOO.differences(config)[number]


def test_the_size_of_the_standard_deviations_difference() -> None:
    """sqrt(64/63) - 1 = 0.79 %."""
    found = ZOO.differences(zoo("n_envs: 8\nn_steps: 64\nbatch_size: 64\n"))
    assert "by 0.79 % at 64 samples" in found[0]
    assert ZOO.differences(zoo("n_envs: 8\nn_steps: 64\nbatch_size: 64\nnormalize_advantage: false\n")) == []


def test_conversion_says_what_changes() -> None:
    """8 x 32 = 256 in two minibatches, 5 epochs: K = 10, beta = 9/11, an age of 4.5 steps of 25.6 samples = 115."""
    there = interop.read(ZOO, SAMPLE.read_text(), env="Schedules-v1")
    made = for_isobatch(there, algo="ppo-ewma")
    assert (made.config.algo, made.config.hypers.beta_prox) == ("ppo-ewma", pytest.approx(9 / 11))
    assert (made.config.advantage_norm, made.config.total_timesteps) == ("iteration", 100_096)
    text = " ".join(made.remarks)
    for part in (
        "115 environment steps",
        "minibatch -> iteration",
        "100,000 -> 100,096",
        "a linear learning rate is one iteration further on there, by 1/391",
        "a linear clip range is one iteration further on there, by 1/391",
    ):
        assert part in text
    with pytest.raises(UsageError, match="algo='ppg' cannot be made of settings of ppo"):
        as_algorithm(there.config, "ppg")
    rllib = interop.read(interop.library("rllib"), "minibatch_size: 500\nlr: 0.001\nnum_epochs: 2\n")
    with pytest.raises(UsageError, match="RLlib's settings do not say how long to train"):
        for_isobatch(rllib)


def test_keyword_arguments_of_stable_baselines() -> None:
    settings = dict(policy="MlpPolicy", n_steps=128, batch_size=256, learning_rate=lambda p: 2e-4 * p, vf_coef=0.25)
    config = ib.from_sb3(settings, env="CartPole-v1", n_envs=8, total_timesteps=10_000)
    assert (config.num_envs, config.num_minibatches, config.lr_schedule) == (8, 4, "linear")
    assert (config.hypers.learning_rate, config.hypers.vf_coef) == (2e-4, 0.5)
    assert ib.from_sb3({"n_steps": 5}, env="CartPole-v1", total_timesteps=50, algo="a2c").optimizer == "rmsprop"
    assert ib.from_sb3(settings, env="x", n_envs=8, total_timesteps=10_000, algo="ppo-ewma").proximal_policy == "ewma"
    with pytest.raises(UsageError, match=r"learning_rate goes from 1 over 0\.25 to 0"):
        ib.from_sb3({"learning_rate": lambda p: p * p}, env="x", total_timesteps=10_000)
