"""Chains, batches and episodes of environments written in JAX: everything is compiled, and any state can be copied."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from isobatch.envs.interface import Environment, State
from isobatch.laboratory.chains import Chains, begins, horizon_of, next_in_row, num_groups, scaled
from isobatch.laboratory.partial_results import NOTHING_KEPT, PartialResults, kept_tree
from isobatch.laboratory.source import Draw, median_seconds
from isobatch.learning.state import TrainState
from isobatch.rollouts.jax_rollout import run_policy, start_envs, where_envs
from isobatch.rollouts.segment import EnvCarry, Segment, clip_to_bounds, preprocessor, to_segment
from isobatch.settings.config import Config

Continuation = tuple[PyTree, Array, Array, Array]  # state, observation, return so far and the weight of what follows
TAILS = 4  # continuations of each cut-off return


@dataclass(frozen=True)
class JaxSource:
    """`Source` of environments that step within a compiled program."""

    config: Config
    env: Environment
    state: TrainState
    sets_clocks: bool = True
    cheap_steps: int = 2_000_000

    @property
    def time_limit(self) -> int:
        return self.env.max_steps

    known_limit = time_limit

    @property
    def obs_bytes(self) -> int:
        """As it is kept, as the network sees it, and that which a step led to."""
        return (np.dtype(self.env.obs_dtype).itemsize + 2 * 4) * math.prod(self.env.obs_shape)

    def chains(self, count: int, length: int, seed: int, parts: PartialResults = NOTHING_KEPT) -> Chains:
        segment, true_next = kept_tree(
            parts,
            "chains",
            lambda: self._chains(count, length, seed),
            lambda: (self._like(length), jnp.zeros(())),
        )
        return Chains(segment, true_next, num_groups(self.time_limit, length))

    def _like(self, length: int) -> Segment:
        """What a segment looks like."""
        key = jax.random.key(0)
        carry = jax.eval_shape(partial(started, self.env, 1), key)
        segment: Segment = jax.eval_shape(partial(run, self.config, self.env, length), self.state, carry, key)[0]
        return segment

    def _chains(self, count: int, length: int, seed: int) -> tuple[Segment, Float[Array, "L C"]]:
        """Start, run and value the chains; then play on where returns are cut off."""
        config, env, state = self.config, self.env, self.state
        start_key, act_key, tail_key = jax.random.split(jax.random.key(seed), 3)
        groups = num_groups(self.time_limit, length)
        passed = jnp.asarray(begins(self.time_limit, groups, count))
        carry = settled(config, env, state, passed, start_key)
        segment, after = run(config, env, length, state, carry, act_key)
        where = np.flatnonzero(cut_off(config, segment))
        true_next = jnp.where(segment.truncated, 0.0, next_in_row(config, segment.value))
        if len(where):
            # As many as a power of two: one compilation serves neighboring numbers of cuts.
            padded = np.resize(where, 2 ** math.ceil(math.log2(len(where))))
            states, obs = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[padded], after)
            tail = tails(config, env, state, states, obs, tail_key)[: len(where)]
            true_next = true_next.reshape(-1).at[where].set(tail).reshape(true_next.shape)
        return segment, true_next

    def batches(
        self, num_envs: int, num_steps: int, drawn: Draw, first: int = 0, parts: PartialResults = NOTHING_KEPT,
        name: str = "collected",
    ) -> Iterator[Segment]:  # fmt: skip
        """Each is handed out as soon as it is collected, so there is nothing to keep."""
        for key, age in zip(drawn.key[first:], drawn.age[first:], strict=True):
            yield batch_of(self.config, self.env, num_envs, num_steps, self.state, Draw(key, age))

    def episodes(self, count: int, horizon: int, seed: int, parts: PartialResults = NOTHING_KEPT) -> Segment:
        def collect() -> Segment:
            keys = jax.random.split(jax.random.key(seed))
            carry = started(self.env, count, keys[0])
            return run(self.config, self.env, horizon, self.state, carry, keys[1])[0]

        return kept_tree(parts, "episodes", collect, lambda: self._like(horizon))

    def seconds(self, num_envs: int, num_steps: int) -> float:
        key = jax.random.key(0)
        carry = started(self.env, num_envs, key)
        return median_seconds(lambda: run(self.config, self.env, num_steps, self.state, carry, key)[0])


@partial(jax.jit, static_argnums=(0, 1))
def started(env: Environment, count: int, key: Key[Array, ""]) -> EnvCarry:
    """Environments after their reset."""
    return start_envs(env, count, False, key)


@partial(jax.jit, static_argnums=(0, 1, 2))
def run(
    config: Config, env: Environment, length: int, state: TrainState, carry: EnvCarry, key: Key[Array, ""]
) -> tuple[Segment, tuple[State, Array | None]]:
    """A rollout, with rewards as the learner sees them, and where its steps led."""
    preprocess = preprocessor(state.obs_moments, config.hypers.obs_clip)
    _, rollout, _, states = run_policy(env, state.networks.policy, carry, preprocess, length, key)
    segment = to_segment(rollout, state.networks, preprocess, env.max_steps)
    return eqx.tree_at(lambda s: s.reward, segment, scaled(config, state, segment.reward)), (states, rollout.next_obs)


@partial(jax.jit, static_argnums=(0, 1, 5))
def settled(
    config: Config,
    env: Environment,
    state: TrainState,
    passed: Int[Array, " C"],
    key: Key[Array, ""],
    staggered: bool = False,
) -> EnvCarry:
    """Environments `passed` steps after their reset, each its own number of them."""
    preprocess = preprocessor(state.obs_moments, config.hypers.obs_clip)
    reset_key, key = jax.random.split(key)

    def step(time: Array, carry: EnvCarry) -> EnvCarry:
        moved, *_ = run_policy(env, state.networks.policy, carry, preprocess, 1, jax.random.fold_in(key, time))
        return where_envs(time < passed, moved, carry)

    return jax.lax.fori_loop(0, jnp.max(passed), step, start_envs(env, passed.size, staggered, reset_key))


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def batch_of(config: Config, env: Environment, num_envs: int, num_steps: int, state: TrainState, draw: Draw) -> Segment:
    """One rollout of environments that were reset together, or staggered, some time ago."""
    start_key, key = jax.random.split(draw.key)
    passed = jnp.broadcast_to((draw.age * env.max_steps).astype(int), (num_envs,))
    carry = settled(config, env, state, passed, start_key, config.staggered_resets)
    return run(config, env, num_steps, state, carry, key)[0]


def cut_off(config: Config, segment: Segment) -> Bool[np.ndarray, "L C"]:
    """Where a return goes on after what was observed: at the end of a chain, and at time limits.

    Without bootstrapping the time limit belongs to the task, and nothing follows it.
    """
    terminated, truncated = np.asarray(segment.terminated), np.asarray(segment.truncated)
    cut = truncated & ~terminated if config.bootstrap else np.zeros_like(truncated)
    cut[-1] |= ~(terminated | truncated)[-1]
    return cut


@partial(jax.jit, static_argnums=(0, 1))
def tails(
    config: Config, env: Environment, state: TrainState, env_state: PyTree, obs: Array, key: Key[Array, ""]
) -> Float[Array, " C"]:
    """The discounted return from these states, by playing on without a time limit; mean of TAILS continuations.

    After the horizon the value function stands for the rest.
    """
    gamma = config.hypers.gamma
    preprocess = preprocessor(state.obs_moments, config.hypers.obs_clip)
    env_state, obs = jax.tree.map(lambda leaf: jnp.repeat(leaf, TAILS, axis=0), (env_state, obs))
    count = obs.shape[0]

    def step(time: Array, carry: Continuation) -> Continuation:
        env_state, obs, total, weight = carry
        keys = jax.random.split(jax.random.fold_in(key, time), count + 1)
        action = state.networks.policy(preprocess(obs)).sample(keys[0])
        after = jax.vmap(env.step)(keys[1:], env_state, clip_to_bounds(action, env))
        total += weight * scaled(config, state, after.reward)
        over = after.terminated if config.bootstrap else after.terminated | after.truncated
        return after.state, after.obs, total, jnp.where(over, 0.0, gamma * weight)

    carry = (env_state, obs, jnp.zeros(count), jnp.ones(count))
    _, obs, total, weight = jax.lax.fori_loop(0, horizon_of(gamma, env.max_steps), step, carry)
    rest = state.networks.value(preprocess(obs)) if config.baseline else jnp.zeros(count)
    return jnp.mean((total + weight * rest).reshape(-1, TAILS), axis=1)
