"""A file that looks like another library's is refused with its name, and a name that is almost one gets a hint."""

from __future__ import annotations

import pytest
from test_robotics_libraries import BRAX, ML_AGENTS, PUFFER, RL_GAMES, RSL_RL, TORCHRL

from isobatch import interop
from isobatch.errors import UsageError

ZOO = "CartPole-v1: {n_envs: 8, n_steps: 32, batch_size: 64, n_epochs: 4, gamma: 0.98, ent_coef: 0.0}\n"
RLLIB = "train_batch_size_per_learner: 4000\nminibatch_size: 500\nnum_epochs: 5\nlr: 0.0001\nclip_param: 0.2\n"
SKRL = "agent: {rollouts: 16, learning_epochs: 4, mini_batches: 2, discount_factor: 0.99, ratio_clip: 0.2}\n"
TEXTS = {
    "zoo": ZOO,
    "rllib": RLLIB,
    "skrl": SKRL,
    "rsl-rl": RSL_RL,
    "rl-games": RL_GAMES,
    "brax": BRAX + "entropy_cost: 0.01\n",
    "pufferlib": PUFFER,
    "ml-agents": ML_AGENTS,
    "torchrl": TORCHRL,
}


@pytest.mark.parametrize("owner", TEXTS)
@pytest.mark.parametrize("reader", TEXTS)
def test_every_librarys_file_is_refused_by_every_other_with_its_name(owner: str, reader: str) -> None:
    env = {"zoo": "CartPole-v1", "ml-agents": "Ball"}.get(owner)
    outside = {"num_envs": 4096} if owner in ("skrl", "rsl-rl", "rl-games") else None
    if owner == reader:
        assert interop.read(interop.library(reader), TEXTS[owner], env=env, overrides=outside).config
        return
    with pytest.raises(UsageError) as caught:
        interop.read(interop.library(reader), TEXTS[owner], env=env)
    assert f"--from-{owner}" in str(caught.value)


def test_a_file_without_a_known_setting_is_refused() -> None:
    with pytest.raises(UsageError, match="none of its settings is one of RLlib, such as env, num_envs_per_env_runner"):
        interop.read(interop.library("rllib"), "batch: 3\ncolor: red\n")


def test_names_that_are_almost_known() -> None:
    there = interop.read(interop.library("zoo"), "n_envs: 8\nn_step: 64\nbatch_size: 64\ngama: 0.9\nclip_rnge: 0.1\n")
    assert there.doubtful == [
        "n_step is not a setting of Stable-Baselines3; did you mean n_steps?",
        "gama is not a setting of Stable-Baselines3; did you mean gamma?",
        "clip_rnge is not a setting of Stable-Baselines3; did you mean clip_range?",
    ]
    fine = interop.read(interop.library("zoo"), "n_envs: 8\nn_steps: 64\nbatch_size: 64\nfrozen: 1\nn_stepss: 3\n")
    assert fine.doubtful == []  # n_steps itself is given
