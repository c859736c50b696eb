"""Environments of the gymnax library behind the interface of this package."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Key

from isobatch.envs.gymnax_modules import make_gymnax
from isobatch.envs.interface import State, Step
from isobatch.envs.spaces import Box, Discrete, Space


class GymnaxEnvironment:
    """A gymnax environment with its default parameters: one of its registry, or an object of a user's own."""

    def __init__(self, env_id: str, env: Any = None) -> None:
        self._env, self._params = make_gymnax(env_id) if env is None else (env, env.default_params)
        observation_space = self._env.observation_space(self._params)
        # A discrete observation is a state's number: the network gets it one-hot.
        self._one_hot = int(observation_space.n) if type(observation_space).__name__ == "Discrete" else 0
        self.obs_shape = (self._one_hot,) if self._one_hot else tuple(int(n) for n in observation_space.shape)
        self.obs_dtype = "bool" if env_id.endswith("-MinAtar") else "float32"  # MinAtar's images are zeros and ones
        self.action_space = _action_space(self._env.action_space(self._params))
        self.max_steps = int(self._params.max_steps_in_episode)

    def reset(self, key: Key[Array, ""]) -> tuple[State, Array]:
        obs, state = self._env.reset_env(key, self._params)
        # Some environments start with Python numbers and go on with arrays.
        return jax.tree.map(jnp.asarray, state), self._observation(obs)

    def step(self, key: Key[Array, ""], state: State, action: Array) -> Step:
        obs, new_state, reward, terminated, _ = self._env.step_env(key, state, action, self._params)
        new_state = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), new_state, state)
        truncated = self._env.is_truncated(new_state, self._params)
        return Step(
            state=new_state,
            obs=self._observation(obs),
            reward=jnp.asarray(reward, jnp.result_type(float)).reshape(()),
            terminated=jnp.asarray(terminated, bool).reshape(()),
            truncated=jnp.asarray(truncated, bool).reshape(()),
        )

    def at_time(self, state: State, time: Array) -> State:
        return state.replace(time=jnp.asarray(time, state.time.dtype))

    def _observation(self, obs: ArrayLike) -> Array:
        if self._one_hot:
            return jax.nn.one_hot(obs, self._one_hot)
        return jnp.asarray(obs, bool if self.obs_dtype == "bool" else jnp.result_type(float))


def is_gymnax(env: object) -> bool:
    from gymnax.environments.environment import Environment

    return isinstance(env, Environment)


def _action_space(space: Any) -> Space:
    if type(space).__name__ == "Discrete":
        return Discrete(int(space.n))
    shape = tuple(int(n) for n in space.shape)
    low, high = (
        tuple(float(v) for v in np.broadcast_to(np.asarray(b), shape).ravel()) for b in (space.low, space.high)
    )
    return Box(shape, low, high)
