"""Environments under other libraries' names."""

from __future__ import annotations

import pytest
from needs import needs_envpool

from isobatch.envs.matching import matched_env
from isobatch.errors import UsageError


@pytest.mark.parametrize(
    ("name", "env"),
    [
        ("CartPole-v1", "CartPole-v1"),  # compiled with the training
        ("gymnasium/CartPole-v1", "gymnasium/CartPole-v1"),
        ("LunarLander-v3", "gymnasium/LunarLander-v3"),
        ("my_module:Mine-v0", "my_module:Mine-v0"),
    ],
)
def test_names_that_are_here(name: str, env: str) -> None:
    assert matched_env(name) == (env, "")


def test_another_version_is_said() -> None:
    env, remark = matched_env("LunarLander-v2")
    assert env == "gymnasium/LunarLander-v3"
    assert remark == "LunarLander-v2 is not in this Gymnasium, LunarLander-v3 takes its place"


@needs_envpool
def test_atari_is_stepped_by_envpool() -> None:
    for name in ("PongNoFrameskip-v4", "ALE/Pong-v5"):
        env, _ = matched_env(name)
        assert env == "envpool/Pong-v5"


@pytest.mark.parametrize(("name", "part"), [("unnamed", "give --env NAME"), ("AntBulletEnv-v0", "AntBulletEnv-v0")])
def test_names_that_are_nowhere(name: str, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        matched_env(name)
