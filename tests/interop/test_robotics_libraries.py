"""rsl_rl, rl_games, Brax, PufferLib, ML-Agents and the newer TorchRL: what their settings mean, by hand."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from isobatch import interop
from isobatch.errors import UsageError
from isobatch.interop.library import LibrarySettings
from isobatch.rescaling import rescale
from isobatch.settings.config import Config
from isobatch.settings.presets import preset


def read(name: str, text: str, **options: Any) -> LibrarySettings:
    return interop.read(interop.library(name), text, **options)


def sizes(config: Config) -> tuple[int, int, int, int]:
    return config.num_envs, config.num_steps, config.num_minibatches, config.update_epochs


RSL_RL = """\
# As a run dumps it.
seed: 42
num_steps_per_env: 24
max_iterations: 1500
obs_groups: !!python/tuple [policy]
policy:
  actor_obs_normalization: true
algorithm:
  num_learning_epochs: 5
  num_mini_batches: 4
  learning_rate: 1.0e-3  # a start
  schedule: adaptive
  desired_kl: 0.01
  gamma: 0.99
  lam: 0.95
  entropy_coef: 0.005
  value_loss_coef: 1.0
  use_clipped_value_loss: true
  clip_param: 0.2
  max_grad_norm: 1.0
"""


def test_rsl_rl_counts_iterations_and_minibatches() -> None:
    """4,096 x 24 = 98,304 samples in 4 minibatches of 24,576, 1,500 times; a quarter of that four times as often."""
    there = read("rsl-rl", RSL_RL, overrides={"num_envs": 4096})
    config = there.config
    assert sizes(config) == (4096, 24, 4, 5)
    assert config.total_timesteps == 1500 * 98_304
    assert (config.hypers.vf_coef, config.hypers.value_clip_eps) == (2.0, 0.2)
    assert (config.advantage_norm, config.normalize_observations) == ("iteration", True)
    assert (config.lr_schedule, config.hypers.desired_kl) == ("adaptive", 0.01)
    assert there.write(config.replace(lr_schedule="constant"))["algorithm"]["schedule"] == "fixed"
    control = there.control
    assert control is not None
    assert (control.target, control.kind, control.per, control.low, control.high) == (
        0.01,
        "adaptive",
        "minibatch",
        1e-5,
        1e-2,
    )
    text = there.text(rescale(config, num_envs=1024).after)
    assert text == RSL_RL.replace("1.0e-3 ", "0.0005 ").replace("1500", "6000")
    assert interop.answer(rescale(config, num_envs=1024).after, there, there.library).unsaid["num_envs"] == 1024


def test_rsl_rl_needs_the_environments_and_never_normalizes_otherwise_than_asked() -> None:
    with pytest.raises(UsageError, match="num_envs is missing from the rsl_rl settings: add it, or give --num-envs"):
        read("rsl-rl", RSL_RL)
    per_minibatch = RSL_RL + "  normalize_advantage_per_mini_batch: true\n"
    assert read("rsl-rl", per_minibatch, overrides={"num_envs": 64}).config.advantage_norm == "minibatch"
    written = interop.write(interop.library("rsl-rl"), "ppo", Config(advantage_norm="ewma"))
    assert written["algorithm"].get("normalize_advantage_per_mini_batch", False) is False


RL_GAMES = """\
params:
  algo: {name: a2c_continuous}
  config:
    env_name: rlgpu
    num_actors: -1  # filled in by the script
    horizon_length: 32
    minibatch_size: 16384
    mini_epochs: 8
    learning_rate: 5e-4
    lr_schedule: adaptive
    kl_threshold: 0.008
    schedule_type: standard
    gamma: 0.99
    tau: 0.95
    e_clip: 0.2
    clip_value: True
    critic_coef: 4
    entropy_coef: 0.0
    truncate_grads: True
    grad_norm: 1.0
    normalize_input: True
    normalize_advantage: True
    max_epochs: 150
"""


def test_rl_games_counts_samples_of_a_minibatch() -> None:
    """4,096 x 32 = 131,072 = 8 x 16,384. Its loss is 0.5 critic_coef (error)^2, ours vf_coef/2 (error)^2."""
    there = read("rl-games", RL_GAMES, overrides={"num_envs": 4096})
    config = there.config
    assert sizes(config) == (4096, 32, 8, 8)
    assert (config.hypers.vf_coef, config.hypers.obs_clip, config.total_timesteps) == (4.0, 5.0, 150 * 131_072)
    assert (config.lr_schedule, config.hypers.desired_kl) == ("adaptive", 0.008)
    assert there.control is not None
    assert (there.control.target, there.control.per, there.control.low) == (0.008, "epoch", 1e-6)
    answer = interop.answer(rescale(config, num_envs=1024).after, there, there.library)
    assert answer.unsaid["num_envs"] == 1024
    with pytest.raises(
        UsageError, match="num_actors is missing from the rl_games settings: add it, or give --num-envs"
    ):
        read("rl-games", RL_GAMES)
    text = answer.text
    assert text == RL_GAMES.replace("16384", "4096").replace("5e-4", "0.00025").replace("150", "600")


def test_rl_games_agents_count_as_environments() -> None:
    """8 actors x 128 steps do not make minibatches of 1,536; with 3 agents each they are 3,072 samples, so two."""
    text = RL_GAMES.replace("-1  # filled in by the script", "8").replace("16384", "1536").replace(": 32", ": 128")
    there = read("rl-games", text)
    assert sizes(there.config)[:3] == (24, 128, 2)
    written = there.write(rescale(there.config, factor=0.5).after)["params"]["config"]
    assert (written["num_actors"], written["minibatch_size"]) == (16, 3072)


def test_rl_games_gradients_without_a_limit() -> None:
    there = read(
        "rl-games", RL_GAMES.replace("truncate_grads: True", "truncate_grads: False"), overrides={"num_envs": 512}
    )
    assert there.config.hypers.max_grad_norm == float("inf")
    assert there.write(there.config.replace(max_grad_norm=0.5))["params"]["config"]["truncate_grads"] is True
    with pytest.raises(UsageError, match="'sac' is not its PPO"):
        read("rl-games", RL_GAMES.replace("a2c_continuous", "sac"))


BRAX = "num_envs: 2048\nunroll_length: 10\nbatch_size: 1024\nnum_minibatches: 32\nnum_updates_per_batch: 4\n"


def test_a_brax_batch_is_one_of_unrolls() -> None:
    """1,024 x 32 = 32,768 unrolls of 10 steps by 2,048 environments: 16 each, T = 160; minibatches of 10,240."""
    there = read("brax", BRAX + "learning_rate: 3.0e-4\ndiscounting: 0.97\n")
    assert sizes(there.config) == (2048, 160, 32, 4)
    assert there.config.geometry.optimization_batch == 10_240
    assert there.config.hypers.vf_coef == 0.5
    quarter = there.write(rescale(there.config, num_envs=512).after)
    assert (quarter["num_envs"], quarter["batch_size"], quarter["unroll_length"]) == (512, 256, 10)
    kept = there.write(rescale(there.config, num_envs=512, keep="iteration-batch").after)
    assert kept == there.settings | {"num_envs": 512}  # nothing else has to be said
    with pytest.raises(UsageError, match="not a whole number for num_envs=3000"):
        read("brax", BRAX.replace("2048", "3000"))


PUFFER = """\
[vec]
num_envs = 8

[env]
num_envs = 1024

[train]
batch_size = auto
bptt_horizon = 64
minibatch_size = 32768
learning_rate = 0.02
vf_coef = 1.5
"""


def test_pufferlib_batches() -> None:
    """8 x 1,024 agents x 64 steps = 524,288 = 16 x 32,768."""
    there = read("pufferlib", PUFFER)
    assert sizes(there.config) == (8192, 64, 16, 1)
    assert "derived for Adam" in there.remarks[0]  # Muon is its default
    assert read("pufferlib", PUFFER + "optimizer = adam\n").remarks == []
    assert (there.config.hypers.vf_coef, there.config.lr_schedule) == (1.5, "linear")
    text = there.text(rescale(there.config, factor=4).after)
    assert text == PUFFER.replace("1024", "256").replace("32768", "8192").replace("0.02", "0.01")
    newer = "[vec]\ntotal_agents = 4096\n[train]\nhorizon = 64\nminibatch_size = 65_536\nreplay_ratio = 1.42\n"
    there = read("pufferlib", newer + "ent_coef = 0.01\nlearning_rate = 0.1\n")
    assert sizes(there.config) == (4096, 64, 4, 1)
    assert "train.replay_ratio (1.42 passes: a whole number here)" in there.kept
    assert "total_agents = 1024\n" in there.text(rescale(there.config, factor=4).after)


def test_pufferlib_agents_that_the_file_does_not_say() -> None:
    """With 4 agents in each of the 8,192 environments, given beside the file, half of them are 512 for a worker."""
    there = read("pufferlib", PUFFER, overrides={"num_envs": 32_768})
    assert there.text(there.config) == PUFFER
    assert "num_envs = 512\n" in there.text(rescale(there.config, factor=2).after)
    assert "num_envs = 256\n" in there.text(rescale(there.config, factor=4).after)  # 8,192, as the file alone says
    assert interop.answer(rescale(there.config, factor=4).after, there, there.library).unsaid == {}


ML_AGENTS = """\
default_settings:
  hyperparameters: {beta: 0.01}
behaviors:
  Ball:
    trainer_type: ppo
    hyperparameters:
      batch_size: 64
      buffer_size: 12000  # of all agents
      learning_rate: 0.0003
      learning_rate_schedule: linear
    reward_signals:
      extrinsic: {gamma: 0.98}
    time_horizon: 1000
  Other:
    trainer_type: sac
"""


def test_ml_agents_buffers_keep_what_does_not_fill_a_minibatch() -> None:
    """12,000 / 64 = 187.5: 187 minibatches, 11,968 steps = 8 x 1,496. Doubled: 24,000 and 128, so 187 again."""
    there = read("ml-agents", ML_AGENTS, env="Ball")
    config = there.config
    assert sizes(config) == (8, 1496, 187, 3)
    assert there.remarks == ["beta falls to 1e-5 linearly over a run there, and stays in a run here"]
    assert (config.clip_schedule, config.value_clip_schedule, config.hypers.clip_eps_end) == ("linear", "linear", 0.1)
    assert (config.hypers.ent_coef, config.hypers.gamma, config.hypers.vf_coef) == (0.01, 0.98, 1.0)
    text = there.text(rescale(config, factor=0.5).after)
    expected = ML_AGENTS.replace("12000", "24000").replace(": 64", ": 128")
    rate = yaml.safe_load(text)["behaviors"]["Ball"]["hyperparameters"]["learning_rate"]
    assert text == expected.replace("0.0003", repr(rate))
    assert rate == pytest.approx(3e-4 * 2**0.5)
    with pytest.raises(UsageError, match="trainer_type='sac' of Other"):
        read("ml-agents", ML_AGENTS, env="Other")
    with pytest.raises(UsageError, match="env is missing"):
        read("ml-agents", ML_AGENTS)


def test_what_a_behavior_takes_from_the_defaults_becomes_its_own() -> None:
    there = read("ml-agents", ML_AGENTS, env="Ball")
    behavior = yaml.safe_load(there.text(there.config.replace(ent_coef=0.02)))
    assert behavior["default_settings"]["hyperparameters"] == {"beta": 0.01}
    assert behavior["behaviors"]["Ball"]["hyperparameters"]["beta"] == 0.02


TORCHRL = """\
env: {env_name: HalfCheetah-v4, num_envs: 8}
collector: {frames_per_batch: 2048, total_frames: 1000000}
optim: {lr: 0.0003}
loss: {mini_batch_size: 256, ppo_epochs: 1, delay_actor: true, max_importance_ratio: 100.0}
target_net_updater: {tau: 0.1}
"""


def test_torchrl_has_ppo_ewma() -> None:
    """tau 0.1 is a decay of 0.9, a center of mass of 9 gradient steps; at a quarter of the batch 36, so 1/37."""
    there = read("torchrl", TORCHRL)
    config = there.config
    assert (config.algo, config.proximal_policy, config.hypers.beta_prox) == ("ppo-ewma", "ewma", 0.9)
    assert config.hypers.importance_cap == 100
    written = there.write(rescale(config, num_envs=2).after)
    assert written["target_net_updater"]["tau"] == pytest.approx(1 / 37)
    assert "eps" not in written["target_net_updater"]
    plain = read("torchrl", TORCHRL.replace("delay_actor: true", "delay_actor: false"))
    assert (plain.config.algo, plain.config.proximal_policy) == ("ppo", "behavior")
    default = read("torchrl", TORCHRL.replace("target_net_updater: {tau: 0.1}\n", ""))
    assert default.config.hypers.beta_prox == pytest.approx(0.999)  # the default of its soft update
    ours = interop.answer(preset("ppo-ewma", "CartPole-v1"), None, interop.library("torchrl"))
    assert ours.settings["target_net_updater"] == {"eps": pytest.approx(8 / 9)}
    assert not {"proximal_policy", "beta_prox"} & set(ours.unsaid)


def test_skrl_schedules_by_the_divergence() -> None:
    text = "agent:\n  rollouts: 16\n  learning_rate_scheduler: KLAdaptiveLR\n"
    text += "  learning_rate_scheduler_kwargs: {kl_threshold: 0.01}\n"
    there = read("skrl", text + "  state_preprocessor: RunningStandardScaler\n", overrides={"num_envs": 64})
    assert there.control is not None
    assert (there.control.target, there.control.per) == (0.01, "epoch")
    assert there.config.normalize_observations
    early = read("skrl", "agent:\n  rollouts: 16\n  kl_threshold: 0.02\n", overrides={"num_envs": 64}).control
    assert early is not None
    assert early.kind == "stop"
    assert there.config.lr_schedule == "adaptive"
    null = "agent:\n  rollouts: 16\n  learning_rate_scheduler: null\n  learning_rate_scheduler_kwargs: null\n"
    plain = read("skrl", null, overrides={"num_envs": 64})
    written = plain.write(plain.config.replace(lr_schedule="adaptive", desired_kl=0.02))["agent"]
    assert written["learning_rate_scheduler"] == "KLAdaptiveLR"
    assert written["learning_rate_scheduler_kwargs"] == {"kl_threshold": 0.02}


def test_cleanrl_ends_epochs_at_its_target() -> None:
    there = read("cleanrl", "ppo.py --num-envs 8 --target-kl 0.02")
    assert there.control is not None
    assert (there.control.target, there.control.kind, there.control.factor) == (0.02, "stop", 1.0)
    assert there.config.hypers.target_kl * 1.5 == pytest.approx(0.02)  # ours end at one and a half times it
    assert read("cleanrl", "ppo.py --num-envs 8").control is None
    assert not read("cleanrl", "ppo.py --num-envs 8").config.stop_at_target_kl


def test_references_of_isaacgymenvs_are_filled_in_beside_the_file() -> None:
    """Its YAML takes the number of environments from another file and lets the command line replace the epochs."""
    text = """\
params:
  algo: {name: a2c_continuous}
  config:
    num_actors: ${....task.env.numEnvs}
    max_epochs: ${resolve_default:500,${....max_iterations}}
    horizon_length: 16
    minibatch_size: 32768
    mini_epochs: 4
    learning_rate: 3e-4
    gamma: 0.99
    tau: 0.95
"""
    games = interop.library("rl-games")
    with pytest.raises(UsageError, match="--num-envs"):
        interop.read(games, text)
    read = interop.read(games, text, overrides={"num_envs": 4096})
    assert (read.config.num_minibatches, read.config.num_iterations) == (2, 500)
    assert read.text(read.config) == text
    smaller = yaml.safe_load(read.text(rescale(read.config, num_envs=1024).after))["params"]["config"]
    assert smaller["num_actors"] == "${....task.env.numEnvs}"
    assert smaller["max_epochs"] == "${resolve_default:2000,${....max_iterations}}"
