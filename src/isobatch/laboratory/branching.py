"""Train branches of a checkpoint at other batch sizes, and play their policies on the way.

The programs are those of training: all seeds of a size are lanes of one, and `training.iterations` runs it. A policy is
judged by whole episodes of its own, not by those of training: in a branch of equal samples a large batch has few steps
of each environment, in which long episodes do not end. All policies play in the same episodes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from isobatch.envs.host_interface import HostEnvironment
from isobatch.envs.registry import environment_of
from isobatch.errors import UsageError
from isobatch.laboratory.branch_sizes import BranchPlan, BranchSize, base_config, branch_plan
from isobatch.laboratory.branch_states import measured_moments, planted, without_steps
from isobatch.laboratory.jax_source import settled
from isobatch.laboratory.partial_results import PartialResults
from isobatch.laboratory.sections.section import Watch
from isobatch.laboratory.source import draws
from isobatch.laboratory.subject import NotMeasurableError, Subject
from isobatch.learning.state import TrainState
from isobatch.rollouts.evaluation import Evaluator, StackedPolicies
from isobatch.rollouts.segment import EnvCarry
from isobatch.settings.config import Config, Hypers
from isobatch.training.checkpoints import Checkpoints
from isobatch.training.iterations import run_iterations
from isobatch.training.memory import check_run_memory
from isobatch.training.program import Program, Supervision
from isobatch.training.programs import initial_states, program_for, stack_hypers

MARKS = 4  # policies of a branch that are played, at equal distances; the last one is at its end
SAVE_SECONDS = 15.0  # of training between two copies from which an interrupted branch goes on
EPISODES_SEED = 11  # added to that of the measurement, for environments in which policies play
SETTLED_SEED = 13  # and for those that branches begin in


@dataclass(frozen=True)
class BranchReturns:
    """Returns of the policies of one size, [marks][seeds], and how many seeds have diverged."""

    returns: tuple[tuple[float, ...], ...]
    diverged: int = 0


@dataclass(frozen=True)
class Start:
    """Mean returns before any branch: of the policy they start from, and of policies that have learned nothing."""

    policy: float
    untrained: float


class Branching:
    """The branches of one policy."""

    def __init__(self, subject: Subject, parts: PartialResults) -> None:
        self.subject, self.parts, options = subject, parts, subject.options
        self.trained = subject.state
        iteration = int(self.trained.iteration)
        self.base = base_config(subject.config, iteration)
        self.plan = _within_memory(branch_plan(subject.config, iteration, options), options.branch_seeds)
        self.seeds = [options.measure_seed + i for i in range(options.branch_seeds)]
        self.env = environment_of(self.base)
        self._evaluator = Evaluator(
            self.base, options.branch_episodes, False, options.measure_seed + EPISODES_SEED, subject.env_timeout
        )

    @property
    def settles(self) -> bool:
        """Whether environments are brought to where training would find them, before a branch begins."""
        return not isinstance(self.env, HostEnvironment) and not self.base.complete_episodes

    def start(self) -> Start:
        """As many policies at once as there are seeds: the one that was trained, and others that were not."""
        known = self.parts.load("start", Start)
        if known is None:
            untrained = initial_states(self.base, self.seeds).networks
            networks = jax.tree.map(lambda trained, new: new.at[0].set(trained), self.trained.networks, untrained)
            seen = self.trained.obs_moments
            moments = None if seen is None else jax.tree.map(lambda leaf: jnp.stack([leaf] * len(self.seeds)), seen)
            returns = self._evaluator(StackedPolicies(networks, moments)).return_mean
            known = self.parts.store("start", Start(float(returns[0]), float(np.mean(returns[1:]))))
        return known

    def train(self, size: BranchSize, watch: Watch = lambda done: None) -> BranchReturns:
        """All seeds of one size, to the end of the branch, or on from where they were interrupted."""
        played = self.parts.load(size.name, BranchReturns) or BranchReturns(())
        if len(played.returns) == MARKS:
            return played
        iterations = self.plan.samples // size.batch
        marks = [size.before + iterations * mark // MARKS for mark in range(1, MARKS + 1)]
        checkpoints = None if self.parts.folder is None else Checkpoints(self.parts.folder / size.name, keep=1)
        fresh = initial_states(size.config, self.seeds)
        restored = None if checkpoints is None else checkpoints.restore_newest(fresh, lambda sentence: None)
        program, hypers = self._program(size, fresh)
        iteration, states = restored or (size.before, self._begin(size, fresh, program, hypers))
        if checkpoints is not None and restored is None:
            checkpoints.save(iteration, states)
        clock = time.monotonic()

        def play_at_marks(iteration: int, states: TrainState) -> None:
            nonlocal played
            while len(played.returns) < MARKS and marks[len(played.returns)] <= iteration:
                played = self.parts.store(size.name, self._judged(states, played, marks))

        def note(iteration: int, states: TrainState) -> None:
            nonlocal clock
            if checkpoints is not None and (iteration in marks or time.monotonic() - clock > SAVE_SECONDS):
                checkpoints.save(iteration, states)
                clock = time.monotonic()
            play_at_marks(iteration, states)
            watch((iteration - size.before) / iterations)

        play_at_marks(
            iteration, states
        )  # marks at which a large batch has not had an iteration yet, or a kill came between
        try:
            if iteration < marks[-1]:
                supervision = Supervision(env_timeout=self.subject.env_timeout)
                run_iterations(program, size.config, states, hypers, iteration, marks[-1], 1, note, marks, supervision)
        finally:
            if checkpoints is not None:
                checkpoints.close()
        return played

    def seconds(self, size: BranchSize) -> tuple[float, float]:
        """Wall-clock time of compiling the program of a size, and of one iteration of all its seeds."""
        begin = time.perf_counter()
        fresh = initial_states(size.config, self.seeds)
        program, hypers = self._program(size, fresh)
        compiled, times = time.perf_counter() - begin, list[float]()
        states, hypers = without_steps(planted(self.base, size.config, self.trained, fresh), hypers)
        supervision = Supervision(env_timeout=self.subject.env_timeout)

        def note(iteration: int, states: TrainState) -> None:
            jax.block_until_ready(states.iteration)
            times.append(time.perf_counter())

        run_iterations(program, size.config, states, hypers, 0, 2, 1, note, [1], supervision)
        return compiled, times[1] - times[0]

    def _program(self, size: BranchSize, states: TrainState) -> tuple[Program, Hypers]:
        hypers = stack_hypers([size.config.hypers] * len(self.seeds))
        return program_for(size.config, states, hypers, 1), hypers

    def _begin(self, size: BranchSize, fresh: TrainState, program: Program, hypers: Hypers) -> TrainState:
        """The states at the beginning of a branch: see `branch_states`."""
        states = planted(self.base, size.config, self.trained, fresh)
        if self.settles:
            states = eqx.tree_at(lambda s: s.envs, states, self._settled(size.config))
        states, no_steps = without_steps(states, hypers)
        supervision = Supervision(env_timeout=self.subject.env_timeout)
        after = run_iterations(
            program, size.config, states, no_steps, 0, size.before, 1, supervision=supervision
        ).states
        after = measured_moments(size.config, after, size.before - size.config.staleness)
        return planted(self.base, size.config, self.trained, after)

    def _settled(self, config: Config) -> EnvCarry:
        """Environments one to two time limits after their reset, each seed's at another time, by this policy."""
        assert not isinstance(self.env, HostEnvironment)
        env, drawn = self.env, draws(len(self.seeds), self.subject.options.measure_seed + SETTLED_SEED)
        passed = jnp.repeat((drawn.age * env.max_steps).astype(int)[:, None], config.num_envs, axis=1)

        def one(passed: jax.Array, key: jax.Array) -> EnvCarry:
            return settled(config, env, self.trained, passed, key, config.staggered_resets)

        carry: EnvCarry = jax.vmap(one)(passed, drawn.key)
        return carry

    def _judged(self, states: TrainState, before: BranchReturns, marks: Sequence[int]) -> BranchReturns:
        """With the returns at one more mark. What a policy that diverged gets is what one gets that learned nothing."""
        done = len(before.returns)
        if done and marks[done] == marks[done - 1]:  # the same policy still
            return BranchReturns((*before.returns, before.returns[-1]), before.diverged)
        policies = jax.device_get(StackedPolicies(states.networks, states.obs_moments))
        finite = np.array([
            all(np.isfinite(leaf[lane]).all() for leaf in jax.tree.leaves(policies)) for lane in range(len(self.seeds))
        ])  # fmt: skip
        first = jax.device_get(self.trained.networks)
        networks = jax.tree.map(
            lambda leaf, trained: np.where(finite.reshape(-1, *(1,) * trained.ndim), leaf, trained),
            policies.networks,
            first,
        )
        returns = self._evaluator(StackedPolicies(networks, policies.obs_moments)).return_mean
        returns = np.where(finite, returns, self.start().untrained)
        return BranchReturns((*before.returns, tuple(returns.tolist())), int(np.sum(~finite)))


def _within_memory(plan: BranchPlan, seeds: int) -> BranchPlan:
    """Without the sizes that the machine has no memory for."""
    sizes, left_out = list[BranchSize](), list(plan.left_out)
    for size in plan.sizes:
        try:
            check_run_memory(size.config, environment_of(size.config), seeds)
            sizes.append(size)
        except UsageError as error:
            left_out.append(f"{size.factor:g} times the batch: left out. {error}")
    if len(sizes) < 2:
        raise NotMeasurableError(f"There is memory for fewer than two batch sizes. {' '.join(left_out)}")
    return BranchPlan(tuple(sizes), plan.samples, tuple(left_out))
