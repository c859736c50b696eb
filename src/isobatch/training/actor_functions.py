"""What is compiled of a run with actors: a rollout of each by itself, and what is learned from K of them together."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from isobatch.envs.host_interface import HostEnvironment
from isobatch.learning.iteration import Keys
from isobatch.learning.state import TrainState
from isobatch.networks.actor_critic import Networks
from isobatch.networks.moments import Moments, discounted_returns
from isobatch.rollouts.acting import Policy
from isobatch.rollouts.actors.loop import Content, Standing
from isobatch.rollouts.collected import CollectedRollout
from isobatch.rollouts.collector import GroupKeys
from isobatch.rollouts.compiling import compile_for
from isobatch.rollouts.env_groups import LocalEnvs
from isobatch.rollouts.host_rollout import process, replaced
from isobatch.rollouts.segment import EnvCarry, EpisodeSums, OpenEpisodes, Segment
from isobatch.settings.config import Config, Hypers
from isobatch.training.host_functions import CompiledFunctions, looks, split, split_keys


class Digested(NamedTuple):
    """One rollout of one seed."""

    segment: Segment
    episodes: EpisodeSums
    open_episodes: OpenEpisodes
    fills_in: Bool[Array, "n"]
    discounted: Float[Array, "n"]


class ActorFunctions(CompiledFunctions):
    """Of all seeds at once, for actors with equally many environments."""

    def __init__(self, config: Config, env: HostEnvironment, states: TrainState, hypers: Hypers) -> None:
        super().__init__(config, env, states, hypers, LocalEnvs(config.num_envs // config.actors))

    def compile_learning(self, states: TrainState, hypers: Hypers, keys: Keys, rollout: CollectedRollout) -> None:
        config = self.config
        policy = (states.networks, states.obs_moments, hypers.obs_clip)
        self.rollout = rollout
        self._keys = compile_for(jax.vmap(partial(split_keys, self.num_groups)), states.key)
        of_all = states.envs.episodes, states.envs.state.fills_in, states.envs.episodes.total
        of_one = jax.eval_shape(partial(jax.tree.map, lambda leaf: leaf[:, : self.here.count]), of_all)
        before = (*policy, *of_one, hypers.reward_norm_gamma, rollout)
        self.process_rollout = compile_for(jax.vmap(self.process_one), *before)
        segment = jax.eval_shape(jax.vmap(self.process_one), *before).segment
        parts = [segment] * config.actors, np.zeros(config.actors, np.float32)
        seen = [rollout.obs] * config.actors if config.normalize_observations else None
        joined = jax.vmap(join, in_axes=(0, None, 0, 0))
        self.join = compile_for(joined, *parts, states.obs_moments, seen)
        whole = jax.eval_shape(joined, *parts, states.obs_moments, seen)[0]
        number = jnp.int32(0)
        self.learn = compile_for(self._learn, *split(states.learning), whole, hypers, number, keys, donate=2)

    def update_keys(self, key: Array) -> Keys:
        """Of an update, whose rollouts had theirs."""
        return self._keys(key)[0]

    def keys_of(self, key: Array, actor: int) -> tuple[Array, GroupKeys]:
        keys, group_keys = self._keys(key)
        groups, of_all = self.acting.num_groups, np.asarray(group_keys)
        return keys.next, [of_all[:, actor * groups + group] for group in range(groups)]

    def process_one(
        self,
        networks: Networks,
        moments: Moments | None,
        clip: Float[Array, ""],
        episodes: OpenEpisodes,
        fills_in: Bool[Array, "n"],
        discounted: Float[Array, "n"],
        gamma: Float[Array, ""],
        rollout: CollectedRollout,
    ) -> Digested:
        """Of one seed; the normalizer of observations learns later, from whole batches."""
        whole = self.config.complete_episodes
        after = process(whole, self.env, networks, moments, clip, episodes, fills_in, rollout)
        segment = after.segment
        if self.config.normalize_rewards:
            begin = jnp.zeros_like(discounted) if whole else discounted
            discounted, returns = discounted_returns(begin, segment.reward, rollout.done, gamma)
            segment = replaced(segment, discounted=returns)
        return Digested(segment, after.episodes, after.open_episodes, after.fills_in, discounted)


class RolloutFunctions:
    """What a rollout goes through in a run with these hyperparameters (`loop.Functions`)."""

    def __init__(self, functions: ActorFunctions, hypers: Hypers) -> None:
        self._functions, self._gamma = functions, hypers.reward_norm_gamma
        self.keys_of = functions.keys_of

    def digest(
        self, policy: Policy, before: Standing, key: Array, envs: EnvCarry, rollout: CollectedRollout
    ) -> Content:
        state = envs.state
        args = envs.episodes, state.fills_in, before.discounted, self._gamma, rollout
        done: Digested = self._functions.process_rollout(*policy, *args)
        after = replaced(envs, state=replaced(state, fills_in=done.fills_in), episodes=done.open_episodes)
        standing = Standing(jax.tree.map(np.asarray, after), key, before.number + 1, done.discounted)
        seen = rollout.obs if self._functions.config.normalize_observations else None
        return Content(done.segment, done.episodes, seen, standing)


def join(
    segments: list[Segment], lags: Float[Array, "K"], moments: Moments | None, seen: list[Array] | None
) -> tuple[Segment, Moments | None]:
    """The batch of K rollouts, environments side by side, and the normalizer after it."""
    segment: Segment = jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=1), *segments)
    width = segments[0].reward.shape[1]
    lag = jnp.broadcast_to(jnp.repeat(lags, width).astype(segment.reward.dtype), segment.reward.shape)
    if moments is not None and seen is not None:
        obs = jnp.concatenate(seen, axis=1)
        moments = moments.update(obs.astype(float), used=segment.valid)
    return replaced(segment, lag=lag), moments


_COMPILED: dict[tuple, ActorFunctions] = {}


def actor_functions_for(config: Config, env: HostEnvironment, states: TrainState, hypers: Hypers) -> ActorFunctions:
    """Compiled once for environments that look alike."""
    key = looks(config, env, states)
    if key not in _COMPILED:
        _COMPILED[key] = ActorFunctions(config.static, env, states, hypers)
    return _COMPILED[key]
