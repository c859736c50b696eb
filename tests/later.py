"""An environment whose every episode can be listed, and what a gradient on it truly comes to: by listing them."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from isobatch.envs.interface import Step
from isobatch.envs.spaces import Discrete
from isobatch.laboratory.per_sample import per_sample_gradients, vanilla
from isobatch.learning.state import TrainState
from isobatch.networks.actor_critic import ActorCritic

GAMMA, LAMBDA = 0.9, 0.6


class Place(NamedTuple):
    time: jax.Array
    sign: jax.Array


@dataclass(frozen=True)
class Later:
    """Two steps: the first action decides the reward of the second, which also likes action 1. Obs 0, then -1 or 1."""

    obs_shape = (1,)
    obs_dtype = "float32"
    action_space = Discrete(2)
    max_steps = 2

    def reset(self, key: jax.Array) -> tuple[Place, jax.Array]:
        place = Place(jnp.zeros((), jnp.int32), jnp.zeros(()))
        return place, place.sign[None]

    def step(self, key: jax.Array, state: Place, action: jax.Array) -> Step:
        first = state.time == 0
        sign = jnp.where(first, 2.0 * action - 1, state.sign)
        reward = jnp.where(first, 0.0, state.sign + 0.5 * action)
        after = Place(state.time + 1, sign)
        return Step(after, sign[None], reward, ~first, jnp.zeros((), bool))

    def at_time(self, state: Place, time: jax.Array) -> Place:
        return state._replace(time=time)


class LaterOutside(gymnasium.Env):
    """The same environment for Gymnasium."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time, self.sign = 0, 0.0
        return np.array([self.sign], np.float32), {}

    def step(self, action: Any) -> Any:
        reward = 0.0 if self.time == 0 else self.sign + 0.5 * float(action)
        self.sign = 2.0 * float(action) - 1 if self.time == 0 else self.sign
        self.time += 1
        return np.array([self.sign], np.float32), reward, self.time == 2, False, {}


gymnasium.register("Later-v0", LaterOutside, max_episode_steps=2)


def decided(state: TrainState) -> TrainState:
    """With a policy that is not uniform, and so a gradient that is not almost zero."""
    state = jax.tree.map(lambda leaf: leaf, state)
    head = state.networks.policy.head
    object.__setattr__(head, "weight", 60 * head.weight)
    return state


class Exact(NamedTuple):
    """By listing the four episodes: means by phase, and second moments."""

    variance: float  # V(T)
    shared: float  # C(T)
    signal: float
    squared_bias: float
    sample: float


def exact(networks: ActorCritic, steps: int) -> Exact:
    places = jnp.array([[0.0], [0.0], [-1.0], [-1.0], [1.0], [1.0]])
    actions = jnp.array([0, 1, 0, 1, 0, 1])
    scores = -np.asarray(per_sample_gradients(vanilla, networks.policy, (places, actions, jnp.ones(6))), float)
    probability = np.exp(np.asarray(networks.policy(places).log_prob(actions), float))
    value = dict(zip((0, -1, 1), np.asarray(networks.value(jnp.array([[0.0], [-1.0], [1.0]])), float), strict=True))
    row = {0: 0, -1: 2, 1: 4}
    outcomes = []  # probability, gradients of both steps as estimated, and as they truly are
    for a in (0, 1):
        for b in (0, 1):
            sign = 2 * a - 1
            reward = sign + 0.5 * b
            delta0, delta1 = GAMMA * value[sign] - value[0], reward - value[sign]
            estimated = (delta0 + (GAMMA * LAMBDA * delta1 if steps == 2 else 0.0), delta1)
            true = (GAMMA * reward - value[0], delta1)
            pair = scores[row[0] + a], scores[row[sign] + b]
            chance = probability[row[0] + a] * probability[row[sign] + b]
            outcomes.append((chance, [-x * s for x, s in zip(estimated, pair, strict=True)],
                             [-x * s for x, s in zip(true, pair, strict=True)]))  # fmt: skip
    by_phase = [sum(p * g[t] for p, g, _ in outcomes) for t in (0, 1)]
    mean, true = sum(by_phase) / 2, sum(p * (g[0] + g[1]) / 2 for p, _, g in outcomes)
    sample = sum(p * (g[t] @ g[t]) / 2 for p, g, _ in outcomes for t in (0, 1))
    if steps == 1:
        second, shared = sample, sum(m @ m for m in by_phase) / 2
    else:
        second = sum(p * np.sum(((g[0] + g[1]) / 2) ** 2) for p, g, _ in outcomes)
        shared = mean @ mean
    level = mean @ mean
    return Exact(second - level, shared - level, level, float(np.sum((mean - true) ** 2)), sample - level)
