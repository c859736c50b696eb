"""The settings that studies of claims begin with: each variant's own, searched on each environment.

A claim about batch sizes is not tested by settings that nobody tuned: where a base learns slowly, whatever makes it
faster seems better. docs/results/bases.py searches, all variants that a study compares with equal effort, and writes
searched_bases.json. At the paper's scale a study begins with the paper's settings.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import NamedTuple, TypedDict

from isobatch.settings.config import Config
from isobatch.settings.parsing import SettingsByName
from isobatch.settings.presets import BY_HAND, PROCGEN, PROCGEN_PHASES, preset, without_environment
from isobatch.statistics.normalization import PROCGEN_HARD

FILE = "searched_bases.json"
SEEDS = {"quick": 4, "laptop": 6, "paper": 4}  # of most studies


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
CLASSIC = ("CartPole-v1", "Acrobot-v1", "Pendulum-v1")  # where steps are cheapest
EPISODES, PIECES = CLASSIC[:2], ("Breakout-MinAtar",)  # trajectories of the study `aggregation`


USUAL = ("learning_rate", "ent_coef=1e-4:0.05", "gae_lambda", "gamma")


class Search(NamedTuple):
    """An algorithm and the settings of its batch, which are not searched; where; and what is."""

    algo: str
    settings: SettingsByName
    envs: tuple[str, ...] = tuple(TASKS)
    ranges: tuple[str, ...] = USUAL
    begin: str = ""
    """Another search, whose result this one begins with."""
    rival: str = ""
    """Another search for the same base, whose result is taken where it is better on new seeds."""


COMMON: SettingsByName = dict(update_epochs=1, lr_schedule="constant", ent_coef=0.01, learning_rate=1e-3)
SMALL: SettingsByName = COMMON | dict(num_envs=16, num_steps=64, num_minibatches=16)
LARGE: SettingsByName = COMMON | dict(num_envs=64, num_steps=32, num_minibatches=32)
PHASES: SettingsByName = dict(objective="kl", policy_iterations_per_phase=16, aux_epochs=3, aux_minibatches=16)
# Gradients are not clipped, as in the paper: a bound on the norm acts differently on gradients of another noise.
UNCLIPPED: SettingsByName = dict(objective="kl", advantage_norm="ewma", max_grad_norm="inf")
SEVERAL_EPOCHS = 4
SEARCHES = {
    "ppo": Search("ppo", SMALL),
    "ppo-ewma": Search("ppo-ewma", SMALL),
    "ppg": Search("ppg", SMALL | PHASES),
    "ppg-ewma": Search("ppg-ewma", SMALL | PHASES),
    "divided": Search("ppo-ewma", LARGE | UNCLIPPED),
    # The algorithm with the most rules, where it is cheapest.
    "divided-ppg": Search("ppg-ewma", LARGE | PHASES | UNCLIPPED, CLASSIC[:1]),
    "divided-epochs": Search("ppo-ewma", LARGE | UNCLIPPED | dict(update_epochs=SEVERAL_EPOCHS), CLASSIC),
    "divided-sgd": Search(
        "ppo-ewma", LARGE | UNCLIPPED | dict(optimizer="sgd", learning_rate=0.1), CLASSIC,
        ("learning_rate=1e-2:1", *USUAL[1:]),
    ),
    "128x8": Search("ppo-ewma", SMALL | dict(num_envs=128, num_steps=8), (*CLASSIC, *PIECES)),
    "2x512": Search("ppo-ewma", SMALL | dict(num_envs=2, num_steps=512), (*CLASSIC, *PIECES)),
}  # fmt: skip
# Where the KL coefficient was searched too: everywhere for the base of most studies, for others on CartPole.
WITH_COEFFICIENT = {"divided": tuple(TASKS), "divided-ppg": CLASSIC[:1], "divided-epochs": CLASSIC[:1]}
for _name, _envs in WITH_COEFFICIENT.items():
    _search = SEARCHES[_name]
    SEARCHES[f"{_name}-kl"] = _search._replace(envs=_envs, ranges=(*_search.ranges, "kl_coef"))
    SEARCHES[_name] = _search._replace(rival=f"{_name}-kl")

# How losses become one number (the study `aggregation`): what differs is how long a step is and where it goes, so the
# rate alone is searched, over equally many decades. Adam takes the scale away if nothing clips the gradient before;
# `constant` is `trajectory` in another scale and has its rate, with SGD times the scale.
WHOLE: SettingsByName = dict(
    num_envs=16, num_steps=500, num_minibatches=1, update_epochs=1, lr_schedule="constant", max_grad_norm="inf"
)  # whole episodes: a rollout has room for one at least, and one gradient step is taken on it
# What suits Adam on Breakout diverges with plain SGD at every rate that learns. This does not.
PIECES_BY_SGD: SettingsByName = dict(
    num_minibatches=1, gae_lambda=0.95, gamma=0.99, vf_coef=0.1, normalize_rewards=True
)
ADAM_RATES = (0.003, "learning_rate=1e-4:1e-1")
SGD_RATES = {  # where a search begins, and its range
    ("reinforce", "timestep"): (0.1, "learning_rate=1e-2:10"),
    ("reinforce", "trajectory"): (0.001, "learning_rate=1e-4:1e-1"),
    ("reinforce", "trajectory-mean"): (0.1, "learning_rate=1e-2:10"),
    ("ppo", "timestep"): (0.3, "learning_rate=1e-2:10"),
    ("ppo", "trajectory"): (0.02, "learning_rate=1e-3:1"),
    ("ppo", "trajectory-mean"): (0.3, "learning_rate=1e-2:10"),
}


def aggregation_search(algo: str, optimizer: str, aggregation: str) -> str:
    """The name of a search for a rate."""
    return f"{algo}-{optimizer}-{aggregation}"


def aggregation_searches() -> dict[str, Search]:
    """REINFORCE on whole episodes, and PPO on the pieces of them in a rollout."""
    found = {}
    for algo, aggregation in SGD_RATES:
        for optimizer in ("adam", "sgd"):
            rate, within = ADAM_RATES if optimizer == "adam" else SGD_RATES[algo, aggregation]
            one = dict(optimizer=optimizer, aggregation=aggregation, learning_rate=rate, max_grad_norm="inf")
            whole, begin = (WHOLE, "") if algo == "reinforce" else (PIECES_BY_SGD if optimizer == "sgd" else {}, "ppo")
            envs = EPISODES if algo == "reinforce" else PIECES
            found[aggregation_search(algo, optimizer, aggregation)] = Search(algo, whole | one, envs, (within,), begin)
    return found


SEARCHES |= aggregation_searches()


def searches_on(env: str) -> list[str]:
    """The searches that an environment has."""
    return [name for name, search in SEARCHES.items() if env in search.envs]


def start_of(env: str, name: str) -> Config:
    """Where a search begins: settings of nobody's tuning, or those that another search found."""
    search, task = SEARCHES[name], TASKS[env]
    if search.begin:
        return searched(env, search.begin).replace(**search.settings)
    network = dict(arrangement="dual") if search.algo.startswith("ppg") and "arrangement" in task.settings else {}
    settings = search.settings | task.settings | network | dict(total_timesteps=task.steps)
    if search.algo == "reinforce":  # learns from an update for 8,000 steps
        settings |= dict(total_timesteps=3 * task.steps)
    begin = preset if env in BY_HAND else without_environment  # no search begins where another one ended
    config = begin(search.algo, env, None, **settings)
    phase = max(config.policy_iterations_per_phase, 1) * config.geometry.iteration_batch
    return config.replace(total_timesteps=config.total_timesteps // phase * phase)


def searched(env: str, name: str) -> Config:
    """What a search ended with, or its rival if that did better."""
    rival = SEARCHES[name].rival
    if rival and mean_return(env, rival) > mean_return(env, name):
        name = rival
    return start_of(env, name).replace(**found()[env][name]["settings"])


def mean_return(env: str, name: str) -> float:
    """Of what a search found, on new seeds; nothing if it was not made."""
    returns = found()[env][name]["returns"] if name in found()[env] else []
    return sum(returns) / len(returns) if returns else -math.inf


def environments(scale: str, *only: str) -> list[str]:
    """The environments of a scale: CartPole at quick, all with a search at laptop, if any are named only those."""
    if scale == "paper":
        return [f"envpool/{game.capitalize()}Hard-v0" for game in PROCGEN_HARD]
    return [env for env in (TASKS if scale == "laptop" else CLASSIC[:1]) if not only or env in only]


def base_of(env: str, scale: str, search: str, **of_the_paper: object) -> Config:
    """Where a study begins at a scale: the paper's settings of the algorithm, with some changed, or those searched."""
    if scale != "paper":
        return searched(env, search)
    algo = SEARCHES[search].algo
    return preset(algo, env, None, **((PROCGEN_PHASES if algo.startswith("ppg") else PROCGEN) | of_the_paper))


class Found(TypedDict):
    """What a search ended with, and what it took."""

    settings: dict[str, float]
    returns: list[float]  # of the new seeds
    start: float | None  # of the settings that it began with; None: they diverged
    trials: int
    env_steps: int


@cache
def found() -> dict[str, dict[str, Found]]:
    """Environment -> search -> what it found."""
    text = (resources.files("isobatch.studies") / FILE).read_text(encoding="utf-8")
    result: dict[str, dict[str, Found]] = json.loads(text)
    return result
