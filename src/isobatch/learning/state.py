"""Everything a bit-exact resume needs, as one pytree; and `Hypers` as a pytree of its numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree, UInt32

from isobatch.envs.host_interface import AnyEnvironment, HostEnvironment
from isobatch.errors import UsageError
from isobatch.learning.optimizers import make_optimizer
from isobatch.learning.proximal import Ewma
from isobatch.networks.actor_critic import Networks, require_standard
from isobatch.networks.initialization import make_networks
from isobatch.networks.moments import Moments, RewardScale
from isobatch.rollouts.actors.state import ActorsState
from isobatch.rollouts.host_rollout import host_carry
from isobatch.rollouts.jax_rollout import start_envs
from isobatch.rollouts.segment import EnvCarry, Segment
from isobatch.rollouts.staleness import empty_queue, has_fillers, seen_dtype
from isobatch.settings.accounting import GOOD_ROWS
from isobatch.settings.config import Config, Hypers
from isobatch.settings.schedules import ADAPTIVE, ranges_at, schedule_of

jax.tree_util.register_dataclass(Hypers, [f.name for f in dataclasses.fields(Hypers)], [])


class Learner(eqx.Module):
    """What a gradient step changes."""

    networks: Networks
    optimizer: optax.OptState
    value_optimizer: optax.OptState | None  # None unless the value function has epochs of its own
    aux_optimizer: optax.OptState | None  # None unless there is an auxiliary phase
    proximal: Ewma | None  # averaged policy weights, for the proximal policy `ewma`
    rate: Float[Array, ""] | None = None  # step size, where it follows the KL
    stopped: Bool[Array, ""] | None = None  # whether the gradient steps of this iteration have ended, where they can


class Phase(eqx.Module):
    """What the auxiliary phase needs of the iterations since the last one."""

    obs: Array  # [N_pi, T, N, ...]
    target: Float[Array, "P T N"]
    valid: Bool[Array, "P T N"] | None = None  # as in `Segment`

    def store(self, slot: Int[Array, ""], segment: Segment, target: Float[Array, "T N"]) -> Phase:
        """With one iteration more, in place number `slot`."""
        valid = None if self.valid is None else self.valid.at[slot].set(segment.valid)
        return Phase(self.obs.at[slot].set(segment.obs), self.target.at[slot].set(target), valid)


class Learning(eqx.Module):
    """What changes by learning from a rollout, as opposed to collecting it."""

    learner: Learner
    reward_scale: RewardScale | None
    advantage_moments: Moments
    phase: Phase | None


class TrainState(eqx.Module):
    """One seed's training between two iterations."""

    learning: Learning
    envs: EnvCarry
    obs_moments: Moments | None
    queue: Segment | None  # [staleness, T, N]: rollouts that wait for their use
    key: Key[Array, ""]
    iteration: Int[Array, ""]
    actors: ActorsState | None = None  # where they collect while the learner learns

    @property
    def networks(self) -> Networks:
        return self.learning.learner.networks


_FIRST: dict[tuple[Config, int], Callable[[Networks, np.uint32], TrainState]] = {}


def initial_states(config: Config, env: AnyEnvironment, seeds: list[int]) -> TrainState:
    """The states of several seeds before the first iteration, stacked.

    The weights come from NumPy (see `networks`), all else from one compiled program: operation by operation, dozens of
    small ones would be compiled, which takes longer than the imports.
    """
    key = (config.static, id(env))  # which is no other environment's: the function keeps this one alive
    if key not in _FIRST:
        one = partial(first_state, config.static, env)
        _FIRST[key] = jax.jit(lambda *args: jax.tree.map(lambda leaf: leaf[None], one(*args)))
    networks = [make_networks(config, env.obs_shape, env.action_space, seed) for seed in seeds]
    if config.policy_iterations_per_phase:
        require_standard(networks[0], f"an auxiliary phase ({config.algo})")
    states = [_FIRST[key](fresh, np.uint32(seed)) for fresh, seed in zip(networks, seeds, strict=True)]
    return states[0] if len(states) == 1 else _joined(states)


def sharded_states(
    config: Config, env: AnyEnvironment, seeds: list[int], shardings: Callable[[TrainState], PyTree]
) -> TrainState:
    """The same, made where `shardings` of a state of these shapes says, so that no device holds all of it."""
    fresh = [make_networks(config, env.obs_shape, env.action_space, seed) for seed in seeds]
    networks = jax.tree.map(lambda *leaves: np.stack(leaves), *fresh)
    make, which = jax.vmap(partial(first_state, config.static, env)), np.array(seeds, np.uint32)
    return jax.jit(make, out_shardings=shardings(jax.eval_shape(make, networks, which)))(networks, which)


def initial_state(config: Config, env: AnyEnvironment, seed: int) -> TrainState:
    """The state of one seed before the first iteration."""
    return _first_seed(initial_states(config, env, [seed]))


@jax.jit
def _joined(states: list[TrainState]) -> TrainState:
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *states)


@jax.jit
def _first_seed(states: TrainState) -> TrainState:
    return jax.tree.map(lambda leaf: leaf[0], states)


def check_whole_episodes(config: Config, env: AnyEnvironment) -> None:
    """Raise where a row has no room for a whole episode of any length, so that none may ever be learned from."""
    if config.complete_episodes and not env.max_steps:
        raise UsageError(
            f"complete_episodes=True needs a time limit, and {config.env} has none that is known: register it with "
            "max_episode_steps, or use another algorithm."
        )
    if config.complete_episodes and config.num_steps < env.max_steps:
        raise UsageError(
            f"num_steps={config.num_steps} is too short for complete episodes of {config.env}, which last up to "
            f"{env.max_steps} steps: use at least that, better {GOOD_ROWS} times as much, or complete_episodes=False."
        )


def first_state(config: Config, env: AnyEnvironment, networks: Networks, seed: UInt32[Array, ""]) -> TrainState:
    """The state of fresh networks."""
    check_whole_episodes(config, env)
    key, env_key = jax.random.split(jax.random.key(seed))
    optimizer = make_optimizer(config, config.hypers).init(networks)
    learner = Learner(
        networks=networks,
        optimizer=optimizer,
        value_optimizer=optimizer if config.value_epochs else None,
        aux_optimizer=optimizer if config.policy_iterations_per_phase else None,
        proximal=Ewma.start(networks.policy) if config.proximal_policy == "ewma" else None,
        rate=jnp.zeros(()) if config.lr_schedule == ADAPTIVE else None,  # 0: not begun
        stopped=jnp.zeros((), bool) if config.stop_at_target_kl else None,
    )
    learning = Learning(
        learner=learner,
        reward_scale=RewardScale.empty(config.num_envs) if config.normalize_rewards else None,
        advantage_moments=Moments.empty(),
        phase=empty_phase(config, env) if config.policy_iterations_per_phase else None,
    )
    return TrainState(
        learning=learning,
        envs=first_envs(config, env, seed, env_key),
        obs_moments=Moments.empty(env.obs_shape) if config.normalize_observations else None,
        queue=empty_queue(config, env, networks) if config.staleness else None,
        key=key,
        iteration=jnp.zeros((), jnp.int32),
        actors=first_actors(config, env, networks, key) if config.lag_iterations else None,
    )


def first_actors(config: Config, env: AnyEnvironment, networks: Networks, key: Key[Array, ""]) -> ActorsState:
    """The actors before the first rollout, each with the randomness that a run by turns would have."""
    moments = Moments.empty(env.obs_shape) if config.normalize_observations else None
    return ActorsState.start(config.actors, config.lag_iterations, key, (networks, moments))


def first_envs(config: Config, env: AnyEnvironment, seed: UInt32[Array, ""], key: Key[Array, ""]) -> EnvCarry:
    """The environments before the first step; those outside JAX are started by whoever runs them."""
    if not isinstance(env, HostEnvironment):
        return start_envs(env, config.num_envs, config.staggered_resets, key)
    if config.staggered_resets:
        raise UsageError(
            f"staggered_resets=True sets the clock of an environment, and that of {config.env} cannot be set: drop it."
        )
    return host_carry(env, config.num_envs, seed)


def empty_phase(config: Config, env: AnyEnvironment) -> Phase:
    """Room for N_pi iterations, the observations as small as they come."""
    shape = (config.policy_iterations_per_phase, config.num_steps, config.num_envs)
    obs = jnp.zeros((*shape, *env.obs_shape), seen_dtype(config, env))
    return Phase(obs, jnp.zeros(shape), jnp.zeros(shape, bool) if has_fillers(env) else None)


def learning_rate(config: Config, hypers: Hypers, iteration: Int[Array, ""]) -> Float[Array, ""]:
    """The step size during an iteration: its start times a function of the progress of the run."""
    rate = jnp.asarray(hypers.learning_rate * schedule_of(config.lr_schedule)(iteration / config.num_iterations))
    if rate.shape:
        raise UsageError(f"lr_schedule={config.lr_schedule!r} gives an array of shape {rate.shape}: use one number.")
    return rate


def hypers_at(config: Config, hypers: Hypers, iteration: Int[Array, ""]) -> Hypers:
    """The hyperparameters during an iteration: clip ranges that fall in a line are where they have come to."""
    ranges = ranges_at(config, hypers, iteration / config.num_iterations)  # type: ignore[arg-type]  # traced
    return dataclasses.replace(hypers, **ranges) if ranges else hypers
