"""The program of environments written in JAX: many seeds advance many iterations in one compiled call.

Seeds are vmapped on each device and sharded over all of them (one XLA CPU device per core, or GPUs). How many rows
a call runs is an argument, not a shape, so a run compiles once, however it is cut into chunks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from isobatch.envs.interface import Environment
from isobatch.learning.iteration import iterate
from isobatch.learning.policy_phase import Metrics
from isobatch.learning.state import TrainState
from isobatch.rollouts.compiling import COMPILER_OPTIONS
from isobatch.rollouts.segment import EpisodeSums
from isobatch.settings.config import Config, Hypers
from isobatch.training.custom_parts import CustomParts, custom_parts
from isobatch.training.program import (
    EPISODES,
    MAX_ROWS,
    Chunk,
    Supervision,
    all_finite,
    metric_vector,
    row_means,
)
from isobatch.training.sharding import READ, WHOLE, ShardLayout, env_axes


@dataclasses.dataclass(frozen=True)
class CompiledProgram:
    """Environments and learning in one compiled call (`program.Program`)."""

    call: Callable[..., tuple[TrainState, Array, Array]]
    names: tuple[str, ...]
    log_interval: int = 1  # iterations a row; an argument of the compiled program, which is therefore the same for all

    def begin(self, states: TrainState, iteration: int, supervision: Supervision) -> TrainState:
        """There is nothing to start: the environments are in the states."""
        return states

    def __call__(self, states: TrainState, hypers: Hypers, iteration: int, rows: int) -> Chunk:
        return Chunk(*self.call(states, hypers, *(np.int32(n) for n in (iteration, rows, self.log_interval))))

    def end(self) -> None:
        """There is nothing to stop."""


_PROGRAMS: dict[tuple[Config, CustomParts, int, ShardLayout | None], CompiledProgram] = {}


def compiled_program(
    config: Config, env: Environment, states: TrainState, hypers: Hypers, log_interval: int, layout: ShardLayout | None
) -> CompiledProgram:
    """The program of a config for so many seeds: compiled once, and kept for every run that shares it.

    `layout` is where the shards are, if there are several.
    """
    key = (config.static, custom_parts(config), states.iteration.shape[0], layout)
    if key not in _PROGRAMS:
        if layout is None:
            _PROGRAMS[key] = compile_program(config.static, env, states, hypers)
        else:
            _PROGRAMS[key] = compile_sharded(config.static, env, states, hypers, layout)
    return dataclasses.replace(_PROGRAMS[key], log_interval=log_interval)


def compile_sharded(
    structure: Config, env: Environment, states: TrainState, hypers: Hypers, layout: ShardLayout
) -> CompiledProgram:
    """Compile a config of several shards: its environments are spread over the devices of a seed."""
    axes, names = env_axes(states), list[str]()
    step = jax.jit(partial(iterate, structure, env), inline=True)
    advance = partial(advance_rows, structure, step, names)
    zero = np.int32(0)
    args = (states, hypers, zero, zero, zero)
    return CompiledProgram(layout.compiled(advance, (axes, WHOLE), 3, (axes, READ, READ), args, donate=0), tuple(names))


def compile_program(structure: Config, env: Environment, states: TrainState, hypers: Hypers) -> CompiledProgram:
    """Compile a config for states and hyperparameters of this shape."""
    num_seeds = states.iteration.shape[0]
    devices = jax.devices()[:num_seeds]
    # Seeds that do not divide evenly: the last one is computed again to fill the devices, and dropped.
    padded = -(-num_seeds // len(devices)) * len(devices)
    mesh = Mesh(np.array(devices), ("seeds",))
    split, same = PartitionSpec("seeds"), PartitionSpec()
    names: list[str] = []  # told by the trace
    # Inlined, it is traced once, for its metrics and for the loop, and leaves no sign of itself in the program.
    step = jax.jit(partial(iterate, structure, env), inline=True)
    advance = partial(advance_rows, structure, step, names)
    sharded = jax.shard_map(
        jax.vmap(advance, in_axes=(0, 0, None, None, None)),
        mesh=mesh,
        in_specs=(split, split, same, same, same),
        out_specs=split,
        check_vma=False,
    )

    def call(states: TrainState, hypers: Hypers, *where: Array) -> tuple[TrainState, Array, Array]:
        which = jnp.minimum(jnp.arange(padded), num_seeds - 1)
        if padded > num_seeds:
            states, hypers = jax.tree.map(lambda leaf: leaf[which], (states, hypers))
        out = sharded(states, hypers, *where)
        return jax.tree.map(lambda leaf: leaf[:num_seeds], out) if padded > num_seeds else out

    sharding = NamedSharding(mesh, split if padded == num_seeds else same)
    jitted = jax.jit(call, donate_argnums=0, in_shardings=(sharding, sharding, None, None, None))
    zero = np.int32(0)
    compiled = jitted.lower(states, hypers, zero, zero, zero).compile(
        compiler_options=COMPILER_OPTIONS if devices[0].platform == "cpu" else None
    )
    return CompiledProgram(compiled, tuple(names))


def advance_rows(
    config: Config,
    step: Callable[..., tuple[TrainState, Metrics, EpisodeSums]],
    names: list[str],
    state: TrainState,
    hypers: Hypers,
    iteration: Array,
    rows: Array,
    log_interval: Array,
) -> tuple[TrainState, Array, Array]:
    """One seed: `rows` rows, each the mean of the metrics over its iterations (sums over episodes).

    `step` is one iteration; `names` is filled with the names of the metrics.
    """
    names[:] = [*sorted(jax.eval_shape(step, state, hypers, iteration)[1]), *EPISODES]

    def one_iteration(index: Array, carry: tuple[TrainState, Array]) -> tuple[TrainState, Array]:
        state, sums = carry
        state, metrics, episodes = step(state, hypers, index)
        return state, sums + metric_vector(metrics, episodes)

    def one_row(row: Array, carry: tuple[TrainState, Array]) -> tuple[TrainState, Array]:
        state, table = carry
        # The bounds come from arguments that all seeds share, so vmap keeps them scalars.
        begin = iteration + row * log_interval
        end = jnp.minimum(begin + log_interval, config.num_iterations)
        state, sums = jax.lax.fori_loop(begin, end, one_iteration, (state, jnp.zeros(len(names))))
        return state, table.at[row].set(row_means(config, tuple(names), sums, begin, end))

    table = jnp.zeros((MAX_ROWS, len(names)))
    state, table = jax.lax.fori_loop(0, rows, one_row, (state, table))
    return state, table, all_finite(state.networks)
