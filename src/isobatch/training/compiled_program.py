"""The compiled program: many seeds advance many iterations in one call.

Seeds are vmapped on each device and sharded over all of them (one XLA CPU device per core, or GPUs). How many rows
a call runs is an argument, not a shape, so a run compiles once, however it is cut into chunks. Where environments step
outside JAX, `host_program` has another program with the same face.
"""

from __future__ import annotations

import dataclasses
import os
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from isobatch.envs import env_of, is_host, steps_outside
from isobatch.envs.interface import Environment
from isobatch.learning.iteration import count_turns, iterate
from isobatch.learning.state import TrainState, initial_state
from isobatch.settings.config import Config, Hypers
from isobatch.training.chunks import COMPILER_OPTIONS, EPISODES, MAX_ROWS, Chunk, kind_of
from isobatch.training.host_program import HostProgram
from isobatch.training.memory import check_phase_memory


@dataclasses.dataclass(frozen=True)
class Program:
    """A compiled chunk of training and the names of its metrics."""

    call: Any
    names: tuple[str, ...]
    log_interval: int = 1  # iterations a row; an argument of the compiled program, which is therefore the same for all

    def __call__(self, states: TrainState, hypers: Hypers, iteration: int, rows: int) -> Chunk:
        """Advance from `iteration` by `rows` rows. The states passed in are used up."""
        return Chunk(*self.call(states, hypers, jnp.int32(iteration), jnp.int32(rows), jnp.int32(self.log_interval)))

    def begin(self, states: TrainState, *about: Any) -> TrainState:
        """Before the first call. There is nothing to start: the environments are in the states."""
        return states

    def end(self) -> None:
        """After the last call."""


def use_cores(num_seeds: int | None = None, config: Config | None = None) -> None:
    """One XLA CPU device per core, but not more than seeds, if no backend runs yet: seeds are sharded over them.

    A single device gets a single thread. An operation on a small network takes some microseconds, and so does handing
    it to another thread: one thread was 6 to 10 % faster than two. PJRT_NPROC overrides it, for large networks.

    Where environments step outside JAX there is one device. Calls run in the thread that makes them, since a policy
    that acts for a few environments is faster than a change of threads; networks on images get all cores.
    """
    if jax._src.xla_bridge.backends_are_initialized():
        return
    cores = len(os.sched_getaffinity(0))
    devices = cores if num_seeds is None else min(num_seeds, cores)
    env = env_of(config) if config is not None and steps_outside(config.env) else None
    if env is not None:
        devices = 1
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    if "JAX_NUM_CPU_DEVICES" not in os.environ:
        jax.config.update("jax_num_cpu_devices", devices)
    if devices == 1 and (env is None or len(env.obs_shape) < 3):
        os.environ.setdefault("PJRT_NPROC", "1")


def initial_states(config: Config, seeds: list[int]) -> tuple[TrainState, Hypers]:
    """The states of several seeds, stacked, and the hyperparameters of each."""
    env = env_of(config)
    if config.policy_iterations_per_phase:
        check_phase_memory(config, env, len(seeds))
    return stack([initial_state(config, env, seed) for seed in seeds]), stack_hypers([config.hypers] * len(seeds))


def stack(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def stack_hypers(hypers: list[Hypers]) -> Hypers:
    return jax.tree.map(lambda *leaves: jnp.asarray(leaves, jnp.result_type(float)), *hypers)


_PROGRAMS: dict[tuple, Program] = {}


def program_for(config: Config, states: TrainState, hypers: Hypers, log_interval: int) -> Program | HostProgram:
    """The program of a config for so many seeds: compiled once, and kept for every run that shares it."""
    if is_host(env_of(config)):
        return HostProgram(config, states, hypers, log_interval)
    key = (config.static, states.iteration.shape[0])
    if key not in _PROGRAMS:
        _PROGRAMS[key] = compile_program(config.static, states, hypers)
    return dataclasses.replace(_PROGRAMS[key], log_interval=log_interval)


def compile_program(structure: Config, states: TrainState, hypers: Hypers) -> Program:
    """Compile a config for states and hyperparameters of this shape."""
    env = env_of(structure)
    one = jax.tree.map(lambda leaf: leaf[0], (states, hypers))
    _, metrics, _ = jax.eval_shape(partial(iterate, structure, env), *one, jnp.int32(0))
    names = (*sorted(metrics), *EPISODES)
    num_seeds = states.iteration.shape[0]
    devices = jax.devices()[:num_seeds]
    # Seeds that do not divide evenly: the last one is computed again to fill the devices, and dropped.
    padded = -(-num_seeds // len(devices)) * len(devices)
    mesh = Mesh(np.array(devices), ("seeds",))
    split, same = PartitionSpec("seeds"), PartitionSpec()
    advance = partial(advance_rows, structure, env, names)
    sharded = jax.shard_map(
        jax.vmap(advance, in_axes=(0, 0, None, None, None)),
        mesh=mesh,
        in_specs=(split, split, same, same, same),
        out_specs=split,
        check_vma=False,
    )

    def call(states: TrainState, hypers: Hypers, *where: Array) -> Any:
        which = jnp.minimum(jnp.arange(padded), num_seeds - 1)
        if padded > num_seeds:
            states, hypers = jax.tree.map(lambda leaf: leaf[which], (states, hypers))
        out = sharded(states, hypers, *where)
        return jax.tree.map(lambda leaf: leaf[:num_seeds], out) if padded > num_seeds else out

    sharding = NamedSharding(mesh, split if padded == num_seeds else same)
    jitted = jax.jit(call, donate_argnums=0, in_shardings=(sharding, sharding, None, None, None))
    zero = jnp.int32(0)
    compiled = jitted.lower(states, hypers, zero, zero, zero).compile(
        compiler_options=COMPILER_OPTIONS if devices[0].platform == "cpu" else None
    )
    return Program(compiled, names)


def advance_rows(
    config: Config,
    env: Environment,
    names: tuple[str, ...],
    state: TrainState,
    hypers: Hypers,
    iteration: Array,
    rows: Array,
    log_interval: Array,
) -> tuple[TrainState, Array, Array]:
    """One seed: `rows` rows, each the mean of the metrics over its iterations (sums over episodes)."""

    def one_iteration(index: Array, carry: tuple[TrainState, Array]) -> tuple[TrainState, Array]:
        state, sums = carry
        state, metrics, episodes = iterate(config, env, state, hypers, index)
        values = [*(metrics[name] for name in names[: -len(EPISODES)]), *jax.tree.leaves(episodes)]
        return state, sums + jnp.stack([jnp.asarray(v, jnp.float32) for v in values])

    kinds = [kind_of(name) for name in names]

    def one_row(row: Array, carry: tuple[TrainState, Array]) -> tuple[TrainState, Array]:
        state, table = carry
        # The bounds come from arguments that all seeds share, so vmap keeps them scalars.
        begin = iteration + row * log_interval
        end = jnp.minimum(begin + log_interval, config.num_iterations)
        state, sums = jax.lax.fori_loop(begin, end, one_iteration, (state, jnp.zeros(len(names))))
        # Means over the iterations that had a policy update, or an auxiliary phase; sums over episodes.
        counts = jnp.stack([jnp.ones_like(end), *count_turns(config, begin, end)])
        return state, table.at[row].set(sums / jnp.maximum(counts, 1)[jnp.array(kinds)])

    table = jnp.zeros((MAX_ROWS, len(names)))
    state, table = jax.lax.fori_loop(0, rows, one_row, (state, table))
    finite = jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(state.learner.networks)]))
    return state, table, finite
