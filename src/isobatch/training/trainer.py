"""The training loop: chunks of rows, and between them metrics, checkpoints, the guard against NaN, and signals."""

from __future__ import annotations

import dataclasses
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from isobatch.advice.monitors import monitor, unspoken
from isobatch.errors import RunError, UsageError
from isobatch.learning.state import TrainState
from isobatch.settings.config import Config, Hypers
from isobatch.settings.options import Options
from isobatch.training.chunks import MAX_ROWS, present, row_ends
from isobatch.training.compiled_program import Program, initial_states, program_for, use_cores
from isobatch.training.host_program import HostProgram, StoppedError
from isobatch.training.metrics import RETURN, Table, columns_of, final_returns, rows_of
from isobatch.training.recorder import Recorder, check_extras
from isobatch.training.run_directory import RunDirectory

CHUNK_SECONDS = 0.5  # how often the loop comes up for air


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a run is, told to whoever watches."""

    env_steps: int  # per seed
    total_steps: int
    steps_per_second: float  # of all seeds together
    seconds_left: float
    columns: tuple[str, ...]
    lines: list[tuple]  # the metrics since the last report

    @property
    def episodic_return(self) -> float:
        """Mean over the seeds' newest lines with an episode in them; NaN without one."""
        place, seed_place = self.columns.index(RETURN), self.columns.index("seed")
        newest = {line[seed_place]: line[place] for line in self.lines if not np.isnan(line[place])}
        return float(np.mean(list(newest.values()))) if newest else float("nan")


@dataclasses.dataclass(frozen=True)
class Result:
    """A finished run, or one that was interrupted."""

    config: Config
    options: Options
    run_dir: Path | None
    metrics: Table
    states: TrainState  # of all seeds, stacked
    env_steps: int  # per seed
    steps_per_second: float  # of all seeds together, without compilation
    compile_seconds: float
    interrupted: bool

    @property
    def final_return(self) -> list[float | None]:
        """One number a seed: mean return of the episodes that ended in the last tenth of the steps."""
        if not self.metrics:  # interrupted before the first line
            return [None] * self.options.num_seeds
        return final_returns(self.metrics, self.config.env_steps)

    def to_json(self) -> dict[str, Any]:
        return {
            "run_dir": None if self.run_dir is None else str(self.run_dir),
            "env": self.config.env,
            "algo": self.config.algo,
            "env_steps": self.env_steps,
            "seeds": self.options.seeds,
            "final_return": self.final_return,
            "steps_per_second": self.steps_per_second,
            "compile_seconds": self.compile_seconds,
            "interrupted": self.interrupted,
        }


def train(
    config: Config,
    seed: int = 0,
    num_seeds: int = 1,
    run_dir: str | Path | None = None,
    resume: bool = False,
    watch: Callable[[Progress], None] = lambda progress: None,
    say: Callable[[str], None] = lambda sentence: None,
    **options: Any,
) -> Result:
    """Train `config` on one or several seeds.

    With a `run_dir` everything is kept there and `resume` goes on bit for bit; without one nothing is written.
    `watch` is told the progress about twice a second, `say` gets sentences meant for a person. Further options
    are the fields of `Options`.
    """
    use_cores(config=config)  # unless the program did so already, knowing that it will train few seeds
    choices = Options(seed=seed, num_seeds=num_seeds, **options)
    check_extras(choices)
    states, hypers = initial_states(config, choices.seeds)  # checks the environment before anything is written
    directory = None if run_dir is None else open_directory(Path(run_dir), config, choices, resume)
    with Recorder(directory, config, choices) as recorder, stop_signals(say) as stopped:
        iteration, states = recorder.restore(states, say) if resume else (0, states)
        clock = time.perf_counter()
        program = program_for(config, states, hypers, choices.line_iterations(config.num_iterations))
        compile_seconds = time.perf_counter() - clock
        start, clock = iteration, time.perf_counter()
        loop = Loop(config, choices, program, hypers, recorder, watch, say, stopped)
        try:
            states = program.begin(states, start, say, choices.env_timeout, stopped.is_set)
            states, iteration = loop.run(states, start)
        finally:
            program.end()
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


@dataclasses.dataclass(frozen=True)
class Loop:
    """What stays the same from chunk to chunk."""

    config: Config
    options: Options
    program: Program | HostProgram
    hypers: Hypers  # of all seeds, stacked
    recorder: Recorder
    watch: Callable[[Progress], None]
    say: Callable[[str], None]
    stopped: threading.Event

    def run(self, states: TrainState, first: int) -> tuple[TrainState, int]:
        """Advance from iteration `first` to the end of the run, or until stopped: the state, and where it is."""
        total, batch = self.config.num_iterations, self.config.geometry.iteration_batch
        per_line = self.options.line_iterations(total)
        per_checkpoint = self.options.checkpoint_iterations(total)
        iteration, rows, score = first, 1, -np.inf
        spoken: frozenset[str] = frozenset()
        if iteration == 0:
            self.recorder.checkpoint(0, states, score)
        begin = time.perf_counter()
        while iteration < total and not self.stopped.is_set():
            stop = min(total, (iteration // per_checkpoint + 1) * per_checkpoint)
            rows = min(rows, MAX_ROWS, -(-(stop - iteration) // per_line))
            clock = time.perf_counter()
            ends, fault = row_ends(iteration, rows, per_line, total), None
            try:
                chunk = self.program(states, self.hypers, iteration, rows)
            except StoppedError as early:
                chunk, fault = early.chunk, early.fault
                ends = ends_until(ends, iteration, early.iteration)
            self.recorder.flush()  # of the chunk before, while this one computes
            table, finite = np.asarray(chunk.table)[:, : len(ends)], np.asarray(chunk.finite)
            seconds = time.perf_counter() - clock
            if not (np.all(finite) and np.all(np.isfinite(table))):
                raise self.diverged(table, finite, iteration, ends)
            lines = self.add_lines(table, iteration, ends)
            states, iteration = chunk.states, ends[-1] if ends else iteration
            if fault is not None:
                raise self.stopped_by(fault, iteration, states, score)
            if not ends:  # stopped before anything was done
                break
            spent = time.perf_counter() - begin
            speed = (iteration - first) * batch * self.options.num_seeds / spent
            left = spent * (total - iteration) / (iteration - first)
            progress = Progress(iteration * batch, total * batch, speed, left, self.columns, lines)
            score = score if np.isnan(progress.episodic_return) else progress.episodic_return
            if iteration == stop:
                self.recorder.checkpoint(iteration, states, score)
                spoken = self.monitor(spoken)
            self.recorder.time(iteration * batch, spent, speed)
            self.watch(progress)
            rows = max(1, min(2 * rows, int(rows * CHUNK_SECONDS / max(seconds, 1e-6))))
        return states, iteration

    @property
    def columns(self) -> tuple[str, ...]:
        return columns_of(self.program.names)

    def add_lines(self, table: np.ndarray, begin: int, ends: list[int]) -> list[tuple]:
        """Lines of the rows that end at these iterations; the first one begins at `begin`."""
        names = self.program.names
        there = [present(names, self.config, first, end) for first, end in zip([begin, *ends], ends, strict=False)]
        shown = np.array(there).reshape(len(ends), len(names))
        lines = rows_of(names, table, shown, ends, self.config.geometry.iteration_batch, self.options.seeds)
        self.recorder.add(self.columns, lines)
        return lines

    def monitor(self, spoken: frozenset[str]) -> frozenset[str]:
        """Tell what the metrics so far warn of, each cause once."""
        findings, _ = monitor(self.recorder.table(), self.config)
        fresh, spoken = unspoken(findings, spoken)
        for finding in fresh:
            tries = f" Try {', '.join(map(str, finding.suggestions))}." if finding.suggestions else ""
            self.say(f"{finding.name}: {finding.text}{tries} [{finding.source}]")
        return spoken

    def stopped_by(self, fault: str, iteration: int, states: TrainState, score: float) -> RunError:
        """What to tell when an environment failed; all iterations before are kept."""
        self.recorder.checkpoint(iteration, states, score)
        directory = self.recorder.directory
        kept = "" if directory is None else f" All before is kept: isobatch train --resume --run-dir {directory.path}"
        return RunError(f"{fault}{kept}")

    def diverged(self, table: np.ndarray, finite: np.ndarray, begin: int, ends: list[int]) -> RunError:
        """What to tell when a number stopped being finite; the rows before it are kept."""
        bad = ~np.isfinite(table)  # [seeds, rows, metrics]
        row = int(np.argmax(bad.any(axis=(0, 2)))) if bad.any() else len(ends) - 1
        self.add_lines(table[:, :row], begin, ends[:row])
        hit = bad[:, row].any(axis=1) if bad.any() else ~finite
        seeds = ", ".join(str(seed) for seed, is_hit in zip(self.options.seeds, hit, strict=True) if is_hit)
        names = [name for name, is_bad in zip(self.program.names, bad[:, row].any(axis=0), strict=True) if is_bad]
        what = names[0] if names else "a network parameter"
        hypers, directory = self.config.hypers, self.recorder.directory
        kept = "" if directory is None else f" The last good checkpoint is kept in {directory.path}."
        step = ends[row] * self.config.geometry.iteration_batch
        return RunError(
            f"training diverged before environment step {step:,}: {what} of seed {seeds} is not finite. Lower "
            f"learning_rate ({hypers.learning_rate:g}) or max_grad_norm ({hypers.max_grad_norm:g}).{kept}"
        )


def ends_until(ends: list[int], begin: int, last: int) -> list[int]:
    """The ends of rows that were run when the iterations stopped at `last`, in the middle of a row perhaps."""
    done = [end for end in ends if end <= last]
    return [*done, last] if last > max([begin, *done]) else done


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
def stop_signals(say: Callable[[str], None]) -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; a second Ctrl-C stops at once."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def stop(number: int, frame: Any) -> None:
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
