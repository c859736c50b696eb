"""Normalized return: (R - low) / (high - low), so that returns of different environments may be averaged.

Procgen's constants are those of Cobbe et al. (2020), as the paper uses them: low is about what an agent gets that
sees nothing, high the maximum or what the best agents got. Elsewhere low is the return of uniformly random actions,
measured by docs/results/random_returns.py (1024 episodes, of HalfCheetah, Walker2d and BipedalWalker 256; seed 0), and
high a reference score; both are stated. Neither end is a bound: a normalized return may be below 0 or above 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from isobatch.errors import UsageError, near_matches
from isobatch.settings.presets import bare_id
from isobatch.statistics.bootstrap import Estimate


@dataclass(frozen=True)
class ReturnRange:
    """The returns that count as 0 and as 1, and where they are from."""

    low: float
    high: float
    source: str = "given"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            ends = f"low = {self.low} and high = {self.high}"
            raise UsageError(f"{ends}: a range needs two finite returns with low < high")


PROCGEN_HARD: dict[str, tuple[float, float]] = {
    "coinrun": (5, 10),
    "starpilot": (1.5, 35),
    "caveflyer": (2, 13.4),
    "dodgeball": (1.5, 19),
    "fruitbot": (-0.5, 27.2),
    "chaser": (0.5, 14.2),
    "miner": (1.5, 20),
    "jumper": (1, 10),
    "leaper": (1.5, 10),
    "maze": (4, 10),
    "bigfish": (0, 40),
    "heist": (2, 10),
    "climber": (1, 12.6),
    "plunder": (3, 30),
    "ninja": (2, 10),
    "bossfight": (0.5, 13),
}  # game -> (low, high)
FIRST_EIGHT = tuple(PROCGEN_HARD)[:8]  # the paper tuned on these
LAST_EIGHT = tuple(PROCGEN_HARD)[8:]

MEASURED = "low: random actions, measured here; high: "
TRAINED = MEASURED + "best median final return of a preset in docs/results/training.md"
PUBLISHED = MEASURED + "trained PPO agent in the README of gymnax 1.0.1"
ZOO = MEASURED + "trained PPO agent in benchmark.md of rl-zoo3"
OTHERS: dict[str, ReturnRange] = {  # with the standard error of low
    "CartPole-v1": ReturnRange(22.3, 500, MEASURED + "the maximum"),  # +- 0.36
    "LunarLander-v3": ReturnRange(-181.3, 200, MEASURED + "what Gymnasium's page calls solved"),  # +- 6.2
    "Acrobot-v1": ReturnRange(-498.7, -79.4, TRAINED),  # +- 0.38
    "Pendulum-v1": ReturnRange(-1223.9, -174.6, TRAINED),  # +- 9.0
    "MountainCar-v0": ReturnRange(-200.0, -110.4, ZOO),  # +- 0
    "MountainCarContinuous-v0": ReturnRange(-33.2, 95.0, TRAINED),  # +- 0.10
    "BipedalWalker-v3": ReturnRange(-100.0, 213.3, ZOO),  # +- 0.94
    "InvertedDoublePendulum-v4": ReturnRange(57.1, 9100.0, MEASURED + "Gymnasium's threshold"),  # +- 0.57
    "Hopper-v4": ReturnRange(19.4, 2410.4, ZOO),  # +- 0.59
    "Swimmer-v4": ReturnRange(0.66, 281.6, ZOO),  # +- 0.34
    "HalfCheetah-v4": ReturnRange(-276.0, 5819.1, ZOO),  # +- 4.7
    "Walker2d-v4": ReturnRange(2.15, 3478.8, ZOO),  # +- 0.33
    "Breakout-MinAtar": ReturnRange(0.41, 10.4, TRAINED),  # +- 0.021
    "Asterix-MinAtar": ReturnRange(0.54, 15, PUBLISHED),  # +- 0.028
    "SpaceInvaders-MinAtar": ReturnRange(3.94, 131, PUBLISHED),  # +- 0.098
    "Freeway-MinAtar": ReturnRange(0.42, 58, PUBLISHED),  # +- 0.021
}
BOUNDS: dict[str, tuple[float, float]] = {
    "CartPole-v1": (0, 500),
    "Acrobot-v1": (-500, 0),
    "Pendulum-v1": (-np.inf, 0),
    "MountainCar-v0": (-200, 0),
    "MountainCarContinuous-v0": (-np.inf, 100),
    **{env: (0, np.inf) for env in OTHERS if env.endswith("-MinAtar")},
    **dict.fromkeys(("coinrun", "jumper", "leaper", "maze", "heist", "ninja"), (0, 10)),
}


def bounds_of(env: str) -> tuple[float, float]:
    """What an episode can return at the least and at the most; infinite where that is not known."""
    return BOUNDS.get(_name(env), (-np.inf, np.inf))


def band(env: str, mean: np.ndarray, deviation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """mean -+ deviation of returns, for a picture: no further than an episode of the environment can go."""
    return within(mean, deviation, *bounds_of(env))


def within(mean: np.ndarray, deviation: np.ndarray, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """mean -+ deviation, no further than from low to high."""
    # A time limit of one's own may allow more, and then the mean says so.
    return np.maximum(mean - deviation, np.minimum(mean, low)), np.minimum(mean + deviation, np.maximum(mean, high))


def possible(mean: Estimate, envs: Iterable[str]) -> Estimate:
    """A mean of normalized returns over environments whose interval is no wider than what their episodes can return."""
    lowest, highest = np.mean([_normalized_bounds(env) for env in envs], axis=0)
    low, high = max(mean.low, min(mean.value, lowest)), min(mean.high, max(mean.value, highest))
    return Estimate(mean.value, float(low), float(high))


def _normalized_bounds(env: str) -> np.ndarray:
    bounds = bounds_of(env)
    return normalize(env, bounds) if np.any(np.isfinite(bounds)) else np.array(bounds)


def _name(env: str) -> str:
    """An id without its backend, or the name of a Procgen game: bigfish for BigfishHard-v0."""
    game = bare_id(env).lower().removesuffix("-v0").removesuffix("hard")
    return game if game in PROCGEN_HARD else bare_id(env)


def halves(envs: Iterable[str]) -> dict[str, list[str]]:
    """Procgen's games that the paper tuned on, and the others: of environments among which are both, else none."""
    listed = list(envs)
    by_half = {
        name: [env for env in listed if _name(env) in games]
        for name, games in (("first eight games", FIRST_EIGHT), ("last eight games", LAST_EIGHT))
    }
    return by_half if all(by_half.values()) else {}


def range_of(env: str, ranges: Mapping[str, ReturnRange] | None = None) -> ReturnRange:
    """The range of an environment: from `ranges` first, then the tables above.

    Which backend steps an environment does not matter. Procgen games go by their own name or EnvPool's: bigfish,
    BigfishHard-v0.
    """
    if ranges and env in ranges:
        return ranges[env]
    name = _name(env)
    if name in OTHERS:
        return OTHERS[name]
    if name in PROCGEN_HARD:
        return ReturnRange(*PROCGEN_HARD[name], source="Procgen hard, Cobbe et al. (2020)")
    known = [*(ranges or {}), *OTHERS, *PROCGEN_HARD]
    raise UsageError(
        f"env = {env!r} has no return range: give one as ranges={{{env!r}: ReturnRange(low, high, source)}}"
        f"{near_matches(env, known)}"
    )


def normalize(env: str, returns: ArrayLike, ranges: Mapping[str, ReturnRange] | None = None) -> np.ndarray:
    """(R - low) / (high - low) for the returns R of one environment."""
    scale = range_of(env, ranges)
    return (np.asarray(returns, dtype=np.float64) - scale.low) / (scale.high - scale.low)
