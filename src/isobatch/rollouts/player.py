"""Fixed policies in environments outside JAX, a few steps at a time: the collector of training, without learning."""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from isobatch.envs.host_interface import HostEnvironment
from isobatch.networks.actor_critic import Networks
from isobatch.networks.moments import Moments
from isobatch.rollouts.collected import CollectedRollout
from isobatch.rollouts.collector import Actor, Collector
from isobatch.rollouts.env_groups import group_columns
from isobatch.rollouts.host_rollout import choose, host_carry, value
from isobatch.rollouts.packing import Packing, packed
from isobatch.rollouts.segment import EnvCarry, Segment, preprocessor, to_segment
from isobatch.settings.config import Config


class Played(NamedTuple):
    """T steps of all environments, [S, T, N, ...]."""

    rollout: CollectedRollout
    fills_in: np.ndarray  # [S, N], whether the first row fills in for a reset


class Player:
    """Environments that run while the context is open; each call of `play` goes on where the last one stopped.

    Faults, time limits and numbers that are not finite end it with a RunError, as they end training.
    """

    def __init__(
        self,
        env: HostEnvironment,
        name: str,
        actor: Actor,
        seeds: np.ndarray,
        shape: tuple[int, int],
        key: Key[Array, ""],
        time_limit: float,
    ) -> None:
        """`actor` acts for S policies, whose environments draw from `seeds` [S]; `shape` is T x N of a call."""
        self.env, self._actor, self._key = env, actor, key
        self._steps, self._num_envs = shape
        only_collects = Config(
            env=name,
            num_envs=self._num_envs,
            num_steps=self._steps,
            num_minibatches=1,
            total_timesteps=self._steps * self._num_envs,
        )
        self._seeds = seeds
        self._collector = Collector(env, only_collects, seeds, time_limit)
        self._calls = 0
        self._fills_in = np.zeros((len(seeds), self._num_envs), bool)

    def __enter__(self) -> Self:
        self._compile()
        try:
            self._carry = self._collector.open(self._not_running(), 0, lambda sentence: None)
        except BaseException:
            self._collector.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._collector.close()

    def _not_running(self) -> EnvCarry:
        carry = host_carry(self.env, self._num_envs, 0)
        return jax.tree.map(lambda leaf: np.stack([np.asarray(leaf)] * len(self._seeds)), carry)

    def _compile(self) -> None:
        """Before anybody watches the time that environments take."""
        obs = np.zeros((len(self._seeds), self._num_envs, *self.env.obs_shape), self.env.obs_dtype)
        for columns in group_columns(self.env, self._num_envs):
            self._actor.choose(self._for_all_seeds(jax.random.key_data(self._key)), obs[:, columns])
        self._actor.value(obs)

    def _for_all_seeds(self, key: Array) -> Array:
        """Every policy has the same luck."""
        return jnp.broadcast_to(key, (len(self._seeds), *key.shape))

    def play(self) -> Played:
        count = len(group_columns(self.env, self._num_envs))
        keys = jax.random.key_data(jax.random.split(jax.random.fold_in(self._key, self._calls), count))
        running = self._collector.start(
            self._carry, self._actor, [self._for_all_seeds(key) for key in keys], self._calls
        )
        self._carry, rollout = self._collector.wait(running)
        self._calls += 1
        played = Played(rollout, self._fills_in)
        self._fills_in = np.asarray(rollout.done)[:, -1] & (self.env.autoreset == "next-step")
        return played


class PolicyPlayer(Player):
    """One policy, whose rollouts can be made segments."""

    def __init__(
        self,
        env: HostEnvironment,
        name: str,
        networks: Networks,
        obs_moments: Moments | None,
        obs_clip: float,
        shape: tuple[int, int],
        key: Key[Array, ""],
        time_limit: float,
    ) -> None:
        """Environments and actions draw from `key`."""
        self._parameters = (networks, obs_moments, jnp.asarray(obs_clip))
        seed, key = int(jax.random.bits(key)) >> 1, jax.random.fold_in(key, 1)
        obs = jax.ShapeDtypeStruct((shape[1], *env.obs_shape), env.obs_dtype)
        output = jax.eval_shape(partial(choose, env), *self._parameters, jax.random.key_data(key), obs)[1]
        actor = Actor(partial(_choose, env, *self._parameters), partial(_value, *self._parameters), Packing(output))
        super().__init__(env, name, actor, np.array([seed]), shape, key, time_limit)

    def segment(self, played: Played) -> Segment:
        """What was played, with the values of its states."""
        return _segment(self.env, *self._parameters, played.fills_in[0], played.rollout)


@partial(jax.jit, static_argnums=0)
def _choose(
    env: HostEnvironment, networks: Networks, moments: Moments | None, clip: Array, keys: Array, obs: Array
) -> tuple[Array, Array]:
    """Of one seed, which has an axis of its own in front."""
    key, output = choose(env, networks, moments, clip, keys[0], obs[0])
    return key[None], packed(output)[None]


@jax.jit
def _value(networks: Networks, moments: Moments | None, clip: Array, obs: Array) -> Array:
    return value(networks, moments, clip, obs[0])[None]


@partial(jax.jit, static_argnums=0)
def _segment(
    env: HostEnvironment,
    networks: Networks,
    moments: Moments | None,
    clip: Array,
    fills_in: Array,
    rollout: CollectedRollout,
) -> Segment:
    one: CollectedRollout = jax.tree.map(lambda leaf: leaf[0], rollout)
    resets_by_step = env.autoreset == "next-step"
    return to_segment(one, networks, preprocessor(moments, clip), env.max_steps, fills_in if resets_by_step else None)
