"""The settings that studies about the paper's claims begin with: each algorithm's own, searched on each environment.

A claim about batch sizes is not tested by settings that nobody tuned: where a base learns slowly, whatever makes it
faster seems better. docs/results/bases.py searches, all algorithms of an environment with equal effort, and writes
searched_bases.json. Gradient steps take 64 samples, which leaves room below the critical batch size from early on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import NamedTuple, TypedDict

from isobatch.settings.config import Config
from isobatch.settings.parsing import SettingsByName
from isobatch.settings.presets import preset
from isobatch.studies.base_settings import base, environments

FILE = "searched_bases.json"


@dataclass(frozen=True)
class Task:
    """An environment of the studies: environment steps of a run, and what is not searched."""

    steps: int
    settings: SettingsByName


NORMALIZED: SettingsByName = dict(normalize_observations=True, normalize_rewards=True)
IMAGES: SettingsByName = dict(arrangement="shared", encoder="mlp", hidden_sizes=(64, 64), activation="relu")
# Steps are whole iterations of 16 times the largest base, 32,768.
TASKS = {
    "CartPole-v1": Task(196_608, {}),
    "Acrobot-v1": Task(163_840, NORMALIZED),
    "Pendulum-v1": Task(196_608, dict(normalize_rewards=True, gamma=0.9)),
    "Breakout-MinAtar": Task(524_288, IMAGES),
    "SpaceInvaders-MinAtar": Task(524_288, IMAGES),
    "envpool/LunarLander-v3": Task(163_840, dict(normalize_rewards=True)),
    "envpool/InvertedDoublePendulum-v4": Task(196_608, NORMALIZED),
    "envpool/Hopper-v4": Task(131_072, NORMALIZED),
}


class Search(NamedTuple):
    """An algorithm and the settings of its batch, which are not searched."""

    algo: str
    settings: SettingsByName


COMMON: SettingsByName = dict(update_epochs=1, lr_schedule="constant", ent_coef=0.01, learning_rate=1e-3)
SMALL: SettingsByName = COMMON | dict(num_envs=16, num_steps=64, num_minibatches=16)
LARGE: SettingsByName = COMMON | dict(num_envs=64, num_steps=32, num_minibatches=32)
PHASES: SettingsByName = dict(objective="kl", policy_iterations_per_phase=16, aux_epochs=3, aux_minibatches=16)
# Gradients are not clipped, as in the paper: a bound on the norm acts differently on gradients of another noise.
UNCLIPPED: SettingsByName = dict(objective="kl", advantage_norm="ewma", max_grad_norm="inf")
SEARCHES = {
    "ppo": Search("ppo", SMALL),
    "ppo-ewma": Search("ppo-ewma", SMALL),
    "ppg": Search("ppg", SMALL | PHASES),
    "ppg-ewma": Search("ppg-ewma", SMALL | PHASES),
    "divided": Search("ppo-ewma", LARGE | UNCLIPPED),
    "divided-ppg": Search("ppg-ewma", LARGE | PHASES | UNCLIPPED),
}
ONLY = {"divided-ppg": "CartPole-v1"}  # the algorithm with the most rules, where it is cheapest


def searches_on(env: str) -> list[str]:
    """The searches that an environment has."""
    return [name for name in SEARCHES if ONLY.get(name, env) == env]


def start_of(env: str, search: str) -> Config:
    """Where a search begins: settings of nobody's tuning."""
    (algo, settings), task = SEARCHES[search], TASKS[env]
    network = dict(arrangement="dual") if algo.startswith("ppg") and "arrangement" in task.settings else {}
    config = preset(algo, env, None, **settings | task.settings | network | dict(total_timesteps=task.steps))
    phase = max(config.policy_iterations_per_phase, 1) * config.geometry.iteration_batch
    return config.replace(total_timesteps=task.steps // phase * phase)


def searched(env: str, search: str) -> Config:
    """What a search ended with."""
    return start_of(env, search).replace(**found()[env][search]["settings"])


def searched_environments(scale: str) -> list[str]:
    """The environments of a scale: CartPole at quick, and all with a search at laptop."""
    return list(TASKS) if scale == "laptop" else environments(scale)


def base_of(env: str, scale: str, search: str, **of_the_paper: object) -> Config:
    """Where a study begins at a scale: the paper's settings of the algorithm, with some changed, or those searched."""
    return base(SEARCHES[search].algo, env, scale, None, **of_the_paper) if scale == "paper" else searched(env, search)


class Found(TypedDict):
    """What a search ended with, and what it took."""

    settings: dict[str, float]
    returns: list[float]  # of the new seeds
    start: float | None
    trials: int
    env_steps: int


@cache
def found() -> dict[str, dict[str, Found]]:
    """Environment -> search -> what it found."""
    text = (resources.files("isobatch.studies") / FILE).read_text(encoding="utf-8")
    result: dict[str, dict[str, Found]] = json.loads(text)
    return result
