"""One iteration, the data flow: rollout -> queue -> policy phase -> (end of a phase) auxiliary phase."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from isobatch.envs.interface import Environment
from isobatch.learning.auxiliary_phase import auxiliary_phase
from isobatch.learning.noise_scale import noise_metrics
from isobatch.learning.policy_phase import Metrics, optimize, prepare
from isobatch.learning.state import Learner, Learning, TrainState, hypers_at, learning_rate
from isobatch.networks import shards
from isobatch.networks.moments import Moments, RewardScale
from isobatch.networks.shards import axes_of
from isobatch.rollouts.jax_rollout import collect, start_envs
from isobatch.rollouts.segment import EpisodeSums, Segment
from isobatch.rollouts.staleness import exchange
from isobatch.settings.config import Config, Hypers
from isobatch.settings.schedules import falling_ranges

Index = int | Int[Array, ""]  # of an iteration
Count = np.integer | np.ndarray | Int[Array, ""]
State = TypeVar("State")


class Learned(NamedTuple):
    """What the policy phase changes, and the value targets, for an auxiliary phase."""

    learner: Learner
    reward_scale: RewardScale | None
    advantage_moments: Moments
    target: Float[Array, "T N"]


def iterate(
    config: Config, env: Environment, state: TrainState, hypers: Hypers, iteration: Int[Array, ""]
) -> tuple[TrainState, Metrics, EpisodeSums]:
    """One alternation between sampling and optimization, of an environment written in JAX; of one of the shards, where
    there are several: the environments in the state are its own, and what is learned is learned from all of them.

    `iteration` is also in the state; as an argument that all seeds share it can decide, under vmap, whether
    a branch is computed at all.
    """
    keys = iteration_keys(state.key)
    envs, across, num_envs = state.envs, axes_of(config.num_shards), config.num_envs // config.num_shards
    first = shards.index() * num_envs if across else None
    if config.complete_episodes:
        envs = start_envs(env, num_envs, False, keys.reset, first)
    envs, segment, episodes, raw_obs = collect(
        env,
        state.networks,
        envs,
        state.obs_moments,
        hypers.obs_clip,
        config.num_steps,
        keys.rollout,
        config.complete_episodes,
        first,
    )
    queue = state.queue
    if queue is not None:
        segment, queue = exchange(queue, segment, iteration, config.staleness)
    learning, metrics = learn(config, state.learning, segment, hypers, iteration, keys)
    new_state = TrainState(
        learning=learning,
        envs=envs,
        obs_moments=None
        if state.obs_moments is None
        else state.obs_moments.update(raw_obs.astype(float), across=across),
        queue=queue,
        key=keys.next,
        iteration=state.iteration + 1,
    )
    return new_state, metrics, shards.total(episodes, across)


class Keys(NamedTuple):
    """The randomness of one iteration, and where that of the next one comes from."""

    next: Key[Array, ""]
    reset: Key[Array, ""]
    rollout: Key[Array, ""]
    update: Key[Array, ""]
    auxiliary: Key[Array, ""]


def iteration_keys(key: Key[Array, ""]) -> Keys:
    return Keys(*jax.random.split(key, len(Keys._fields)))


def learn(
    config: Config, before: Learning, segment: Segment, hypers: Hypers, iteration: Int[Array, ""], keys: Keys
) -> tuple[Learning, Metrics]:
    """All that an iteration does with the rollout that is due, whoever collected it.

    Metrics of a part that was not its turn are 0.
    """
    update = iteration - config.staleness  # number of this update; below 0 data is only collected
    nothing = jnp.zeros(segment.reward.shape)
    learned = Learned(before.learner, before.reward_scale, before.advantage_moments, nothing)
    if not config.staleness:
        learned, metrics = policy_phase(config, learned, segment, hypers, iteration, keys.update)
    else:
        learned, metrics = when(
            update >= 0, partial(policy_phase, config), learned, segment, hypers, iteration, keys.update
        )
    learner, reward_scale, advantage_moments, target = learned

    phase = before.phase
    if phase is not None:
        slot = update % config.policy_iterations_per_phase
        phase = phase.store(slot, segment, target)
        over = (update >= 0) & (slot == config.policy_iterations_per_phase - 1)
        learner, aux_metrics = when(over, partial(auxiliary_phase, config), learner, phase, hypers, keys.auxiliary)
        metrics |= aux_metrics
    return Learning(learner, reward_scale, advantage_moments, phase), metrics


def policy_phase(
    config: Config, learned: Learned, segment: Segment, hypers: Hypers, iteration: Int[Array, ""], key: Array
) -> tuple[Learned, Metrics]:
    """Everything that one rollout teaches; also the value targets, for an auxiliary phase."""
    learner, reward_scale, advantage_moments, _ = learned
    hypers = hypers_at(config, hypers, iteration)
    batch, reward_scale, advantage_moments, metrics = prepare(
        config, segment, learner.networks.policy, reward_scale, advantage_moments, hypers
    )
    rate = learning_rate(config, hypers, iteration)
    if learner.rate is not None:
        rate = jnp.where(learner.rate > 0, learner.rate, rate).astype(learner.rate.dtype)
        learner = eqx.tree_at(lambda l: l.rate, learner, rate)
    if config.noise_scale:
        metrics |= noise_metrics(config, batch, learner, hypers)
    learner, step_metrics = optimize(config, batch, learner, hypers, rate, key)
    metrics |= step_metrics | {"charts/learning_rate": rate if learner.rate is None else learner.rate}
    metrics |= {f"charts/{name}": jnp.asarray(getattr(hypers, name)) for name in falling_ranges(config)}
    if config.staleness:
        metrics["staleness/iterations"] = jnp.asarray(config.staleness, float)
        metrics["staleness/env_steps"] = jnp.asarray(config.staleness * config.geometry.iteration_batch, float)
    if segment.lag is not None:
        metrics |= lag_metrics(segment.lag, config.geometry.iteration_batch)
    return Learned(learner, reward_scale, advantage_moments, batch.target), metrics


def lag_metrics(lag: Float[Array, "T N"], iteration_batch: int) -> Metrics:
    """How old the data is: mean, 95th percentile and maximum over samples, in environment steps of the run."""
    shown = {"env_steps": jnp.mean(lag), "env_steps_p95": jnp.percentile(lag, 95), "env_steps_max": jnp.max(lag)}
    in_steps = {f"staleness/{name}": value * iteration_batch for name, value in shown.items()}
    return {"staleness/iterations": jnp.mean(lag)} | in_steps


def when(
    turn: Bool[Array, ""], fn: Callable[..., tuple[State, Metrics]], state: State, *args: PyTree
) -> tuple[State, Metrics]:
    """`fn(state, *args)` if it is its turn, else the state as it is and metrics of 0."""
    shapes = jax.eval_shape(fn, state, *args)[1]
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return jax.lax.cond(turn, fn, lambda state, *_: (state, nothing), state, *args)


def count_turns(config: Config, begin: Index, end: Index) -> tuple[Count, Count]:
    """How many policy updates and how many auxiliary phases the iterations begin .. end-1 hold."""
    arrays = jnp if isinstance(end, jax.Array) else np  # numbers compile nothing
    first, last = (arrays.maximum(i - config.staleness, 0) for i in (begin, end))
    length = config.policy_iterations_per_phase
    return last - first, last // length - first // length if length else arrays.zeros_like(last)
