"""Play whole episodes with trained policies, all seeds and all episodes at once."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from isobatch.envs import as_played, env_of, is_host
from isobatch.envs.host_interface import FaultError, HostEnvironment
from isobatch.envs.interface import Environment
from isobatch.errors import RunError, UsageError
from isobatch.learning.state import TrainState
from isobatch.rollouts.compiled import clip_to_bounds, normalizer
from isobatch.rollouts.env_groups import EnvGroup
from isobatch.rollouts.host import replaced
from isobatch.settings.config import Config

LANES = 16  # environments outside JAX that play at a time, for each seed


class Played(NamedTuple):
    """Episodes of all seeds, [seeds, episodes]."""

    returns: np.ndarray
    lengths: np.ndarray

    def summary(self) -> dict[str, np.ndarray]:
        """One number a seed."""
        return {
            "return_mean": self.returns.mean(axis=1),
            "return_std": self.returns.std(axis=1),
            "length_mean": self.lengths.mean(axis=1),
        }


def gap(trained: Played, others: Played) -> dict[str, np.ndarray]:
    """How much less each seed gets on levels it may not have seen, and the standard error of that."""
    squares = [played.returns.var(axis=1) / played.returns.shape[1] for played in (trained, others)]
    return {
        "gap": trained.returns.mean(axis=1) - others.returns.mean(axis=1),
        "gap_error": np.sqrt(squares[0] + squares[1]),
    }


def evaluate(config: Config, states: TrainState, episodes: int, deterministic: bool, seed: int) -> Played:
    """Returns and lengths of the stacked `states`, each environment played to its first end.

    Every training seed meets the same initial states.
    """
    env = env_of(as_played(config))
    if is_host(env):
        return Played(*play_outside(env, config, states, episodes, deterministic, seed))
    key, clip = jax.random.key(seed), config.hypers.obs_clip
    play = jax.jit(jax.vmap(lambda state: play_episodes(env, state, clip, episodes, deterministic, key)))
    returns, lengths = play(states)
    return Played(np.asarray(returns), np.asarray(lengths))


def held_out(config: Config) -> Config:
    """The same environment with all its levels, where a run was trained on some of them (Procgen's `num_levels`)."""
    kwargs = json.loads(config.env_kwargs)
    if not kwargs.get("num_levels"):
        raise UsageError(
            f"--held-out needs a run trained on some levels, and env_kwargs={config.env_kwargs} of this one names "
            "no num_levels: train with, for example, --env-kwargs '{num_levels: 200}'."
        )
    return config.replace(env_kwargs=kwargs | {"num_levels": 0, "start_level": 0})


def play_outside(
    env: HostEnvironment, config: Config, states: TrainState, episodes: int, deterministic: bool, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """`evaluate` for environments that step outside JAX.

    Each of some environments plays a fixed share of the episodes: the first ones to end would be the short ones.
    """
    seeds, lanes = states.iteration.shape[0], min(episodes, LANES)
    clip = config.hypers.obs_clip

    @jax.jit
    @partial(jax.vmap, in_axes=(0, None, 0))
    def act(state: TrainState, key: Key[Array, ""], obs: Array) -> Array:
        distribution = state.learner.networks.policy(normalizer(state.obs_moments, clip)(obs))
        return clip_to_bounds(distribution.mode() if deterministic else distribution.sample(key), env)

    policies = replaced(states, envs=None, queue=None, phase=None)
    shares = np.bincount(np.arange(episodes) % lanes, minlength=lanes)
    returns, lengths = np.zeros((seeds, episodes)), np.zeros((seeds, episodes), np.int32)
    total, length, over = (np.zeros((seeds, lanes), kind) for kind in (float, np.int32, bool))
    episode = np.zeros((seeds, lanes), np.int64)
    key, time = jax.random.key(seed), 0
    half = None
    try:
        half = EnvGroup.open(env, slice(0, lanes), np.full(seeds, seed), episode)
        half.reset(episode, np.ones_like(over))
        while (episode < shares).any():
            half.send(np.asarray(act(policies, jax.random.fold_in(key, time), half.obs)))
            moved = half.receive()
            total, length, time = total + np.where(over, 0, moved.reward), length + ~over, time + 1
            done = moved.terminated | moved.truncated
            for s, lane in np.argwhere(done & (episode < shares)):
                returns[s, episode[s, lane] * lanes + lane] = total[s, lane]
                lengths[s, episode[s, lane] * lanes + lane] = length[s, lane]
            episode, total, length = episode + done, np.where(done, 0, total), np.where(done, 0, length)
            over = done if env.autoreset == "next-step" else over
            if env.autoreset == "disabled":
                half.reset(episode, done)
    except FaultError as fault:
        raise RunError(f"an environment ({config.env}) {fault.what}, at step {time} of the evaluation.") from None
    finally:
        if half is not None:
            half.vector.close()
    return returns, lengths


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
