"""Settings in Python are read from the syntax tree, never executed, and changed in place."""

from __future__ import annotations

import pytest

from isobatch.errors import UsageError
from isobatch.interop.python_text import edit, entries, find_settings, is_python, side_effects

RUNNERS = '''
from somewhere import configclass, AlgorithmCfg, RunnerCfg, symmetry
raise SystemExit("this file must never be executed")

STEPS = 24

@configclass
class RoughCfg(RunnerCfg):
    """A runner."""

    num_steps_per_env = STEPS  # of each environment
    max_iterations: int = 1_500
    algorithm = AlgorithmCfg(
        gamma=0.99,
        learning_rate=1.0e-3,  # a start
        symmetry_cfg=symmetry.make(),
        batches=2 * 8,
    )

@configclass
class FlatCfg(RoughCfg):
    def __post_init__(self):
        super().__post_init__()
        self.max_iterations = 300
        self.algorithm.gamma = 0.98

@configclass
class SameCfg(RoughCfg):
    pass

@dataclass
class FactoryCfg(RunnerCfg):
    algorithm: AlgorithmCfg = field(default_factory=lambda: AlgorithmCfg(gamma=0.9, learning_rate=2e-3))
'''
MARK = "algorithm.gamma"


def settings(name: str, text: str = RUNNERS) -> dict[str, object]:
    return find_settings(text, MARK, name)[0].plain()


def test_classes_inherit_and_change_in_post_init() -> None:
    assert entries(RUNNERS, MARK) == ["RoughCfg", "FlatCfg", "SameCfg", "FactoryCfg"]
    rough, flat = settings("RoughCfg"), settings("FlatCfg")
    algorithm = {"gamma": 0.99, "learning_rate": 1e-3, "symmetry_cfg": "symmetry.make()", "batches": 16}
    assert rough == {"num_steps_per_env": 24, "max_iterations": 1500, "algorithm": algorithm}
    assert flat == {"num_steps_per_env": 24, "max_iterations": 300, "algorithm": algorithm | {"gamma": 0.98}}
    assert settings("SameCfg") == rough
    assert settings("FactoryCfg") == {"algorithm": {"gamma": 0.9, "learning_rate": 2e-3}}


def test_an_edit_changes_only_the_values() -> None:
    after = settings("RoughCfg") | {"algorithm": {**settings("RoughCfg")["algorithm"], "learning_rate": 5e-4}}  # type: ignore[dict-item]
    text = edit(RUNNERS, MARK, after, "RoughCfg")
    assert text == RUNNERS.replace("learning_rate=1.0e-3,", "learning_rate=0.0005,")
    assert side_effects(RUNNERS, text, MARK, "RoughCfg") == ["FlatCfg", "SameCfg"]
    assert edit(RUNNERS, MARK, settings("RoughCfg"), "RoughCfg") == RUNNERS


def test_what_a_class_inherits_becomes_its_own() -> None:
    flat = settings("FlatCfg")
    flat["algorithm"]["learning_rate"] = 5e-4  # type: ignore[index]
    text = edit(RUNNERS, MARK, flat, "FlatCfg")
    assert "        self.algorithm.gamma = 0.98\n        self.algorithm.learning_rate = 0.0005\n" in text
    assert settings("RoughCfg", text) == settings("RoughCfg")


def test_new_values_are_added_where_they_belong() -> None:
    factory = settings("FactoryCfg")
    factory["algorithm"]["lam"] = 0.9  # type: ignore[index]
    text = edit(RUNNERS, MARK, factory, "FactoryCfg")
    assert "AlgorithmCfg(gamma=0.9, learning_rate=2e-3, lam=0.9))" in text
    rough = settings("RoughCfg")
    rough["algorithm"]["lam"] = 0.9  # type: ignore[index]
    rough["seed"] = 3
    text = edit(RUNNERS, MARK, rough, "RoughCfg")
    assert "        batches=2 * 8,\n        lam=0.9,\n    )\n    seed = 3\n" in text


PARAMS = """
def ppo_config(env_name, impl=None):
    env_config = suite.get_default_config(env_name)
    rl_config = config_dict.create(
        num_envs=2048,
        unroll_length=10,
        episode_length=env_config.episode_length,
        network_factory=config_dict.create(hidden=(32, 32)),
    )
    if env_name.startswith("Walker"):
        rl_config.num_envs = 4096
    if env_name == "CartPole":
        rl_config.unroll_length = 5
    elif env_name in ("Ant", "Humanoid") and not env_name.endswith("x"):
        rl_config.network_factory = config_dict.create(hidden=(64, 64))
    elif env_name != "WalkerRun":
        raise ValueError(env_name)
    return rl_config
"""


@pytest.mark.parametrize(
    ("env", "envs", "unroll", "hidden"),
    [
        ("CartPole", 2048, 5, (32, 32)),
        ("Ant", 2048, 10, (64, 64)),
        ("WalkerRun", 4096, 10, (32, 32)),
    ],
)
def test_functions_follow_the_name_of_the_environment(
    env: str, envs: int, unroll: int, hidden: tuple[int, int]
) -> None:
    """As Python itself does it, with the libraries of the file made up."""
    found = find_settings(PARAMS, "unroll_length", env)[0].plain()
    assert (found["num_envs"], found["unroll_length"], found["network_factory"]["hidden"]) == (envs, unroll, hidden)

    class Box(dict):  # type: ignore[type-arg]
        __getattr__ = dict.__getitem__
        __setattr__ = dict.__setitem__  # type: ignore[assignment]

    names: dict[str, object] = {
        "config_dict": Box(create=Box),
        "suite": Box(get_default_config=lambda name: Box(episode_length=found["episode_length"])),
    }
    exec(PARAMS, names)
    assert names["ppo_config"](env) == found  # type: ignore[operator]


def test_entries_of_a_function_are_the_environments_that_it_knows() -> None:
    assert entries(PARAMS, "unroll_length") == [f"ppo_config:{e}" for e in ("CartPole", "Ant", "Humanoid", "WalkerRun")]
    with pytest.raises(UsageError, match="env='Antt' is not in the file; did you mean"):
        find_settings(PARAMS, "unroll_length", "Antt")
    with pytest.raises(UsageError, match="env is missing"):
        find_settings(PARAMS, "unroll_length", None)


def test_texts_that_are_no_settings() -> None:
    assert not is_python("seed: 42\nlr: 3e-4\n")
    assert not is_python("class :")
    with pytest.raises(UsageError, match="no class and no function"):
        find_settings("class A:\n    x = 1\n", "gamma", None)
    deep = "class A:\n    x = " + "(" * 5000 + "1" + ")" * 5000
    assert not is_python(deep)
    huge = "class A:\n    gamma = 10 ** 10 ** 10\n    other = 6 / 0\n"
    assert find_settings(huge, "gamma", None)[0].plain() == {"gamma": "10 ** 10 ** 10", "other": "6 / 0"}
