"""Networks of other libraries: what is read of them, and what is said of the rest."""

from __future__ import annotations

from typing import Any

import pytest

from isobatch import interop
from isobatch.interop.conversion import for_isobatch, from_sb3
from isobatch.interop.sb3_networks import arguments

RSL_RL = """\
num_steps_per_env: 24
max_iterations: 10
actor: {hidden_dims: [512, 256, 128], activation: elu}
critic: {hidden_dims: [64, 64], activation: elu}
algorithm: {num_mini_batches: 4}
"""
RL_GAMES = """\
params:
  algo: {name: a2c_continuous}
  network: {separate: false, mlp: {units: [32, 16], activation: elu}}
  config: {num_actors: 64, horizon_length: 16, minibatch_size: 512, mini_epochs: 4, learning_rate: 1e-3, gamma: 0.99,
    tau: 0.95, max_epochs: 10}
"""
SKRL = """\
models:
  separate: false
  policy: {network: [{name: net, input: OBSERVATIONS, layers: [32, 16], activations: elu}]}
  value: {network: [{name: net, input: OBSERVATIONS, layers: [32, 16], activations: elu}]}
agent: {rollouts: 16, mini_batches: 2, value_clip: 0.2, clip_predicted_values: false}
trainer: {timesteps: 1600}
"""
ML_AGENTS = """\
behaviors:
  Ball:
    trainer_type: ppo
    hyperparameters: {batch_size: 64, buffer_size: 1024}
    network_settings: {hidden_units: 256, num_layers: 3}
    time_horizon: 64
"""
BRAX = "num_envs: 8\nbatch_size: 8\nnum_minibatches: 2\nunroll_length: 5\nnum_timesteps: 8000\n"
RLLIB = "train_batch_size: 4000\nminibatch_size: 400\nmodel: {fcnet_hiddens: [32], fcnet_activation: relu}\n"
ZOO = """\
n_envs: 4
n_steps: 32
batch_size: 64
policy_kwargs: "dict(log_std_init=-2, activation_fn=nn.GELU, net_arch=dict(pi=[256, 32], vf=[256]))"
"""
CASES: dict[str, tuple[str, dict[str, Any], tuple[tuple[int, ...], str, str]]] = {
    "rsl-rl": (RSL_RL, {"num_envs": 64}, ((512, 256, 128), "elu", "dual")),
    "rl-games": (RL_GAMES, {}, ((32, 16), "elu", "shared")),
    "skrl": (SKRL, {"num_envs": 64}, ((32, 16), "elu", "shared")),
    "ml-agents": (ML_AGENTS, {}, ((256, 256, 256), "silu", "dual")),
    "brax": (BRAX, {}, ((32, 32, 32, 32), "silu", "dual")),
    "rllib": (RLLIB, {}, ((32,), "relu", "dual")),
    "zoo": (ZOO, {}, ((256, 32), "gelu", "dual")),
    "cleanrl": ("python ppo_continuous_action.py", {}, ((64, 64), "tanh", "dual")),
}
OTHER_VALUES = {"rsl-rl": "[64, 64]", "brax": "[256, 256, 256, 256, 256]", "zoo": "[256]"}


@pytest.mark.parametrize("name", CASES)
def test_a_run_here_has_the_network_of_the_file(name: str) -> None:
    text, beside, network = CASES[name]
    read = interop.read(interop.library(name), text, overrides=beside)
    config = read.config
    assert (config.hidden_sizes, config.activation, config.arrangement) == network
    assert read.text(config) == text


@pytest.mark.parametrize("name", OTHER_VALUES)
def test_another_value_network_is_said(name: str) -> None:
    """Also where it is the library's default, as that of Brax."""
    text, beside, _ = CASES[name]
    there = interop.read(interop.library(name), text, overrides=beside)
    (sentence,) = there.only_there
    assert OTHER_VALUES[name] in sentence
    assert "the policy's layers here" in sentence
    assert sentence in for_isobatch(there).remarks
    assert sentence in interop.answer(there.config, there, interop.library("cleanrl")).left_behind


def test_an_activation_without_a_counterpart_is_said() -> None:
    read = interop.read(interop.library("rsl-rl"), RSL_RL.replace("elu", "selu"), overrides={"num_envs": 64})
    assert "actor.activation (selu: tanh here)" in read.kept


def test_networks_go_from_one_library_to_another() -> None:
    there = interop.read(interop.library("rsl-rl"), RSL_RL, overrides={"num_envs": 64})
    zoo = interop.answer(there.config, there, interop.library("zoo"))
    assert zoo.settings["policy_kwargs"] == (
        "dict(net_arch=dict(pi=[512, 256, 128], vf=[512, 256, 128]), activation_fn=nn.ELU)"
    )
    assert not {"hidden_sizes", "activation"} & set(zoo.unsaid)
    script = interop.answer(there.config, there, interop.library("cleanrl"))  # whose scripts have a network each
    assert {"hidden_sizes", "activation"} <= set(script.unsaid)


def test_images_have_the_convolutions_of_the_library() -> None:
    text = "policy: CnnPolicy\nn_envs: 8\nn_steps: 128\nbatch_size: 256\n"
    zoo = interop.read(interop.library("zoo"), text).config
    assert (zoo.encoder, zoo.channels, zoo.hidden_sizes, zoo.arrangement) == ("nature", (32, 64, 64), (512,), "shared")
    assert interop.write(interop.library("zoo"), "ppo", zoo)["policy"] == "CnnPolicy"
    assert interop.read(interop.library("cleanrl"), "python cleanrl/ppo_atari.py --seed 1").config.encoder == "nature"
    assert interop.read(interop.library("cleanrl"), "python ppo_procgen.py").config.channels == (16, 32, 32)


def test_keyword_arguments_say_the_network_too() -> None:
    class ReLU:
        """As PyTorch calls it."""

    given = {"n_steps": 32, "batch_size": 256, "policy_kwargs": {"net_arch": [32, 32], "activation_fn": ReLU}}
    config = from_sb3(given, env="CartPole-v1", n_envs=8, total_timesteps=1000)
    assert (config.hidden_sizes, config.activation) == ((32, 32), "relu")


def test_arguments_of_a_policy_are_not_executed() -> None:
    assert arguments("dict(net_arch=[8], optimizer_class=__import__('os').system)") == {
        "net_arch": [8],
        "optimizer_class": "__import__('os').system",
    }
    assert arguments("__import__('os').getcwd()") == arguments("dict(") == {}


def test_a_value_clip_that_an_older_file_of_skrl_switches_off_is_off() -> None:
    """skrl's runner itself reads `clip_predicted_values: False` as no clipping, whatever value_clip says."""
    off, on = (
        interop.read(interop.library("skrl"), text, overrides={"num_envs": 64}).config.clip_value_loss
        for text in (SKRL, SKRL.replace(", clip_predicted_values: false", ""))
    )
    assert (off, on) == (False, True)
