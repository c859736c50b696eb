"""Seconds of an iteration on this machine, measured on the programs that training would run.

Whole iterations are timed with the program itself. Collecting alone is a part of that program where environments step
outside JAX; where they are compiled into it, the laboratory's source of data collects the same. What is left of an
iteration is learning. A compiled program does the same work every time, so of several repetitions the fastest counts:
other work of the machine only adds to them. What environments outside JAX do differs truly from iteration to iteration,
as resets build a world anew, and training has all of it: there the median counts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from isobatch.envs.registry import environment_of
from isobatch.laboratory.sources import source_of
from isobatch.learning.state import TrainState, initial_state
from isobatch.rollouts.host_rollout import replaced
from isobatch.settings.config import Config, Hypers
from isobatch.settings.geometry import Sizes
from isobatch.training.host_program import HostProgram
from isobatch.training.program import MAX_ROWS, Program, Supervision
from isobatch.training.programs import initial_states, program_for, stack_hypers

REPEATS = 40  # of a timed call, at most
LEAST_REPEATS = 3
PATIENCE = 1.5  # seconds of a geometry, after which there are no more repeats
CALL_SECONDS = 0.03  # that a timed call takes at least, if its iterations allow it
COLLECTED_TIMES = 3
COLLECTED_STEPS = 64  # of each environment, to time collecting
SPREADS = (0.02, 0.5)  # of seconds, relative: no two runs are alike; and a busy machine is no measure


@dataclass(frozen=True)
class Timed(Sizes):
    """What one geometry takes."""

    epochs: int
    seconds: float
    """Of an iteration."""
    spread: float
    """Of its repetitions, relative."""
    compile_seconds: float
    collecting: float | None = None
    """Seconds of one step of all environments, where these step outside JAX."""


def time_iteration(config: Config, num_seeds: int = 1) -> Timed:
    """Compile the program of a config and time its iterations, whole phases of them where it has phases."""
    begin = time.perf_counter()
    states = initial_states(config, list(range(num_seeds)))
    hypers = stack_hypers([config.hypers] * num_seeds)
    phase = config.policy_iterations_per_phase or 1
    program = program_for(config, states, hypers, phase)
    try:
        states = program.begin(states, 0, Supervision())
        warm = program(states, hypers, 0, 1)
        jax.block_until_ready(warm.table)
        compile_seconds = time.perf_counter() - begin
        taken = timed_calls(program, warm.states, hypers, config.num_iterations // phase)
        collecting = None
        if isinstance(program, HostProgram):
            collecting = rollout_seconds(program, warm.states, hypers) / config.num_steps
    finally:
        program.end()
    seconds, spread = fastest(taken) if collecting is None else middle(taken)
    g = config.geometry
    sizes = g.num_envs, g.num_steps, g.num_minibatches, g.update_epochs
    return Timed(*sizes, seconds / phase, float(np.clip(spread, *SPREADS)), compile_seconds, collecting)


def fastest(taken: Sequence[float]) -> tuple[float, float]:
    """And by how much the third fastest is slower, relative."""
    ordered = sorted(taken)
    return ordered[0], ordered[LEAST_REPEATS - 1] / ordered[0] - 1


def middle(taken: Sequence[float]) -> tuple[float, float]:
    """The median and its standard error, relative: sqrt(pi/2) times that of a mean, whose deviation is 1.48 MAD."""
    median = float(np.median(taken))
    deviation = 1.48 * float(np.median(np.abs(np.array(taken) - median)))
    return median, math.sqrt(math.pi / 2 / len(taken)) * deviation / median


def rollout_seconds(program: HostProgram, states: TrainState, hypers: Hypers) -> float:
    """Of collecting alone, in a program that has begun."""
    assert program.backend is not None
    taken = list[float]()
    while len(taken) < REPEATS and (sum(taken) < PATIENCE / 2 or len(taken) < LEAST_REPEATS):
        begin = time.perf_counter()
        keys, policy, running = program.start_rollout(states, hypers, 0)
        collected = program.backend.wait(running)
        taken.append(time.perf_counter() - begin)
        envs, _ = program.process(policy, *collected)
        states = replaced(states, envs=envs, key=keys.next)
    return middle(taken)[0]


def timed_calls(program: Program, states: TrainState, hypers: Hypers, most_rows: int) -> list[float]:
    """Seconds of a row, of several calls; a call has as many rows as make it long enough to be timed."""
    rows, taken, spent = 1, list[float](), 0.0
    while len(taken) < REPEATS and (spent < PATIENCE or len(taken) < LEAST_REPEATS):
        begin = time.perf_counter()
        chunk = program(states, hypers, 0, rows)
        jax.block_until_ready(chunk.table)
        seconds, states = time.perf_counter() - begin, chunk.states
        spent += seconds
        enough = min(max(1, most_rows), MAX_ROWS)
        if not taken and seconds < CALL_SECONDS and rows < enough:
            rows = min(enough, max(2 * rows, int(rows * CALL_SECONDS / max(seconds, 1e-6))))
            continue
        taken.append(seconds / rows)
    return taken


def time_collecting(config: Config, num_envs: int) -> float:
    """Seconds in which so many environments written in JAX make one step each, with the policy that acts."""
    env = environment_of(config)
    one = config.replace(num_shards=1)
    source = source_of(one, env, initial_state(one, env, 0))
    steps = min(COLLECTED_STEPS, config.num_steps)
    return min(source.seconds(num_envs, steps) for _ in range(COLLECTED_TIMES)) / steps
