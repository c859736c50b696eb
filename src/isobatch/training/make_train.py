"""A whole run as one pure function, to be compiled and vmapped in a program of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from isobatch.envs.host_interface import HostEnvironment
from isobatch.envs.interface import Environment
from isobatch.envs.registry import environment_of
from isobatch.errors import UsageError, check_keywords
from isobatch.learning.iteration import iterate
from isobatch.learning.state import TrainState
from isobatch.networks.custom_networks import Factory
from isobatch.rollouts.segment import EpisodeSums
from isobatch.settings.config import Config, Hypers
from isobatch.settings.schedules import Schedule
from isobatch.training.custom_parts import with_custom_parts
from isobatch.training.metrics import EPISODE_COLUMNS
from isobatch.training.program import kind_of, turn_counts
from isobatch.training.programs import initial_states
from isobatch.training.sharding import WHOLE, env_axes, on_one_device

Metrics = dict[str, Float[Array, " K"]]


class TrainFunctions(NamedTuple):
    """What `make_train` gives."""

    init: Callable[[int | Iterable[int]], TrainState]
    """Seed, or S seeds -> the state before the first iteration, or S of them along a leading axis. Not to be compiled:
    initial weights are drawn with NumPy, because a QR decomposition under vmap can deadlock on a CPU."""
    run: Callable[[TrainState, Hypers], tuple[TrainState, Metrics]]
    """State of one seed and hyperparameters -> the state after K iterations, and metrics [K] under the names of
    `metrics.csv`, NaN where an iteration has none. Pure: for `jax.jit`, `jax.vmap` and `jax.shard_map`."""


@check_keywords
def make_train(
    config: Config,
    env: Environment | None = None,
    networks: Factory | None = None,
    learning_rate_schedule: Schedule | None = None,
) -> TrainFunctions:
    """The run of a config, of an environment written in JAX, as two functions: `init` and `run`.

    As `make_train` of PureJaxRL (Lu et al. 2022, https://arxiv.org/abs/2210.05639) and `train` of Rejax. The numbers
    are those of `train` with `log_interval=1`. Nothing is written, shown or checked on the way: parameters that stop
    being finite stay so.

    Args:
        config: sizes and choices; `config.hypers` are not used, `run` takes them as an argument.
        env, networks, learning_rate_schedule: a user's own, as for `train`.

    Returns:
        `init(seed or seeds) -> state(s)` and `run(state, hypers) -> (state, metrics)`, with metrics [num_iterations].

    Example:
        >>> import dataclasses, jax, jax.numpy as jnp, isobatch as ib
        >>> config = ib.preset("ppo", "Probe-Action", num_envs=4, num_steps=8, total_timesteps=96)
        >>> init, run = ib.make_train(config)
        >>> def with_rate(rate):
        ...     return run(init(0), dataclasses.replace(config.hypers, learning_rate=rate))
        >>> _, metrics = jax.jit(jax.vmap(with_rate))(jnp.array([1e-3, 1e-2]))
        >>> metrics["charts/episodic_return"].shape
        (2, 3)
    """
    config = with_custom_parts(config, env, networks, learning_rate_schedule)
    made, structure = environment_of(config), config.static
    if isinstance(made, HostEnvironment):
        raise UsageError(f"env={config.env!r} steps outside JAX and cannot be compiled: use isobatch.train.")
    jax_env: Environment = made

    def init(seeds: int | Iterable[int]) -> TrainState:
        several = [seeds] if isinstance(seeds, int) else list(seeds)
        states = initial_states(config, several)
        return jax.tree.map(lambda leaf: leaf[0], states) if isinstance(seeds, int) else states

    def one_iteration(carry: tuple[TrainState, Hypers], index: Array) -> tuple[tuple[TrainState, Hypers], Metrics]:
        state, hypers = carry
        state, metrics, episodes = _of_all_shards(structure, jax_env, state)(state, hypers, index)
        turns = turn_counts(structure, index, index + 1)
        measured = {name: jnp.where(turns[kind_of(name)] > 0, value, jnp.nan) for name, value in metrics.items()}
        return (state, hypers), _episode_means(episodes) | measured

    def run(state: TrainState, hypers: Hypers) -> tuple[TrainState, Metrics]:
        hypers = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(float)), hypers)
        (state, _), metrics = jax.lax.scan(one_iteration, (state, hypers), jnp.arange(structure.num_iterations))
        return state, metrics

    return TrainFunctions(init, run)


def _of_all_shards(
    structure: Config, env: Environment, state: TrainState
) -> Callable[..., tuple[TrainState, Metrics, EpisodeSums]]:
    """One iteration, of all shards of the run."""
    step = partial(iterate, structure, env)
    if structure.num_shards == 1:
        return step
    axes = env_axes(state)
    return on_one_device(step, (axes, WHOLE, WHOLE), (axes, WHOLE, WHOLE), structure.num_shards)


def _episode_means(episodes: EpisodeSums) -> dict[str, Float[Array, ""]]:
    """Return, length and number of the episodes that ended in an iteration."""
    count, *sums = jax.tree.leaves(episodes)
    means = [jnp.where(count > 0, total / jnp.maximum(count, 1), jnp.nan) for total in sums]
    return dict(zip(EPISODE_COLUMNS, (*means, count), strict=True))
