"""Other libraries' settings: read, rescaled and written back without losing anything."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

from isobatch import interop as foreign
from isobatch.errors import UsageError
from isobatch.interop.keys import OUTSIDE, REQUIRED
from isobatch.rescaling import rescale

SAMPLE = Path(__file__).parents[1] / "data" / "zoo_sample.yml"
ZOO = foreign.library("zoo")


def zoo_files() -> list[tuple[str, str]]:
    """Algorithm and text of the rl_zoo3 package's own files, where it is installed, and of our sample."""
    found = [("ppo", SAMPLE.read_text())]
    try:
        files = importlib.metadata.files("rl_zoo3") or []
    except importlib.metadata.PackageNotFoundError:
        return found
    for algo in ("ppo", "a2c"):
        paths = [f for f in files if f.parts[-2:] == ("hyperparams", f"{algo}.yml")]
        assert paths, "rl_zoo3 is installed, but its hyperparameters are not where they were"
        found.append((algo, Path(str(paths[0].locate())).read_text()))
    return found


ENTRIES = [
    pytest.param(algo, env, entry, id=f"{algo}-{env}")
    for algo, text in zoo_files()
    for env, entry in yaml.safe_load(text).items()
]


@pytest.mark.parametrize(("algo", "env", "entry"), ENTRIES)
def test_zoo_round_trip_loses_nothing(algo: str, env: str, entry: dict[str, Any]) -> None:
    read = foreign.from_settings(ZOO, entry, env=env, algo=algo)
    assert read.write(read.config) == entry
    assert yaml.safe_load(read.text(read.config)) == {env: entry}


@pytest.mark.parametrize(("algo", "env", "entry"), ENTRIES)
def test_every_zoo_value_goes_through_the_config(algo: str, env: str, entry: dict[str, Any]) -> None:
    """Written from the config alone, without the old spelling to fall back on, the settings mean the same."""
    read = foreign.from_settings(ZOO, entry, env=env, algo=algo)
    bare = foreign.write(ZOO, algo, read.config)
    assert foreign.from_settings(ZOO, bare, env=env, algo=algo).config == read.config
    names = {key.names[0] for key in ZOO.algorithms[algo]}
    assert set(entry) - names == {name for name in read.kept if " " not in name}


@pytest.mark.parametrize(("algo", "env", "entry"), ENTRIES)
def test_rescaled_zoo_entries_keep_their_other_settings(algo: str, env: str, entry: dict[str, Any]) -> None:
    read = foreign.from_settings(ZOO, entry, env=env, algo=algo)
    after = rescale(read.config, factor=0.5).after
    written = read.write(after)
    changed = {name for name in written if written[name] != entry.get(name)}
    assert changed <= {"n_envs", "batch_size", "learning_rate"}
    again = foreign.from_settings(ZOO, written, env=env, algo=algo).config
    assert again == after.replace(beta_prox=read.config.hypers.beta_prox)  # which is not in use


def test_zoo_schedules_survive_rescaling() -> None:
    """c = 8/32 = 1/4: the learning rate doubles, and falls to zero as before."""
    read = foreign.read(ZOO, SAMPLE.read_text(), env="Schedules-v1")
    written = read.write(rescale(read.config, num_envs=32).after)
    assert written["learning_rate"] == "lin_0.002"
    assert written["clip_range"] == "lin_0.2"
    assert (written["n_envs"], written["batch_size"]) == (32, 512)
    assert read.kept == ["policy", "clip_range (its schedule)"]


def test_zoo_settings_mean_what_stable_baselines_does_with_them() -> None:
    config = foreign.read(ZOO, SAMPLE.read_text(), env="Inherited-v0").config
    assert (config.num_envs, config.num_steps, config.num_minibatches, config.update_epochs) == (8, 32, 2, 5)
    assert config.advantage_norm == "minibatch"
    assert config.hypers.vf_coef == 1.0  # theirs 0.5 of the whole squared error, ours 1.0 of half of it
    assert (config.hypers.learning_rate, config.lr_schedule) == (3e-4, "constant")
    larger = foreign.read(ZOO, SAMPLE.read_text(), env="LargerThanRollout-v0").config
    assert (larger.num_minibatches, larger.geometry.optimization_batch) == (1, 8)
    wrapped = foreign.read(ZOO, SAMPLE.read_text(), env="Wrapped-v2")
    assert (wrapped.config.normalize_observations, wrapped.config.normalize_rewards) == (False, True)
    assert wrapped.kept == ["env_wrapper", "frame_stack", "policy", "target_kl"]
    a2c = foreign.read(ZOO, "n_envs: 16\nnormalize_advantage: true\n", algo="a2c").config
    assert (a2c.objective, a2c.optimizer, a2c.num_steps, a2c.num_minibatches) == ("policy-gradient", "rmsprop", 5, 1)
    assert (a2c.hypers.learning_rate, a2c.hypers.gae_lambda, a2c.advantage_norm) == (7e-4, 1.0, "minibatch")


CLEANRL = "python cleanrl/ppo_atari.py --env-id Pong-v5 --num-envs 16 --no-anneal-lr --track --seed 3 --ent-coef 0.02"


def test_cleanrl_flags() -> None:
    read = foreign.read(foreign.library("cleanrl"), CLEANRL)
    config = read.config
    assert (config.env, config.num_envs, config.num_steps, config.lr_schedule) == ("Pong-v5", 16, 128, "constant")
    assert (config.hypers.clip_eps, config.hypers.value_clip_eps) == (0.1, 0.1)  # the default of this script
    assert (config.hypers.vf_coef, config.clip_value_loss, config.advantage_norm) == (0.5, True, "minibatch")
    assert read.kept == ["track", "seed"]
    assert read.text(config) == CLEANRL
    after = read.text(rescale(config, num_envs=4).after)
    assert after == CLEANRL.replace("--num-envs 16", "--num-envs 4") + " --learning-rate 0.000125"


def test_cleanrl_reads_old_and_new_ways_to_write_a_flag() -> None:
    library = foreign.library("cleanrl")
    for text in ("--anneal-lr False --num_envs=8", "--anneal_lr=false --num-envs 8", "--no-anneal-lr --num-envs 8"):
        config = foreign.read(library, text).config
        assert (config.lr_schedule, config.num_envs) == ("constant", 8), text


def test_rllib_counts_learners_and_runners() -> None:
    """4 runners x 2 environments, 2 learners x 2000 steps: T = 4000/8 = 500; minibatches 4000/(2 x 250) = 8."""
    text = (
        "num_env_runners: 4\nnum_envs_per_env_runner: 2\nnum_learners: 2\ntrain_batch_size_per_learner: 2000\n"
        "minibatch_size: 250\nnum_epochs: 1\nlr: 0.0004\nkl_coeff: 0.3\nmodel: {vf_share_layers: false}\n"
    )
    read = foreign.read(foreign.library("rllib"), text)
    config = read.config
    assert (config.num_envs, config.num_steps, config.num_minibatches) == (8, 500, 8)
    assert (config.hypers.vf_coef, config.advantage_norm) == (2.0, "iteration")
    assert read.kept == ["kl_coeff", "model.vf_share_layers"]
    assert yaml.safe_load(read.text(config)) == yaml.safe_load(text)
    after = rescale(config, num_envs=4).after
    written = read.write(after)
    assert (written["num_envs_per_env_runner"], written["train_batch_size_per_learner"]) == (1, 1000)
    assert written["minibatch_size"] == 125
    assert read.unsaid(after) == {"advantage_norm": "ewma", "adv_norm_decay": pytest.approx(1 / 3)}


def test_rllib_old_names_stay_old() -> None:
    read = foreign.read(foreign.library("rllib"), "sgd_minibatch_size: 100\nnum_sgd_iter: 5\nlambda: 0.9\nlr: 0.001\n")
    written = read.write(rescale(read.config, num_envs=8).after)
    assert written["sgd_minibatch_size"] == 400
    assert "minibatch_size" not in written
    assert (read.config.update_epochs, read.config.hypers.gae_lambda) == (5, 0.9)


TORCHRL = """
env: {env_name: Pong-v5, num_envs: 8}
collector: {frames_per_batch: 4096, total_frames: 40000000}
optim: {lr: 2.5e-4, eps: 1.0e-6, max_grad_norm: 0.5, anneal_lr: true}
loss: {gamma: 0.99, mini_batch_size: 1024, ppo_epochs: 3, critic_coef: 1.0, anneal_clip_epsilon: true}
"""


def test_torchrl_files() -> None:
    read = foreign.read(foreign.library("torchrl"), TORCHRL)
    config = read.config
    assert (config.num_envs, config.num_steps, config.num_minibatches, config.update_epochs) == (8, 512, 4, 3)
    assert read.kept == ["loss.anneal_clip_epsilon"]
    assert yaml.safe_load(read.text(config)) == yaml.safe_load(TORCHRL)
    written = read.write(rescale(config, num_envs=32).after)
    assert written["collector"]["frames_per_batch"] == 16384
    assert written["loss"]["mini_batch_size"] == 4096
    assert written["optim"]["lr"] == pytest.approx(5e-4)


SKRL = """
agent: {class: PPO, rollouts: 16, mini_batches: 4, lambda: 0.95, learning_rate: 5.0e-4, value_clip: 0}
trainer: {timesteps: 1000}
"""


def test_skrl_files() -> None:
    """512 environments -> 64 (c = 8): lr / sqrt(8); as many samples take 8 times the steps per environment."""
    read = foreign.read(foreign.library("skrl"), SKRL, overrides={"num_envs": 512})
    config = read.config
    assert (config.num_envs, config.num_steps, config.num_minibatches) == (512, 16, 4)
    assert config.total_timesteps == 512_000
    assert not config.clip_value_loss
    assert yaml.safe_load(read.text(config)) == yaml.safe_load(SKRL)
    after = rescale(config, num_envs=64).after
    written = read.write(after)
    assert written["agent"]["learning_rate"] == pytest.approx(5e-4 / 8**0.5)
    assert written["agent"]["mini_batches"] == 4
    assert written["trainer"]["timesteps"] == 8000
    assert read.unsaid(after)["num_envs"] == 64
    flat = foreign.read(foreign.library("skrl"), "rollouts: 24\nlearning_rate: 0.001\n", overrides={"num_envs": 4})
    assert flat.config.num_steps == 24


@pytest.mark.parametrize("name", foreign.LIBRARIES)
def test_a_config_written_in_a_librarys_words_reads_back(name: str) -> None:
    library = foreign.library(name)
    config = foreign.read(foreign.library("cleanrl"), "--num-envs 8 --gamma 0.98 --update-epochs 2").config
    settings = foreign.write(library, "ppo", config)
    outside = {
        key.fields[0]: config.to_dict()[key.fields[0]] for key in library.algorithms["ppo"] if key.default is OUTSIDE
    }
    again = foreign.from_settings(library, settings, overrides=outside).config
    for key in library.algorithms["ppo"]:
        for field in key.fields:
            assert again.to_dict()[field] == config.to_dict()[field], field
    assert not any(value is REQUIRED for value in settings.values())


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("zoo", "- a\n- b\n", ["not a mapping", "a list"]),
        ("zoo", "", ["not a mapping", "empty"]),
        ("zoo", "a: [", ["not valid YAML", "line"]),
        ("zoo", "CartPole-v1: {n_envs: 8}\n", ["env is missing", "--env"]),
        ("zoo", "n_envs: many\n", ["n_envs='many'", "whole number"]),
        ("zoo", "n_envs: 3\nn_steps: 10\nbatch_size: 4\n", ["batch_size=4", "n_envs x n_steps = 30", "3 or 5"]),
        ("zoo", "n_envs: 0\n", ["batch_size"]),
        ("zoo", "learning_rate: lin_fast\n", ["learning_rate='fast'"]),
        ("zoo", "n_steps: 8\nnormalize: 'yes please'\n", ["normalize='yes please'"]),
        ("cleanrl", "ppo.py --gamma 0.9 4", ["'4'", "follows no flag"]),
        ("cleanrl", "ppo.py --gamma '0.9", ["quotes"]),
        ("rllib", "train_batch_size: 4001\n", ["4001", "4000 or 4002"]),
        ("rllib", "minibatch_size: 128\n", ["minibatch_size=128", "4000", "125"]),
        ("torchrl", "optim: {lr: 0.001}\n", ["collector.frames_per_batch is missing", "--num-steps"]),
        ("skrl", "rollouts: 16\n", ["num_envs is missing", "--num-envs"]),
    ],
)
def test_bad_settings_are_one_clear_sentence(name: str, text: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        foreign.read(foreign.library(name), text)
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message


def test_unknown_names() -> None:
    with pytest.raises(UsageError, match="did you mean cleanrl"):
        foreign.library("clean-rl")
    with pytest.raises(UsageError, match="env='CartPole-v0' is not in the file"):
        foreign.read(ZOO, "CartPole-v1: {n_envs: 8}\n", env="CartPole-v0")
    with pytest.raises(UsageError, match="algo='ddpg' cannot be read from Stable-Baselines3: use ppo, a2c"):
        foreign.read(ZOO, "n_envs: 8\n", algo="ddpg")


def test_environments_that_cannot_be_spread_over_runners() -> None:
    read = foreign.read(foreign.library("rllib"), "minibatch_size: 500\n")
    with pytest.raises(UsageError, match="num_envs=1 cannot be spread over num_env_runners=2"):
        read.write(rescale(read.config, num_envs=1).after)
