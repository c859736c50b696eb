"""From settings to the states and the program that train them: the one place where kinds of programs are chosen."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from isobatch.envs.host_interface import HostEnvironment
from isobatch.envs.registry import environment_of
from isobatch.errors import UsageError
from isobatch.learning import state as learning_state
from isobatch.learning.state import TrainState
from isobatch.settings.config import Config, Hypers
from isobatch.training.async_program import AsyncProgram
from isobatch.training.compiled_program import compiled_program
from isobatch.training.host_program import HostProgram
from isobatch.training.memory import check_phase_memory
from isobatch.training.program import Program
from isobatch.training.program_cache import keep_programs
from isobatch.training.sharding import ShardLayout, env_axes


def program_for(
    config: Config, states: TrainState, hypers: Hypers, log_interval: int, layout: ShardLayout | None = None
) -> Program:
    """The program of a config for so many seeds, compiled unless an earlier run left it."""
    env = environment_of(config)
    if config.lag_iterations and isinstance(env, HostEnvironment):
        return AsyncProgram(config, env, states, hypers, log_interval)
    if isinstance(env, HostEnvironment):
        return HostProgram(config, env, states, hypers, log_interval, layout=layout)
    return compiled_program(config, env, states, hypers, log_interval, layout)


def initial_states(config: Config, seeds: list[int], layout: ShardLayout | None = None) -> TrainState:
    """The states of several seeds before the first iteration, stacked: the first thing that whoever runs needs.

    With a layout each shard is made where it belongs.
    """
    env = environment_of(config)
    if config.actors and not isinstance(env, HostEnvironment):
        raise UsageError(
            f"actors={config.actors} collect from environments outside JAX, and {config.env} is compiled together with "
            "the learner, so that nothing waits for anything: leave actors out, imitate old data with staleness, or "
            f"use env=gymnasium/{config.env} or envpool/{config.env}."
        )
    keep_programs()
    if config.policy_iterations_per_phase:
        check_phase_memory(config, env, len(seeds))
    if layout is None:
        return learning_state.initial_states(config, env, seeds)
    return learning_state.sharded_states(config, env, seeds, lambda states: layout.shardings(env_axes(states)))


def stack_hypers(hypers: list[Hypers]) -> Hypers:
    """One value for each seed."""
    return jax.tree.map(lambda *leaves: jax.device_put(np.array(leaves, jnp.result_type(float))), *hypers)
