"""Play whole episodes with fixed policies, all seeds and all episodes at once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree, UInt32

from isobatch.envs.host_interface import HostEnvironment
from isobatch.envs.interface import Environment
from isobatch.envs.registry import as_played, environment_of
from isobatch.errors import RunError, UsageError
from isobatch.networks.actor_critic import Networks
from isobatch.networks.moments import Moments
from isobatch.rollouts.collector import Actor
from isobatch.rollouts.host_rollout import PolicyOutput
from isobatch.rollouts.packing import Packing, packed
from isobatch.rollouts.player import Player
from isobatch.rollouts.segment import clip_to_bounds, preprocessor
from isobatch.settings.config import Config
from isobatch.settings.options import LONGEST_EPISODE, Options

LANES = 16  # environments outside JAX that play at a time, for each seed
STEPS_PER_CALL = 32  # of these; what is played beyond the last episode is thrown away


@runtime_checkable
class Policies(Protocol):
    """Policies of several seeds, stacked: a `TrainState`, or `StackedPolicies`."""

    @property
    def networks(self) -> Networks: ...
    @property
    def obs_moments(self) -> Moments | None: ...


class StackedPolicies(NamedTuple):
    networks: Networks
    obs_moments: Moments | None


# Time, state of the environments, observations, returns, lengths, and which episodes are over.
Playing = tuple[Array, PyTree, Array, Array, Array, Array]


@dataclass(frozen=True)
class Episodes:
    """Whole episodes of the policies of S seeds."""

    returns: np.ndarray  # [S, episodes]
    lengths: np.ndarray  # [S, episodes]

    @property
    def return_mean(self) -> np.ndarray:
        """[S]"""
        return self.returns.mean(axis=1)

    @property
    def return_std(self) -> np.ndarray:
        """[S], over episodes."""
        return self.returns.std(axis=1)

    @property
    def length_mean(self) -> np.ndarray:
        """[S]"""
        return self.lengths.mean(axis=1)

    def summary(self) -> dict[str, np.ndarray]:
        """One number a seed."""
        return {name: getattr(self, name) for name in ("return_mean", "return_std", "length_mean")}


def gap(trained: Episodes, others: Episodes) -> dict[str, np.ndarray]:
    """How much less each seed gets on levels it may not have seen, and the standard error of that."""
    squares = [played.returns.var(axis=1) / played.returns.shape[1] for played in (trained, others)]
    return {"gap": trained.return_mean - others.return_mean, "gap_error": np.sqrt(squares[0] + squares[1])}


def evaluate(
    config: Config,
    states: Policies,
    episodes: int,
    deterministic: bool,
    seed: int,
    env_timeout: float = Options.env_timeout,
    longest: int = LONGEST_EPISODE,
) -> Episodes:
    """Returns and lengths of the stacked `states`, each environment played to its first end: see `Evaluator`."""
    return Evaluator(config, episodes, deterministic, seed, env_timeout, longest)(states)


class Evaluator:
    """Plays the same episodes with one policy after another; compiled on the first call.

    Every training seed meets the same initial states. RunError if an environment fails, does not answer within
    `env_timeout` seconds, shows a number that is not finite, or has not ended an episode after `longest` steps.
    """

    def __init__(
        self,
        config: Config,
        episodes: int,
        deterministic: bool,
        seed: int,
        env_timeout: float = Options.env_timeout,
        longest: int = LONGEST_EPISODE,
    ) -> None:
        self.config, self.episodes, self.seed = config, episodes, seed
        self.env_timeout, self.longest = env_timeout, longest
        self.env = env = environment_of(as_played(config))
        clip = config.hypers.obs_clip
        if isinstance(env, HostEnvironment):
            self._choose = ActorFactory(env, clip, deterministic)
        else:
            one = partial(play_episodes, env, obs_clip=clip, episodes=episodes, deterministic=deterministic)
            self._play = jax.jit(jax.vmap(lambda state, key: one(state, key=key), in_axes=(0, None)))

    def __call__(self, states: Policies) -> Episodes:
        played = self.play(states, self.seed)
        if not np.isfinite(played.returns).all():
            name = self.config.env
            raise RunError(f"an environment ({name}) gave a reward that is not a finite number, in the evaluation.")
        return played

    def play(self, states: Policies, seed: int | np.ndarray) -> Episodes:
        """Episodes of another seed, outside JAX perhaps one for each policy.

        Rewards that environments in JAX give are taken as they are.
        """
        policies = StackedPolicies(states.networks, states.obs_moments)
        if isinstance(self.env, HostEnvironment):
            count = jax.tree.leaves(policies.networks)[0].shape[0]
            return play_outside(self, self.env, self._choose, policies, np.broadcast_to(seed, count))
        returns, lengths = self._play(policies, jax.random.key(seed))
        return Episodes(np.asarray(returns), np.asarray(lengths))


def endless(env: str, longest: int) -> RunError:
    return RunError(
        f"an episode of {env} has not ended after {longest:,} steps (max_episode_steps): allow more, or give the "
        "environment a time limit."
    )


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
    asked: Evaluator, env: HostEnvironment, choose: ActorFactory, policies: StackedPolicies, seeds_of: np.ndarray
) -> Episodes:
    """Episodes in environments that step outside JAX.

    Each of some environments plays a fixed share of the episodes: the first ones to end would be the short ones.
    """
    episodes, name, longest = asked.episodes, asked.config.env, asked.longest
    seeds, lanes = len(seeds_of), min(episodes, LANES)
    shares = np.bincount(np.arange(episodes) % lanes, minlength=lanes)
    returns, lengths = np.zeros((seeds, episodes)), np.zeros((seeds, episodes), np.int32)
    total, length = np.zeros((seeds, lanes)), np.zeros((seeds, lanes), np.int32)
    episode = np.zeros((seeds, lanes), np.int64)
    actor, key = choose.actor(policies, lanes), jax.random.key(int(seeds_of[0]))
    with Player(env, name, actor, seeds_of, (STEPS_PER_CALL, lanes), key, asked.env_timeout) as player:
        while (episode < shares).any():
            if (length[episode < shares] >= longest).any():
                raise endless(name, longest)
            rollout, fills_in = player.play()
            reward, ends = np.asarray(rollout.reward), np.asarray(rollout.done)
            for t in range(STEPS_PER_CALL):
                total, length = total + np.where(fills_in, 0, reward[:, t]), length + ~fills_in
                done = ends[:, t]
                for s, lane in np.argwhere(done & (episode < shares)):
                    returns[s, episode[s, lane] * lanes + lane] = total[s, lane]
                    lengths[s, episode[s, lane] * lanes + lane] = length[s, lane]
                episode, total, length = episode + done, np.where(done, 0, total), np.where(done, 0, length)
                fills_in = done & (env.autoreset == "next-step")
    return Episodes(returns, lengths)


class ActorFactory:
    """The actions of all policies at once, for environments that step outside JAX; compiled on the first call."""

    def __init__(self, env: HostEnvironment, clip: float, deterministic: bool) -> None:
        def one(policy: StackedPolicies, key: UInt32[Array, "K"], obs: Array) -> tuple[Array, PolicyOutput]:
            networks, moments = policy
            later, now = jax.random.split(jax.random.wrap_key_data(key))
            behavior = networks.policy(preprocessor(moments, clip)(obs))
            action = behavior.mode() if deterministic else behavior.sample(now)
            return jax.random.key_data(later), PolicyOutput(clip_to_bounds(action, env), action, behavior, None)

        def of_all(policies: StackedPolicies, keys: Array, obs: Array) -> tuple[Array, Array]:
            keys, outputs = jax.vmap(one)(policies, keys, obs)
            return keys, jax.vmap(packed)(outputs)

        self._env, self._one, self._of_all = env, one, jax.jit(of_all)

    def actor(self, policies: StackedPolicies, lanes: int) -> Actor:
        """Nobody asks for the values of states."""
        first = jax.tree.map(lambda leaf: leaf[0], policies)
        shown = jax.ShapeDtypeStruct((lanes, *self._env.obs_shape), self._env.obs_dtype)
        output = jax.eval_shape(self._one, first, jax.random.key_data(jax.random.key(0)), shown)[1]
        return Actor(partial(self._of_all, policies), no_values, Packing(output))


def no_values(obs: np.ndarray) -> np.ndarray:
    return np.zeros(obs.shape[:2], np.float32)


def play_episodes(
    env: Environment, state: Policies, obs_clip: float, episodes: int, deterministic: bool, key: Key[Array, ""]
) -> tuple[Array, Array]:
    """One policy: return and length of `episodes` episodes."""
    preprocess = preprocessor(state.obs_moments, obs_clip)
    reset_key, key = jax.random.split(key)
    env_state, obs = jax.vmap(env.reset)(jax.random.split(reset_key, episodes))

    def running(carry: Playing) -> Array:
        time, *_, over = carry
        return (time < env.max_steps) & ~jnp.all(over)

    def step(carry: Playing) -> Playing:
        time, env_state, obs, returns, lengths, over = carry
        keys = jax.random.split(jax.random.fold_in(key, time), episodes + 1)
        distribution = state.networks.policy(preprocess(obs))
        action = distribution.mode() if deterministic else distribution.sample(keys[0])
        after = jax.vmap(env.step)(keys[1:], env_state, clip_to_bounds(action, env))
        returns = returns + jnp.where(over, 0.0, after.reward)
        lengths = lengths + ~over
        return time + 1, after.state, after.obs, returns, lengths, over | after.terminated | after.truncated

    nothing = jnp.zeros(episodes)
    carry = (jnp.int32(0), env_state, obs, nothing, nothing.astype(jnp.int32), nothing.astype(bool))
    _, _, _, returns, lengths, _ = jax.lax.while_loop(running, step, carry)
    return returns, lengths
