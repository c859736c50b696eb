"""Other libraries' settings: read, rescaled and written back without losing anything."""

from __future__ import annotations

import difflib
import functools
import importlib.metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

from isobatch import interop
from isobatch.errors import UsageError
from isobatch.interop.keys import OUTSIDE, REQUIRED, leaves
from isobatch.rescaling import rescale
from isobatch.settings.config import Config
from isobatch.settings.presets import preset

SAMPLE = Path(__file__).parents[1] / "data" / "zoo_sample.yml"
ZOO = interop.library("zoo")


@functools.cache
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
    read = interop.from_settings(ZOO, entry, env=env, algo=algo)
    assert read.write(read.config) == entry
    assert yaml.safe_load(read.text(read.config)) == {env: entry}


@pytest.mark.parametrize(("algo", "env", "entry"), ENTRIES)
def test_every_zoo_value_goes_through_the_config(algo: str, env: str, entry: dict[str, Any]) -> None:
    """Written from the config alone, without the old spelling to fall back on, the settings mean the same."""
    read = interop.from_settings(ZOO, entry, env=env, algo=algo)
    bare = interop.write(ZOO, algo, read.config)
    assert interop.from_settings(ZOO, bare, env=env, algo=algo).config == read.config
    names = {key.names[0] for key in ZOO.algorithms[algo]}
    assert set(entry) - names == {name for name in read.kept if " " not in name}


@pytest.mark.parametrize(("algo", "env", "entry"), ENTRIES)
def test_rescaled_zoo_entries_keep_their_other_settings(algo: str, env: str, entry: dict[str, Any]) -> None:
    read = interop.from_settings(ZOO, entry, env=env, algo=algo)
    after = rescale(read.config, factor=0.5).after
    written = read.write(after)
    changed = {name for name in written if written[name] != entry.get(name)}
    assert changed <= {"n_envs", "batch_size", "learning_rate"}
    again = interop.from_settings(ZOO, written, env=env, algo=algo).config
    assert again == after.replace(beta_prox=read.config.hypers.beta_prox)  # which is not in use


def test_a_name_with_a_dot_is_not_what_stands_before_it() -> None:
    """In skrl's files names are nested: `learning_rate.nan` is no setting, and not a part of `learning_rate` either."""
    text = "rollouts: 16\nlearning_epochs: 8\nmini_batches: 2\nlearning_rate.nan: 1.0e-3\n"
    assert interop.read(interop.library("skrl"), text, overrides={"num_envs": 8}).kept == ["learning_rate.nan"]


def test_an_entry_of_the_zoo_names_its_policy() -> None:
    """The zoo hands an entry over to the constructor, where `policy` has no default."""
    config = preset("ppo", "CartPole-v1")
    text = interop.answer(config, None, ZOO).text
    assert yaml.safe_load(text)["CartPole-v1"]["policy"] == "MlpPolicy"


def test_zoo_schedules_survive_rescaling() -> None:
    """c = 8/32 = 1/4: the learning rate doubles, and falls to zero as before."""
    read = interop.read(ZOO, SAMPLE.read_text(), env="Schedules-v1")
    written = read.write(rescale(read.config, factor=1 / 4).after)
    assert written["learning_rate"] == "lin_0.002"
    assert written["clip_range"] == "lin_0.2"
    assert (written["n_envs"], written["batch_size"]) == (32, 512)
    assert read.kept == []
    assert (read.config.clip_schedule, read.config.hypers.clip_eps, read.config.hypers.clip_eps_end) == (
        "linear",
        0.2,
        0,
    )


def test_zoo_settings_mean_what_stable_baselines_does_with_them() -> None:
    config = interop.read(ZOO, SAMPLE.read_text(), env="Inherited-v0").config
    assert (config.num_envs, config.num_steps, config.num_minibatches, config.update_epochs) == (8, 32, 2, 5)
    assert config.advantage_norm == "minibatch"
    assert config.hypers.vf_coef == 1.0  # theirs 0.5 of the whole squared error, ours 1.0 of half of it
    assert (config.hypers.learning_rate, config.lr_schedule) == (3e-4, "constant")
    larger = interop.read(ZOO, SAMPLE.read_text(), env="LargerThanRollout-v0").config
    assert (larger.num_minibatches, larger.geometry.optimization_batch) == (1, 8)
    wrapped = interop.read(ZOO, SAMPLE.read_text(), env="Wrapped-v2")
    assert (wrapped.config.normalize_observations, wrapped.config.normalize_rewards) == (False, True)
    assert wrapped.kept == ["env_wrapper", "frame_stack"]
    assert (wrapped.config.stop_at_target_kl, wrapped.config.hypers.target_kl) == (True, 0.02)
    a2c = interop.read(ZOO, "n_envs: 16\nnormalize_advantage: true\n", algo="a2c").config
    assert (a2c.objective, a2c.optimizer, a2c.num_steps, a2c.num_minibatches) == ("policy-gradient", "rmsprop", 5, 1)
    assert (a2c.hypers.learning_rate, a2c.hypers.gae_lambda, a2c.advantage_norm) == (7e-4, 1.0, "minibatch")


@pytest.mark.parametrize(("algo", "env", "entry"), ENTRIES)
def test_an_unchanged_zoo_file_is_the_same_text(algo: str, env: str, entry: dict[str, Any]) -> None:
    """Comments, order, quotes, anchors and `!!float` of the whole file, whichever entry was asked for."""
    for text in [text for name, text in zoo_files() if name == algo and f"\n{env}:" in text]:
        read = interop.read(ZOO, text, env=env, algo=algo)
        assert read.text(read.config) == text


@pytest.mark.parametrize(("algo", "env", "entry"), ENTRIES)
def test_a_rescaled_zoo_file_differs_in_what_changed(algo: str, env: str, entry: dict[str, Any]) -> None:
    for text in [text for name, text in zoo_files() if name == algo and f"\n{env}:" in text]:
        read = interop.read(ZOO, text, env=env, algo=algo)
        after = rescale(read.config, factor=0.5).after
        new = read.text(after)
        assert yaml.safe_load(new)[env] == read.write(after)
        lines = [line[1:].strip() for line in difflib.ndiff(text.splitlines(), new.splitlines()) if line[0] in "+-"]
        assert {line.split(":")[0] for line in lines} <= {"n_envs", "batch_size", "learning_rate"}


EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.mark.parametrize(
    ("name", "file", "env"),
    [
        ("zoo", "ppo.yml", "CartPole-v1"),
        ("rllib", "rllib.yaml", None),
        ("torchrl", "torchrl.yaml", None),
        ("skrl", "skrl.yaml", None),
    ],
)
def test_unchanged_examples_are_the_same_text(name: str, file: str, env: str | None) -> None:
    text = (EXAMPLES / file).read_text()
    outside = {"num_envs": 512} if name == "skrl" else None
    read = interop.read(interop.library(name), text, env=env, overrides=outside)
    assert read.text(read.config) == text
    larger = read.text(rescale(read.config, factor=0.5).after)
    assert larger != text
    assert larger.splitlines()[0] == text.splitlines()[0]  # a comment


def test_line_ends_of_windows_stay_and_new_lines_have_them_too() -> None:
    """The learning rate was left to its default, so its line is new."""
    text = "CartPole-v1:\n  n_envs: 8\n  n_steps: 32\n  batch_size: 64\n  n_timesteps: 100000\n"
    there = interop.read(ZOO, text.replace("\n", "\r\n"), env="CartPole-v1")
    written = there.text(rescale(there.config, num_envs=4).after)
    assert "learning_rate" in written
    assert written.count("\n") == written.count("\r\n") == 6


def test_entries_that_change_with_another_are_named() -> None:
    """`Inherited-v0` takes its settings from `Schedules-v1` by `<<: *base`."""
    read = interop.read(ZOO, SAMPLE.read_text(), env="Schedules-v1")
    answer = interop.answer(rescale(read.config, num_envs=32).after, read, ZOO)
    assert answer.also_changed == ["Inherited-v0"]
    assert answer.excerpt.startswith("Schedules-v1: &base\n  n_envs: 32\n")
    assert answer.excerpt.endswith("clip_range: lin_0.2\n")
    assert answer.text.startswith("# Settings in the shape of an rl-zoo3 file")
    heir = interop.read(ZOO, SAMPLE.read_text(), env="Inherited-v0")
    answer = interop.answer(rescale(heir.config, num_envs=32).after, heir, ZOO)
    assert answer.also_changed == []
    assert "  <<: *base\n" in answer.excerpt
    assert "\n  n_envs: 32\n" in answer.excerpt  # its own from now on


CLEANRL = "python cleanrl/ppo_atari.py --env-id Pong-v5 --num-envs 16 --no-anneal-lr --track --seed 3 --ent-coef 0.02"


def test_cleanrl_flags() -> None:
    read = interop.read(interop.library("cleanrl"), CLEANRL)
    config = read.config
    assert (config.env, config.num_envs, config.num_steps, config.lr_schedule) == ("Pong-v5", 16, 128, "constant")
    assert (config.hypers.clip_eps, config.hypers.value_clip_eps) == (0.1, 0.1)  # the default of this script
    assert (config.hypers.vf_coef, config.clip_value_loss, config.advantage_norm) == (0.5, True, "minibatch")
    assert read.kept == ["track", "seed"]
    assert read.text(config) == CLEANRL
    after = read.text(rescale(config, num_envs=4).after)
    assert after == CLEANRL.replace("--num-envs 16", "--num-envs 4") + " --learning-rate 0.000125"


def test_cleanrl_reads_old_and_new_ways_to_write_a_flag() -> None:
    library = interop.library("cleanrl")
    for text in ("--anneal-lr False --num_envs=8", "--anneal_lr=false --num-envs 8", "--no-anneal-lr --num-envs 8"):
        config = interop.read(library, text).config
        assert (config.lr_schedule, config.num_envs) == ("constant", 8), text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("ppo.py  --num_envs=16 --exp-name 'a b'  --seed 3", "ppo.py  --num-envs 4 --exp-name 'a b'  --seed 3"),
        ("ppo.py --num-envs 16 \\\n  --track", "ppo.py --num-envs 4 \\\n  --track"),
        ("--num-envs 16", "--num-envs 4"),
    ],
)
def test_a_cleanrl_command_keeps_what_does_not_change(before: str, after: str) -> None:
    read = interop.read(interop.library("cleanrl"), before)
    assert read.text(read.config) == before
    assert read.text(rescale(read.config, num_envs=4).after) == f"{after} --learning-rate 0.000125"


ALL = [(name, algo) for name, library in interop.LIBRARIES.items() for algo in library.algorithms]


def settings_of(answer: interop.Answer) -> dict[str, Any]:
    """Dotted name -> value."""
    return dict(leaves(answer.settings))


@pytest.mark.parametrize(("name", "algo"), ALL)
@pytest.mark.parametrize("norm", ["none", "minibatch", "iteration", "ewma"])
def test_normalized_advantages_are_never_written_as_not_normalized(name: str, algo: str, norm: str) -> None:
    """What a library cannot say is the nearest that it can, and said: other samples, not none."""
    one = dict(num_minibatches=1, update_epochs=1) if algo == "a2c" else {}
    config = Config.from_dict(dict(algo=algo, advantage_norm=norm, adv_norm_decay=0.5, **one))
    answer = interop.answer(config, None, interop.library(name))
    switches = {"normalize_advantage": algo == "ppo", "norm_adv": True, "params.config.normalize_advantage": True}
    for switch, default in switches.items():
        if any(switch in key.names for key in answer.library.algorithms[algo]):
            assert settings_of(answer).get(switch, default) == (norm != "none")
    has = {
        "zoo": "minibatch",
        "cleanrl": "minibatch",
        "torchrl": "minibatch",
        "brax": "minibatch",
        "pufferlib": "minibatch",
        "rllib": "iteration",
        "skrl": "iteration",
        "rsl-rl": "iteration",
        "rl-games": "iteration",
        "ml-agents": "iteration",
    }
    can = {has[name]} | ({"none"} if name in ("zoo", "cleanrl", "brax", "rl-games") else set())
    can |= ({"iteration"} if one else set()) | ({"minibatch"} if name == "rsl-rl" else set())
    assert ("advantage_norm" in answer.unsaid) == (norm not in can)
    if norm not in can:
        assert answer.consequences["advantage_norm"].startswith(f"{has[name]} there: ")


@pytest.mark.parametrize("name", interop.LIBRARIES)
def test_what_a_library_cannot_say_is_listed_with_what_happens_instead(name: str) -> None:
    library = interop.library(name)
    config = preset("ppg-ewma", "CartPole-v1", optimizer="sgd", normalize_rewards=True, advantage_norm="ewma")
    answer = interop.answer(config, None, library)
    assert set(answer.consequences) == set(answer.unsaid)
    if name == "torchrl":  # which has PPO-EWMA
        assert answer.settings["loss"]["delay_actor"] is True
        assert answer.settings["target_net_updater"]["eps"] == pytest.approx(8 / 9)
    else:
        assert answer.consequences["proximal_policy"].startswith("behavior there: what the clipping holds on to")
        assert answer.consequences["beta_prox"] == "without a use there"
    assert answer.consequences["objective"] == "clip there: another loss is minimized"
    assert name == "rsl-rl" or answer.consequences["optimizer"].startswith("adam there: ")
    assert "there is no auxiliary phase" in answer.consequences["policy_iterations_per_phase"]
    assert ("normalize_rewards" in answer.unsaid) == (name != "zoo")
    assert answer.consequences["aux_epochs"] == answer.consequences["kl_coef"] == "without a use there"


def test_what_overrides_say_beyond_the_library_is_listed_too() -> None:
    """Read from Stable-Baselines3 with a choice of ours on top, and written back there."""
    overrides = {"advantage_norm": "iteration", "proximal_policy": "ewma"}
    read = interop.read(ZOO, SAMPLE.read_text(), env="Schedules-v1", overrides=overrides)
    answer = interop.answer(read.config, read, ZOO)
    assert answer.text == SAMPLE.read_text()  # normalize_advantage is on by default, and stays
    assert set(answer.unsaid) == {"advantage_norm", "proximal_policy", "beta_prox"}


def test_environments_are_written_without_our_backends() -> None:
    config = preset("ppo", "gymnasium/CartPole-v1")
    assert interop.answer(config, None, ZOO).text.startswith("CartPole-v1:\n")
    assert interop.answer(config, None, interop.library("rllib")).settings["env"] == "CartPole-v1"
    assert "env" not in interop.answer(config, None, interop.library("cleanrl")).unsaid


def test_what_is_given_beside_a_file_need_not_fit_in_it() -> None:
    """4 x 32 samples are no whole number of minibatches of 96; another number of them was asked for."""
    text = "n_envs: 4\nn_steps: 32\nbatch_size: 96\n"
    with pytest.raises(UsageError, match="batch_size=96 does not evenly divide"):
        interop.read(ZOO, text)
    read = interop.read(ZOO, text, overrides={"num_minibatches": 4})
    assert (read.config.num_minibatches, read.write(read.config)["batch_size"]) == (4, 32)


def test_rllib_counts_learners_and_runners() -> None:
    """4 runners x 2 environments, 2 learners x 2000 steps: T = 4000/8 = 500; minibatches 4000/(2 x 250) = 8."""
    text = (
        "num_env_runners: 4\nnum_envs_per_env_runner: 2\nnum_learners: 2\ntrain_batch_size_per_learner: 2000\n"
        "minibatch_size: 250\nnum_epochs: 1\nlr: 0.0004\nkl_coeff: 0.3\nmodel: {vf_share_layers: false}\n"
    )
    read = interop.read(interop.library("rllib"), text)
    config = read.config
    assert (config.num_envs, config.num_steps, config.num_minibatches) == (8, 500, 8)
    assert (config.hypers.vf_coef, config.advantage_norm) == (2.0, "iteration")
    assert read.kept == ["kl_coeff"]
    assert yaml.safe_load(read.text(config)) == yaml.safe_load(text)
    after = rescale(config, num_envs=4).after
    written = read.write(after)
    assert (written["num_envs_per_env_runner"], written["train_batch_size_per_learner"]) == (1, 1000)
    assert written["minibatch_size"] == 125
    unsaid = interop.answer(after, read, read.library).unsaid
    assert unsaid == {"advantage_norm": "ewma", "adv_norm_decay": pytest.approx(1 / 3)}


def test_rllib_old_names_stay_old() -> None:
    read = interop.read(interop.library("rllib"), "sgd_minibatch_size: 100\nnum_sgd_iter: 5\nlambda: 0.9\nlr: 0.001\n")
    written = read.write(rescale(read.config, num_envs=8, keep="minibatch-count").after)
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
    read = interop.read(interop.library("torchrl"), TORCHRL)
    config = read.config
    assert (config.num_envs, config.num_steps, config.num_minibatches, config.update_epochs) == (8, 512, 4, 3)
    assert (config.lr_schedule, config.clip_schedule, read.kept) == ("linear", "linear", [])
    assert yaml.safe_load(read.text(config)) == yaml.safe_load(TORCHRL)
    written = read.write(rescale(config, factor=1 / 4).after)
    assert written["collector"]["frames_per_batch"] == 16384
    assert written["loss"]["mini_batch_size"] == 4096
    assert written["optim"]["lr"] == pytest.approx(5e-4)


def test_torchrl_anneals_the_clip_range_only_with_the_learning_rate() -> None:
    """Its scripts multiply both by one factor, which stays 1 unless the learning rate falls."""
    read = interop.read(interop.library("torchrl"), TORCHRL.replace("anneal_lr: true", "anneal_lr: false"))
    assert (read.config.lr_schedule, read.config.clip_schedule) == ("constant", "constant")
    assert read.write(read.config)["loss"]["anneal_clip_epsilon"] is True  # as it stood: it does nothing
    both = read.config.replace(lr_schedule="linear", clip_schedule="linear")
    assert interop.answer(both, read, read.library).unsaid == {}
    alone = interop.answer(read.config.replace(clip_schedule="linear"), read, read.library)
    assert alone.settings["loss"]["anneal_clip_epsilon"] is False
    assert alone.consequences["clip_schedule"] == "constant there: the clip range does not fall over the run"
    only_rate = interop.answer(read.config.replace(lr_schedule="linear"), read, read.library)
    assert only_rate.settings["loss"]["anneal_clip_epsilon"] is False


SKRL = """
agent: {class: PPO, rollouts: 16, mini_batches: 4, lambda: 0.95, learning_rate: 5.0e-4, value_clip: 0}
trainer: {timesteps: 1000}
"""


def test_skrl_files() -> None:
    """512 environments -> 64 (c = 8): lr / sqrt(8); as many samples take 8 times the steps per environment."""
    read = interop.read(interop.library("skrl"), SKRL, overrides={"num_envs": 512})
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
    assert interop.answer(after, read, read.library).unsaid["num_envs"] == 64
    flat = interop.read(interop.library("skrl"), "rollouts: 24\nlearning_rate: 0.001\n", overrides={"num_envs": 4})
    assert flat.config.num_steps == 24


@pytest.mark.parametrize("name", interop.LIBRARIES)
def test_a_config_written_in_a_librarys_words_reads_back(name: str) -> None:
    library = interop.library(name)
    config = interop.read(interop.library("cleanrl"), "--num-envs 8 --gamma 0.98 --update-epochs 2").config
    settings = interop.write(library, "ppo", config)
    outside = {
        key.fields[0]: config.to_dict()[key.fields[0]] for key in library.algorithms["ppo"] if key.default is OUTSIDE
    }
    again = interop.from_settings(library, settings, overrides=outside).config
    unsaid = interop.answer(config, None, library).unsaid
    assert set(unsaid) <= {"num_envs", "total_timesteps", "lr_schedule", "advantage_norm", "clip_value_loss"} | {
        "activation",  # which ML-Agents has one of
        "value_clip_eps",
        "optimizer_eps",
        "max_grad_norm",
        "vf_coef",
    }
    for key in library.algorithms["ppo"]:
        for field in key.fields:
            here, there = config.to_dict()[field], again.to_dict()[field]
            rounded = field == "total_timesteps" and 0 <= there - here < config.geometry.iteration_batch
            assert here == there or rounded or field in unsaid, field
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
        interop.read(interop.library(name), text)
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message


def test_unknown_names() -> None:
    with pytest.raises(UsageError, match="did you mean cleanrl"):
        interop.library("clean-rl")
    with pytest.raises(UsageError, match="env='CartPole-v0' is not in the file"):
        interop.read(ZOO, "CartPole-v1: {n_envs: 8}\n", env="CartPole-v0")
    with pytest.raises(UsageError, match="algo='ddpg' cannot be read from Stable-Baselines3: use ppo, a2c"):
        interop.read(ZOO, "n_envs: 8\n", algo="ddpg")


def test_environments_that_cannot_be_spread_over_runners() -> None:
    read = interop.read(interop.library("rllib"), "minibatch_size: 500\n")
    with pytest.raises(UsageError, match="num_envs=1 cannot be spread over num_env_runners=2"):
        read.write(rescale(read.config, num_envs=1).after)


def test_a_setting_that_would_stand_under_a_number_is_refused_in_a_sentence() -> None:
    """`agent: 5` holds no settings of the agent, and what changes would have to stand under it."""
    there = interop.from_settings(interop.library("skrl"), {"agent": 5}, overrides={"num_envs": 4})
    with pytest.raises(UsageError, match="agent=5 is no mapping"):
        there.write(there.config.replace(gamma=0.5))
    with pytest.raises(UsageError, match="train=5 stands in no section"):
        interop.library("pufferlib").form.render({"train": 5}, None)


ZOO_WITH_SHARED = """
default: {n_timesteps: 1000000, policy: MlpPolicy}
atari: {policy: CnnPolicy, n_envs: 8, n_steps: 128, batch_size: 256, clip_range: lin_0.1}  # for all games
Walker2d-v4: {n_envs: 2, n_steps: 512, batch_size: 64, policy: MlpPolicy}
"""


def test_environments_without_an_entry_take_the_zoos_shared_ones() -> None:
    """As rl-zoo3 does; whose settings they are is said, and the file changes there."""
    for env in ("BreakoutNoFrameskip-v4", "ALE/Breakout-v5"):
        game = interop.read(ZOO, ZOO_WITH_SHARED, env=env)
        assert (game.config.env, game.config.num_steps, game.config.clip_schedule) == (env, 128, "linear")
        assert game.remarks[0].startswith(f"{env} has no settings of its own in the file: it takes those of 'atari'")
        changed = game.text(rescale(game.config, num_envs=4, keep="iteration-batch").after)
        assert changed == ZOO_WITH_SHARED.replace("8, n_steps: 128", "4, n_steps: 256")
        assert interop.answer(game.config, game, ZOO).excerpt.startswith("atari:")
    other = interop.read(ZOO, ZOO_WITH_SHARED, env="CartPole-v1")
    assert (other.config.num_steps, other.config.total_timesteps) == (2048, 1_000_000)
    assert "'default'" in other.remarks[0]
    assert interop.read(ZOO, ZOO_WITH_SHARED, env="Walker2d-v4").remarks == []
    with pytest.raises(UsageError, match=r"env='Walker2d-v5' is not in the file; did you mean Walker2d-v4"):
        interop.read(ZOO, ZOO_WITH_SHARED, env="Walker2d-v5")
    without = ZOO_WITH_SHARED.replace("atari:", "games:")
    with pytest.raises(UsageError, match="env='PongNoFrameskip-v4' is not in the file"):
        interop.read(ZOO, without, env="PongNoFrameskip-v4")
