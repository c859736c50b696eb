"""Training: the loop over chunks, and between them metrics, checkpoints, the guard against NaN, and signals."""

from __future__ import annotations

import dataclasses
import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import FrameType

import jax
import numpy as np

from isobatch.advice.monitors import monitor, unspoken
from isobatch.envs.registry import environment_of, host_environment_of
from isobatch.errors import RunError, UsageError
from isobatch.executors.ray_connection import connected
from isobatch.executors.signals import beside_ctrl_c
from isobatch.formatting import Say
from isobatch.learning.state import TrainState
from isobatch.settings.config import Config
from isobatch.settings.options import Options
from isobatch.training.async_program import AsyncProgram
from isobatch.training.devices import use_cores
from isobatch.training.display import Watch
from isobatch.training.evaluations import Evaluations
from isobatch.training.initial_weights import carry_over, start_from
from isobatch.training.loop import Advance, advances, lines_of
from isobatch.training.memory import check_run_memory
from isobatch.training.metrics import METRICS, columns_of
from isobatch.training.opening import CONTINUES, EVALUATION, INIT_FROM, SOURCES, extend, opened
from isobatch.training.processes import check_same, is_first, least, share
from isobatch.training.program import Program, Supervision
from isobatch.training.programs import initial_states, program_for, stack_hypers
from isobatch.training.recorder import Recorder, check_extras
from isobatch.training.result import Progress, Result
from isobatch.training.scaling import Sharing
from isobatch.training.schedule_file import check_same_start, schedule_to_replay
from isobatch.training.sharding import ShardLayout, layout_for

SECONDS_TO_JUDGE = 2.0  # of a run, after which it is known what an iteration takes


def train(
    config: Config,
    seed: int = 0,
    num_seeds: int = 1,
    run_dir: str | Path | None = None,
    resume: bool = False,
    restart: bool = False,
    init_from: str | Path | None = None,
    continues: str | Path | None = None,
    watch: Watch = lambda progress: None,
    say: Say = lambda sentence: None,
    **options: object,
) -> Result:
    """Train `config` on one or several seeds.

    With a `run_dir` everything is kept there and `resume` goes on bit for bit, with a larger `total_timesteps` for
    longer; `restart` lets it start over where no checkpoint can be used. Without a `run_dir` nothing is written. A new
    run can start from the networks and the observation normalizer of the run `init_from`, or from all that the run
    `continues` has learned, with another number of environments (`stages`). `watch` is told the progress
    about twice a second, `say` gets sentences meant for a person. Further options are the fields of `Options`.
    """
    choices = Options.from_keywords(seed=seed, num_seeds=num_seeds, **options)
    # Unless the program did, knowing that it will train few seeds.
    use_cores(config=config, devices=choices.devices, actor_kind=choices.actor_kind)
    if not resume:
        config = choices.sharded(config, jax.process_count())
    choices.check_actors(config)
    if choices.replay is not None:  # says what is wrong with it before anything is written
        if not resume:
            check_same_start(Path(choices.replay), choices, absolute(init_from))
        schedule_to_replay(Path(choices.replay), config)
    check_same(config, choices)
    check_extras(choices)
    if resume and (run_dir is None or init_from is not None or continues is not None):
        raise UsageError("resume goes on with what is in a run_dir: name one, and no init_from.")
    check_run_memory(config, environment_of(config), choices.num_seeds)
    outside = host_environment_of(config) is not None
    layout = layout_for(config.num_shards, choices.num_seeds, choices.devices, one_row=outside)
    states = initial_states(config, choices.seeds, layout)  # checks the environment before anything is written
    begun = resume or init_from is not None or continues is not None
    if layout is not None and begun:
        states = layout.gather(states)
    if init_from is not None and is_first():
        states = start_from(Path(init_from), states, say)
    if continues is not None and is_first():
        states = carry_over(Path(continues), states, config)
    with ExitStack() as stack:
        if choices.actor_kind == "ray":
            stack.enter_context(connected(choices.address, "actor_kind='ray'", "use actor_kind=process"))
        directory = None
        if run_dir is not None and is_first():
            given = zip(SOURCES, (init_from, continues), strict=True)
            sources = {name: absolute(source) for name, source in given}
            directory, choices = stack.enter_context(opened(Path(run_dir), config, choices, resume, sources))
        recorder = stack.enter_context(Recorder(directory, config, choices))
        stopped = stack.enter_context(stop_signals(say))
        iteration = 0
        if directory is not None and resume:
            iteration, states = recorder.restore(states, restart, say)
            if iteration == 0 and (source := directory.info.get(INIT_FROM)):
                states = start_from(Path(source), states, say)
            if iteration == 0 and (source := directory.info.get(CONTINUES)):
                states = carry_over(Path(source), states, config)
            extend(directory, config, iteration, say)
            if choices.eval_interval and recorder.lacks_evaluations:
                say(f"{METRICS} is of an older version, without columns for evaluations: going on without them.")
                choices = without_evaluations(choices)
        if layout is not None and begun:  # what process 0 has read is known to all
            choices = dataclasses.replace(choices, log_interval=share(choices.log_interval))
            choices = with_evaluation_of_first(choices)
            iteration, states = share(iteration), layout.place(share(states))
        return run(config, choices, recorder, iteration, states, stopped, watch, say, layout)


def absolute(path: str | Path | None) -> str | None:
    """As a run directory names another one."""
    return None if path is None else str(Path(path).absolute())


def run(
    config: Config,
    options: Options,
    recorder: Recorder,
    start: int,
    states: TrainState,
    stopped: threading.Event,
    watch: Watch,
    say: Say,
    layout: ShardLayout | None = None,
) -> Result:
    """Train from iteration `start` to the end, or until `stopped`."""
    iteration, seconds, compile_seconds = start, 0.0, 0.0
    if start >= config.num_iterations:
        say(f"the run is finished: all of its {config.env_steps:,} steps are trained. More total_timesteps extend it.")
    else:
        clock = time.perf_counter()
        recorder.checkpoint(start, whole(states, layout), since=start)
        hypers = stack_hypers([config.hypers] * options.num_seeds)
        log_interval = options.line_iterations(config.num_iterations)
        program = program_for(config, states, hypers, log_interval, layout)
        sharing = Sharing.of(config, layout, states, options.num_seeds)
        compile_seconds, clock = time.perf_counter() - clock, time.perf_counter()
        keeper = Bookkeeper(config, options, program, recorder, watch, say, start, layout, sharing)
        supervision = Supervision(
            say,
            options.env_timeout,
            stopped.is_set,
            least,
            options.actor_kind,
            recorder.schedule_from(start),
            None if options.replay is None else schedule_to_replay(Path(options.replay), config),
        )
        steps = advances(
            program,
            config,
            states,
            hypers,
            start,
            log_interval,
            supervision,
            pauses=math.gcd(keeper.checkpoint_interval, keeper.evaluations.interval),
            meanwhile=recorder.flush,  # the lines of the chunk before
        )
        with closing(steps):
            for step in steps:
                keeper.keep(step)
                states, iteration = step.states, step.iteration
        seconds = time.perf_counter() - clock
        if isinstance(program, AsyncProgram):
            say(program.interpretation())
        if iteration < config.num_iterations:
            keeper.checkpoint(iteration, states)
        recorder.flush()
    batch = config.geometry.iteration_batch
    return Result(
        config=config,
        options=options,
        run_dir=None if recorder.directory is None else recorder.directory.path,
        metrics=recorder.table(),
        states=whole(states, layout),
        env_steps=iteration * batch,
        steps_per_second=(iteration - start) * batch * options.num_seeds / seconds if seconds else 0.0,
        compile_seconds=compile_seconds,
        interrupted=iteration < config.num_iterations,
    )


def without_evaluations(options: Options) -> Options:
    return dataclasses.replace(options, **{name: getattr(Options, name) for name in EVALUATION})


def with_evaluation_of_first(options: Options) -> Options:
    """Evaluated as process 0 has read that the run is; -inf stands for no threshold."""
    threshold = -math.inf if options.eval_threshold is None else options.eval_threshold
    threshold = float(share(np.float64(threshold)))
    return dataclasses.replace(
        options,
        eval_interval=share(options.eval_interval),
        eval_threshold=None if threshold == -math.inf else threshold,
        eval_episodes=share(options.eval_episodes),
    )


def whole(states: TrainState, layout: ShardLayout | None) -> TrainState:
    """All of the states, for this process to read; where there are several, each must ask at the same time."""
    return states if layout is None else layout.gather(states)


class Bookkeeper:
    """What happens between two calls of the program: lines, checkpoints, monitors, progress."""

    def __init__(
        self,
        config: Config,
        options: Options,
        program: Program,
        recorder: Recorder,
        watch: Watch,
        say: Say,
        first: int,
        layout: ShardLayout | None,
        sharing: Sharing | None,
    ) -> None:
        self.config, self.options, self.names, self.recorder = config, options, program.names, recorder
        self.program = program
        self.watch, self.say, self.first, self.layout = watch, say, first, layout
        self.checkpoint_interval = options.checkpoint_iterations(config.num_iterations)
        self.evaluations = Evaluations(config, options)
        self.columns = (*columns_of(program.names), *self.evaluations.columns)
        self._sharing = sharing
        self._begin = time.perf_counter()
        self._spoken: frozenset[str] = frozenset()  # causes that were warned of

    def keep(self, step: Advance) -> None:
        """Record one advance; raises where it brought something that must end the run."""
        if not (np.all(step.finite) and np.all(np.isfinite(step.table))):
            raise self.diverged(step)
        added = self.add_lines(step.table, step.begin, step.ends)
        if step.fault is not None:
            raise self.stopped_by(step.fault, step)
        if not step.ends:
            return
        if self.evaluations.is_due(step.iteration):  # before a checkpoint, which knows the lines so far
            self.evaluate(step)
        progress = self.progress(step.iteration, self.recorder.lines[-added:])
        self.tell_whether_shared_well(step.iteration)
        if self.is_due(step.iteration):
            self.checkpoint(step.iteration, step.states)
            self.monitor()
        waited = self.program.waited if isinstance(self.program, AsyncProgram) else ()
        self.recorder.time(progress.env_steps, time.perf_counter() - self._begin, progress.steps_per_second, *waited)
        self.watch(progress)

    def tell_whether_shared_well(self, iteration: int) -> None:
        """Once, when there is something to judge by."""
        spent = time.perf_counter() - self._begin
        if self._sharing is None or spent < SECONDS_TO_JUDGE:
            return
        remark = self._sharing.remark(spent / (iteration - self.first))
        self._sharing = None
        if remark:
            self.say(remark)

    def is_due(self, iteration: int) -> bool:
        return iteration % self.checkpoint_interval == 0 or iteration == self.config.num_iterations

    def checkpoint(self, iteration: int, states: TrainState) -> None:
        """Keep the state, with the mean return since the checkpoint before as its score."""
        since = (iteration - 1) // self.checkpoint_interval * self.checkpoint_interval
        self.recorder.checkpoint(iteration, whole(states, self.layout), since, interim=not self.is_due(iteration))

    def evaluate(self, step: Advance) -> None:
        """Evaluate the seeds that have come far enough; the first process does."""
        ready = np.asarray(share(self.evaluations.ready(self.recorder.table())))
        if not ready.any():
            return
        states = whole(step.states, self.layout)
        if not is_first():
            return
        try:
            values = self.evaluations.values(states, ready)
        except RunError as error:
            raise self.stopped_by(f"an evaluation failed: {error}", step) from None
        self.recorder.add_evaluation(values)

    def progress(self, iteration: int, lines: list[tuple]) -> Progress:
        total, batch = self.config.num_iterations, self.config.geometry.iteration_batch
        spent, done = time.perf_counter() - self._begin, iteration - self.first
        speed = done * batch * self.options.num_seeds / spent
        return Progress(
            iteration * batch, total * batch, speed, spent * (total - iteration) / done, self.columns, lines
        )

    def add_lines(self, table: np.ndarray, begin: int, ends: list[int]) -> int:
        """How many lines these are; they have no evaluation yet."""
        lines = lines_of(self.names, self.config, table, begin, ends, self.options.seeds)
        none = [np.nan] * len(self.evaluations.columns)
        self.recorder.add(self.columns, [(*line, *none) for line in lines])
        return len(lines)

    def monitor(self) -> None:
        """Tell what the metrics so far warn of, each cause once."""
        findings, _ = monitor(self.recorder.table(), self.config)
        fresh, self._spoken = unspoken(findings, self._spoken)
        for finding in fresh:
            self.say(f"{finding.name}: {finding.text} {finding.tries} [{finding.source}]")

    def stopped_by(self, fault: str, step: Advance) -> RunError:
        """What to tell when an environment failed; all iterations before are kept."""
        if jax.process_count() == 1:  # the others are in the middle of something
            self.checkpoint(step.iteration, step.states)
        directory = self.recorder.directory
        kept = "" if directory is None else f" All before is kept: isobatch train --resume {directory.quoted}"
        return RunError(f"{fault}{kept}")

    def diverged(self, step: Advance) -> RunError:
        """What to tell when a number stopped being finite; the rows before it are kept."""
        bad = ~np.isfinite(step.table)  # [seeds, rows, metrics]
        row = int(np.argmax(bad.any(axis=(0, 2)))) if bad.any() else len(step.ends) - 1
        self.add_lines(step.table[:, :row], step.begin, step.ends[:row])
        hit = bad[:, row].any(axis=1) if bad.any() else ~step.finite
        seeds = ", ".join(str(seed) for seed, is_hit in zip(self.options.seeds, hit, strict=True) if is_hit)
        names = [name for name, is_bad in zip(self.names, bad[:, row].any(axis=0), strict=True) if is_bad]
        what = names[0] if names else "a network parameter"
        hypers, directory = self.config.hypers, self.recorder.directory
        kept = "" if directory is None else f" The last good checkpoint is kept in {directory.path}."
        steps = step.ends[row] * self.config.geometry.iteration_batch
        return RunError(
            f"training diverged before environment step {steps:,}: {what} of seed {seeds} is not finite. Lower "
            f"learning_rate ({hypers.learning_rate:g}) or max_grad_norm ({hypers.max_grad_norm:g}).{kept}"
        )


@contextmanager
def stop_signals(say: Say) -> Iterator[threading.Event]:
    """An event that Ctrl-C, SIGTERM and the end of the terminal set; a second Ctrl-C stops at once.

    A second SIGTERM changes nothing: `timeout` and `isobatch launch` send it to a process and to its group.
    """
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if stopped.is_set():
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return
        stopped.set()
        say("stopping where everything can be kept; Ctrl-C again stops at once and goes back to the last checkpoint.")

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, *beside_ctrl_c())}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
