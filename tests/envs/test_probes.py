"""Training reaches the values that can be computed on paper: every algorithm, on every probe, in the real iteration."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from needs import one_more_case

from isobatch.envs.interface import Environment, Step
from isobatch.envs.probes import PROBES, Clock
from isobatch.envs.spaces import Discrete
from isobatch.learning.iteration import iterate
from isobatch.learning.state import initial_state
from isobatch.networks.actor_critic import ActorCritic
from isobatch.settings.config import Config
from isobatch.settings.presets import ALGORITHMS, preset

ROOMS = [name for name, probe in PROBES.items() if isinstance(probe.action_space, Discrete)]
GAMMA = 0.6


class Place(NamedTuple):
    room: jax.Array
    clock: Clock


class Gallery:
    """All probes with two actions in one environment: each episode is one of them, and the observation says which.

    So one program per algorithm tests them all; what is learned in one room must not spill into another.
    """

    obs_shape = (len(ROOMS) + 1,)
    obs_dtype = "float32"
    action_space = Discrete(2)
    max_steps = max(PROBES[room].max_steps for room in ROOMS)

    def reset(self, key: jax.Array) -> tuple[Place, jax.Array]:
        room_key, probe_key = jax.random.split(key)
        room = jax.random.randint(room_key, (), 0, len(ROOMS))
        states, obs = zip(*(PROBES[name].reset(probe_key) for name in ROOMS), strict=True)
        return Place(room, states[0]), self.observe(room, jnp.stack(obs)[room])

    def step(self, key: jax.Array, state: Place, action: jax.Array) -> Step:
        steps = [PROBES[name].step(key, state.clock, action) for name in ROOMS]
        after = jax.tree.map(lambda *leaves: jnp.stack(leaves)[state.room], *steps)
        return after._replace(state=Place(state.room, after.state), obs=self.observe(state.room, after.obs))

    def at_time(self, state: Place, time: jax.Array) -> Place:
        return Place(state.room, PROBES[ROOMS[0]].at_time(state.clock, time))

    def observe(self, room: jax.Array, obs: jax.Array) -> jax.Array:
        return jnp.concatenate([jax.nn.one_hot(room, len(ROOMS)), obs])


SETTINGS: dict[str, dict[str, Any]] = {
    "ppo": {},
    "ppo-ewma": {},
    "ppg": dict(num_minibatches=4, policy_iterations_per_phase=4, aux_epochs=2, aux_minibatches=4),
    "ppg-ewma": dict(num_minibatches=4, policy_iterations_per_phase=4, aux_epochs=2, aux_minibatches=4),
    "a2c": dict(learning_rate=1e-2, total_timesteps=160 * 1200),  # one gradient step an iteration
    "reinforce": dict(total_timesteps=160 * 1200),
}


def config_for(algo: str, **settings: Any) -> Config:
    common = dict(num_envs=16, num_steps=10, hidden_sizes="16", learning_rate=1e-2, lr_schedule="linear", gamma=GAMMA)
    common |= dict(ent_coef=0.0, total_timesteps=160 * 240)
    return preset(algo, "Probe-Action", **(common | SETTINGS[algo] | settings))


def train(algo: str, env: Environment) -> ActorCritic:
    """The networks after all iterations of a run, compiled as one program."""
    config = config_for(algo)

    def body(state, iteration):
        return iterate(config, env, state, config.hypers, iteration)[0], None

    iterations = jnp.arange(config.num_iterations)
    return jax.jit(lambda state: jax.lax.scan(body, state, iterations)[0])(initial_state(config, env, 0)).networks


# Room, observation -> value of the best policy, by hand: see the table in envs/probes.py.
VALUES = {
    ("Probe-Constant", 0.0): 1.0,
    ("Probe-Observation", -1.0): -1.0,
    ("Probe-Observation", 1.0): 1.0,
    ("Probe-Delay", 0.0): GAMMA,
    ("Probe-Delay", 1.0): 1.0,
    ("Probe-Action", 0.0): 1.0,
    ("Probe-ActionObserved", 0.0): 1.0,
    ("Probe-ActionObserved", 1.0): 1.0,
    ("Probe-Truncation", 0.0): 1 / (1 - GAMMA),
}
BEST_ACTIONS = {("Probe-Action", 0.0): 1, ("Probe-ActionObserved", 0.0): 0, ("Probe-ActionObserved", 1.0): 1}


def seen(room: str, obs: float) -> jax.Array:
    return jnp.array([*np.eye(len(ROOMS))[ROOMS.index(room)], obs], jnp.float32)


# What these three do, ppg-ewma and reinforce do too.
@pytest.mark.parametrize(
    "algo", [pytest.param(a, marks=[one_more_case] * (a in ("ppg", "ppo-ewma", "a2c"))) for a in sorted(ALGORITHMS)]
)
def test_every_algorithm_learns_every_probe(algo):
    networks, config = train(algo, Gallery()), config_for(algo)
    for (room, obs), expected in VALUES.items():
        if room == "Probe-Truncation" and not config.bootstrap:
            continue  # without bootstrapping a cut is an end, and the value depends on the time left, which is not seen
        assert float(networks.value(seen(room, obs))) == pytest.approx(expected, abs=0.1), (room, obs)
    for (room, obs), best in BEST_ACTIONS.items():
        policy = networks.policy(seen(room, obs))
        assert float(jnp.exp(policy.log_prob(jnp.array(best)))) > 0.9, (room, obs)


@pytest.mark.parametrize("algo", [pytest.param("ppo", marks=one_more_case), "ppg-ewma"])
def test_a_continuous_action_finds_its_target(algo):
    """Reward -(a - 0.5)^2: the mean goes to 0.5, the deviation shrinks, the value rises towards 0."""
    networks = train(algo, PROBES["Probe-Target"])
    policy = networks.policy(jnp.zeros(1))
    assert float(policy.mean[0]) == pytest.approx(0.5, abs=0.1)
    assert float(jnp.exp(policy.log_std[0])) < 0.4
    assert float(networks.value(jnp.zeros(1))) == pytest.approx(0.0, abs=0.15)
