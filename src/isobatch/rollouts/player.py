"""A fixed policy in environments outside JAX, a few steps at a time: the collector of training, without learning."""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from isobatch.envs.host_interface import HostEnvironment
from isobatch.networks.actor_critic import ActorCritic
from isobatch.networks.moments import Moments
from isobatch.rollouts.collector import Actor, Collector
from isobatch.rollouts.compiled import Segment
from isobatch.rollouts.env_groups import columns_of
from isobatch.rollouts.host import OpenEpisodes, Rollout, act, finish, host_carry, value
from isobatch.rollouts.packing import Packing, packed
from isobatch.settings.config import Config


class Player:
    """Environments that run while the context is open; each call of `play` goes on where the last one stopped."""

    def __init__(
        self,
        env: HostEnvironment,
        name: str,
        networks: ActorCritic,
        obs_moments: Moments | None,
        obs_clip: float,
        shape: tuple[int, int],
        key: Key[Array, ""],
        time_limit: float,
    ) -> None:
        """`shape` is T x N of a call; environments and actions draw from `key`."""
        self.env, self.networks, self.seeing = env, networks, (obs_moments, jnp.asarray(obs_clip))
        self.steps, self.num_envs = shape
        self._seed, self._key = int(jax.random.bits(key)) >> 1, jax.random.fold_in(key, 1)
        only_collects = Config(
            env=name,
            num_envs=self.num_envs,
            num_steps=self.steps,
            num_minibatches=1,
            total_timesteps=self.steps * self.num_envs,
        )
        self._collector = Collector(env, only_collects, np.array([self._seed]), time_limit)
        obs = jax.ShapeDtypeStruct((self.num_envs, *env.obs_shape), env.obs_dtype)
        one_key = jax.random.key_data(self._key)
        self._packing = Packing(jax.eval_shape(partial(act, env), networks, *self.seeing, one_key, obs)[1])
        self._calls = 0
        self._over: np.ndarray = np.zeros(self.num_envs, bool)

    def __enter__(self) -> Player:
        self._compile()
        not_running: Any = jax.tree.map(lambda leaf: np.asarray(leaf)[None], host_carry(self.env, self.num_envs, 0))
        try:
            self._carry = self._collector.open(not_running, 0, lambda sentence: None)
        except BaseException:
            self._collector.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._collector.close()

    def _compile(self) -> None:
        """Before anybody watches the time that environments take."""
        actor, obs = self._actor(), np.zeros((1, self.num_envs, *self.env.obs_shape), self.env.obs_dtype)
        for columns in columns_of(self.env, self.num_envs):
            actor.act(jax.random.key_data(self._key)[None], obs[:, columns])
        actor.value(obs)

    def _actor(self) -> Actor:
        seeing = (self.networks, *self.seeing)
        return Actor(partial(_act, self.env, *seeing), partial(_value, *seeing), self._packing)

    def play(self) -> tuple[Rollout, np.ndarray]:
        """T steps, and which environments [N] begin them with a row that fills in for a reset."""
        halves = columns_of(self.env, self.num_envs)
        keys = jax.random.key_data(jax.random.split(jax.random.fold_in(self._key, self._calls), len(halves)))
        running = self._collector.start(self._carry, self._actor(), [key[None] for key in keys], self._calls)
        self._carry, rollout = self._collector.wait(running)
        self._calls += 1
        over, self._over = self._over, np.asarray(rollout.terminated | rollout.truncated)[0, -1]
        return rollout, over

    def judged(self, rollout: Rollout, over: np.ndarray) -> Segment:
        """What a rollout comes to, with the values of its states."""
        return _judge(self.env, self.networks, *self.seeing, over, rollout)


@partial(jax.jit, static_argnums=0)
def _act(
    env: HostEnvironment, networks: ActorCritic, moments: Moments | None, clip: Array, keys: Array, obs: Array
) -> tuple[Array, Array]:
    """Of one seed, which has an axis of its own in front."""
    key, choice = act(env, networks, moments, clip, keys[0], obs[0])
    return key[None], packed(choice)[None]


@jax.jit
def _value(networks: ActorCritic, moments: Moments | None, clip: Array, obs: Array) -> Array:
    return value(networks, moments, clip, obs[0])[None]


@partial(jax.jit, static_argnums=0)
def _judge(
    env: HostEnvironment, networks: ActorCritic, moments: Moments | None, clip: Array, over: Array, rollout: Rollout
) -> Segment:
    one: Rollout = jax.tree.map(lambda leaf: leaf[0], rollout)
    nothing = jnp.zeros(over.shape)
    before = OpenEpisodes(nothing, nothing.astype(jnp.int32), nothing.astype(bool), over)
    return finish(False, env, networks, moments, clip, before, one).segment
