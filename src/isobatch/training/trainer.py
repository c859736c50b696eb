"""Training: the loop over chunks, and between them metrics, checkpoints, the guard against NaN, and signals."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from isobatch.advice.monitors import monitor, unspoken
from isobatch.errors import RunError, UsageError
from isobatch.settings.config import Config
from isobatch.settings.options import Options
from isobatch.training.devices import use_cores
from isobatch.training.loop import Advance, advances, lines_of
from isobatch.training.metrics import columns_of
from isobatch.training.program import Program, Supervision
from isobatch.training.programs import initial_states, program_for, stack_hypers
from isobatch.training.recorder import Recorder, check_extras
from isobatch.training.result import Progress, Result
from isobatch.training.run_directory import RunDirectory

Say = Callable[[str], None]
Watch = Callable[[Progress], None]


def train(
    config: Config,
    seed: int = 0,
    num_seeds: int = 1,
    run_dir: str | Path | None = None,
    resume: bool = False,
    watch: Watch = lambda progress: None,
    say: Say = lambda sentence: None,
    **options: Any,
) -> Result:
    """Train `config` on one or several seeds.

    With a `run_dir` everything is kept there and `resume` goes on bit for bit; without one nothing is written.
    `watch` is told the progress about twice a second, `say` gets sentences meant for a person. Further options
    are the fields of `Options`.
    """
    use_cores(config=config)  # unless the program did so already, knowing that it will train few seeds
    choices = Options.from_keywords(seed=seed, num_seeds=num_seeds, **options)
    check_extras(choices)
    states = initial_states(config, choices.seeds)  # checks the environment before anything is written
    hypers = stack_hypers([config.hypers] * num_seeds)
    directory = None if run_dir is None else open_directory(Path(run_dir), config, choices, resume)
    with Recorder(directory, config, choices) as recorder, stop_signals(say) as stopped:
        iteration, states = recorder.restore(states, say) if resume else (0, states)
        clock = time.perf_counter()
        log_interval = choices.line_iterations(config.num_iterations)
        program = program_for(config, states, hypers, log_interval)
        compile_seconds = time.perf_counter() - clock
        start, clock = iteration, time.perf_counter()
        keeper = Bookkeeper(config, choices, program, recorder, watch, say, start)
        supervision = Supervision(say, choices.env_timeout, stopped.is_set)
        if iteration == 0:
            recorder.checkpoint(0, states, score=-np.inf)
        steps = advances(
            program,
            config,
            states,
            hypers,
            start,
            log_interval,
            supervision,
            pause_every=keeper.checkpoint_interval,
            meanwhile=recorder.flush,  # the lines of the chunk before
        )
        with closing(steps):
            for step in steps:
                keeper.keep(step)
                states, iteration = step.states, step.iteration
        seconds = time.perf_counter() - clock
        interrupted = iteration < config.num_iterations
        if interrupted:
            recorder.checkpoint(iteration, states, score=-np.inf)
        recorder.flush()
        metrics = recorder.table()
    batch = config.geometry.iteration_batch
    return Result(
        config=config,
        options=choices,
        run_dir=None if directory is None else directory.path,
        metrics=metrics,
        states=states,
        env_steps=iteration * batch,
        steps_per_second=(iteration - start) * batch * num_seeds / seconds,
        compile_seconds=compile_seconds,
        interrupted=interrupted,
    )


class Bookkeeper:
    """What happens between two calls of the program: lines, checkpoints, monitors, progress."""

    def __init__(
        self, config: Config, options: Options, program: Program, recorder: Recorder, watch: Watch, say: Say, first: int
    ) -> None:
        self.config, self.options, self.names, self.recorder = config, options, program.names, recorder
        self.watch, self.say, self.first = watch, say, first
        self.columns = columns_of(program.names)
        self.checkpoint_interval = options.checkpoint_iterations(config.num_iterations)
        self._begin = time.perf_counter()
        self._score = -np.inf  # newest mean return
        self._spoken: frozenset[str] = frozenset()  # causes that were warned of

    def keep(self, step: Advance) -> None:
        """Record one advance; raises where it brought something that must end the run."""
        if not (np.all(step.finite) and np.all(np.isfinite(step.table))):
            raise self.diverged(step)
        lines = self.add_lines(step.table, step.begin, step.ends)
        if step.fault is not None:
            raise self.stopped_by(step.fault, step)
        if not step.ends:
            return
        progress = self.progress(step.iteration, lines)
        self._score = self._score if np.isnan(progress.episodic_return) else progress.episodic_return
        if step.iteration % self.checkpoint_interval == 0 or step.iteration == self.config.num_iterations:
            self.recorder.checkpoint(step.iteration, step.states, self._score)
            self.monitor()
        self.recorder.time(progress.env_steps, time.perf_counter() - self._begin, progress.steps_per_second)
        self.watch(progress)

    def progress(self, iteration: int, lines: list[tuple]) -> Progress:
        total, batch = self.config.num_iterations, self.config.geometry.iteration_batch
        spent, done = time.perf_counter() - self._begin, iteration - self.first
        speed = done * batch * self.options.num_seeds / spent
        return Progress(
            iteration * batch, total * batch, speed, spent * (total - iteration) / done, self.columns, lines
        )

    def add_lines(self, table: np.ndarray, begin: int, ends: list[int]) -> list[tuple]:
        lines = lines_of(self.names, self.config, table, begin, ends, self.options.seeds)
        self.recorder.add(self.columns, lines)
        return lines

    def monitor(self) -> None:
        """Tell what the metrics so far warn of, each cause once."""
        findings, _ = monitor(self.recorder.table(), self.config)
        fresh, self._spoken = unspoken(findings, self._spoken)
        for finding in fresh:
            tries = f" Try {', '.join(map(str, finding.suggestions))}." if finding.suggestions else ""
            self.say(f"{finding.name}: {finding.text}{tries} [{finding.source}]")

    def stopped_by(self, fault: str, step: Advance) -> RunError:
        """What to tell when an environment failed; all iterations before are kept."""
        self.recorder.checkpoint(step.iteration, step.states, self._score)
        directory = self.recorder.directory
        kept = "" if directory is None else f" All before is kept: isobatch train --resume --run-dir {directory.path}"
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


def open_directory(path: Path, config: Config, options: Options, resume: bool) -> RunDirectory:
    """The run's directory: a new one, or with `resume` the one it was begun in, if the settings agree."""
    identity = {
        "seed": options.seed,
        "num_seeds": options.num_seeds,
        "log_interval": options.line_iterations(config.num_iterations),
    }
    if not resume:
        return RunDirectory.create(path, config, identity)
    directory = RunDirectory.open(path)
    was, now = directory.config.to_dict() | directory.about, config.to_dict() | identity
    differ = [f"{name} ({was.get(name)} there, {now[name]} now)" for name in now if was.get(name) != now[name]]
    if differ:
        raise UsageError(
            f"run_dir={str(path)!r} was begun with other settings: {', '.join(differ)}; "
            "resume with the same ones, or start a new run."
        )
    return directory


@contextmanager
def stop_signals(say: Say) -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; a second Ctrl-C stops at once."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()
        say("stopping where everything can be kept; Ctrl-C again stops at once and goes back to the last checkpoint.")

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
