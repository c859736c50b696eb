"""Play whole episodes with trained policies, all seeds and all episodes at once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from isobatch.config import Config
from isobatch.envs import make_env
from isobatch.envs.interface import Environment
from isobatch.rollout import clip_to_bounds, normalizer
from isobatch.state import TrainState


def evaluate(
    config: Config, states: TrainState, episodes: int, deterministic: bool, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns and lengths [seeds, episodes] of the stacked `states`, each environment played to its first end.

    Every training seed meets the same initial states.
    """
    env = make_env(config.env)
    key, clip = jax.random.key(seed), config.hypers.obs_clip
    play = jax.jit(jax.vmap(lambda state: play_episodes(env, state, clip, episodes, deterministic, key)))
    returns, lengths = play(states)
    return np.asarray(returns), np.asarray(lengths)


def play_episodes(
    env: Environment, state: TrainState, obs_clip: float, episodes: int, deterministic: bool, key: Key[Array, ""]
) -> tuple[Array, Array]:
    """One policy: return and length of `episodes` episodes."""
    see = normalizer(state.obs_moments, obs_clip)
    reset_key, key = jax.random.split(key)
    env_state, obs = jax.vmap(env.reset)(jax.random.split(reset_key, episodes))

    def running(carry: Any) -> Array:
        time, *_, over = carry
        return (time < env.max_steps) & ~jnp.all(over)

    def step(carry: Any) -> Any:
        time, env_state, obs, returns, lengths, over = carry
        keys = jax.random.split(jax.random.fold_in(key, time), episodes + 1)
        distribution = state.learner.networks.policy(see(obs))
        action = distribution.mode() if deterministic else distribution.sample(keys[0])
        after = jax.vmap(env.step)(keys[1:], env_state, clip_to_bounds(action, env))
        returns = returns + jnp.where(over, 0.0, after.reward)
        lengths = lengths + ~over
        return time + 1, after.state, after.obs, returns, lengths, over | after.terminated | after.truncated

    nothing = jnp.zeros(episodes)
    carry = (jnp.int32(0), env_state, obs, nothing, nothing.astype(jnp.int32), nothing.astype(bool))
    _, _, _, returns, lengths, _ = jax.lax.while_loop(running, step, carry)
    return returns, lengths
