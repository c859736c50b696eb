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
from isobatch.rollouts.collector import Actor, AnyArray, Buffers, Collector
from isobatch.rollouts.env_groups import group_columns
from isobatch.rollouts.host_rollout import choose, host_carry, replaced, value
from isobatch.rollouts.packing import Packing, packed
from isobatch.rollouts.segment import EnvCarry, Segment, preprocessor, to_segment
from isobatch.settings.config import Config


class Played(NamedTuple):
    """T steps of all environments, [S, T, N, ...]."""

    rollout: CollectedRollout
    fills_in: np.ndarray  # [S, N], whether the first row fills in for a reset


class Standing(NamedTuple):
    """Where a player stands after some calls: enough to have its episodes again, where that is possible."""

    carry: EnvCarry
    fills_in: np.ndarray  # [S, N]
    calls: int | np.ndarray
    generator: np.ndarray  # of a policy that draws from one of its own


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
        self._calls, self.lost = 0, False  # calls so far, and whether it does not stand where it was told to go on
        self._carry = self._not_running()
        self._fills_in = np.zeros((len(seeds), self._num_envs), bool)

    def __enter__(self) -> Self:
        self._compile()
        try:
            self._carry = self._collector.open(self._carry, self._calls, self._not_found)
        except BaseException:
            self._collector.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._collector.close()

    @property
    def standing(self) -> Standing:
        return Standing(self._carry, self._fills_in, self._calls, np.zeros(0, np.uint8))

    def go_on(self, standing: Standing) -> None:
        """Begin there, when the context is opened."""
        self._carry, self._fills_in, self._calls = standing.carry, standing.fills_in, int(standing.calls)
        self.lost = not self.env.replays

    def _not_found(self, sentence: str) -> None:
        self.lost = True

    def nothing_played(self) -> Played:
        """In the shape of what is played, a row of one environment."""
        buffers = Buffers(self.env, (len(self._seeds), 1, 1), self._actor.packing)
        output = self._actor.packing.unpacked(buffers.outputs)
        rollout = CollectedRollout.of_leaves(
            obs=buffers.obs,
            last_obs=buffers.obs[:, 0],
            action=output.action,
            behavior=output.behavior,
            reward=buffers.reward,
            terminated=buffers.terminated,
            truncated=buffers.truncated,
            final_value=buffers.reward,
            value=output.value,
        )
        return Played(rollout, np.zeros((len(self._seeds), 1), bool))

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
        before = self._carry.episodes.length  # which the collector does not count
        carry, rollout = self._collector.wait(running)
        lengths = lengths_after(before, np.asarray(rollout.done))
        self._carry = replaced(carry, episodes=replaced(carry.episodes, length=lengths))
        self._calls += 1
        played = Played(rollout, self._fills_in)
        self._fills_in = np.asarray(rollout.done)[:, -1] & (self.env.autoreset == "next-step")
        return played


def lengths_after(before: AnyArray, done: np.ndarray) -> np.ndarray:
    """Steps [S, N] of the episodes in progress after rows [S, T, N] that end where `done`."""
    since = np.argmax(done[:, ::-1], axis=1)
    return np.where(done.any(axis=1), since, np.asarray(before) + done.shape[1]).astype(np.int32)


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
