"""Where the results of a run go: memory, and with a run directory its files, TensorBoard and W&B."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from isobatch.errors import RunError, UsageError
from isobatch.learning.state import TrainState
from isobatch.rollouts.actors.ledger import LedgerEntry
from isobatch.settings.config import Config
from isobatch.settings.options import Options
from isobatch.training.checkpoint_file import CheckpointNote
from isobatch.training.checkpoints import Checkpoints
from isobatch.training.metrics import EVALUATION_COLUMNS, INDEX, METRICS, RETURN, Table, mean_return, table_of
from isobatch.training.metrics_file import Mark, MetricsFile
from isobatch.training.run_directory import RunDirectory
from isobatch.training.schedule_file import ScheduleFile

if TYPE_CHECKING:
    from tensorboardX import SummaryWriter


class Recorder:
    """Collects lines of metrics and checkpoints. Lines are written by `flush`, while the next chunk computes."""

    def __init__(self, directory: RunDirectory | None, config: Config, options: Options) -> None:
        self.directory = directory
        self.lines: list[tuple] = []
        self.columns: tuple[str, ...] = ()
        self._flushed = 0
        self._earlier: Table = {}  # what a resumed run had measured before
        self._kept: int | None = None  # the iteration whose state is in the newest checkpoint
        self._has_actors = config.lag_iterations > 0
        self._schedule: ScheduleFile | None = None
        self._files = None if directory is None else RunFiles(directory, options.keep_checkpoints)
        self._sinks = [] if directory is None else _open_sinks(directory, config, options)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.flush()
        finally:
            if self._files is not None:
                self._files.checkpoints.close()
            if self._schedule is not None:
                self._schedule.close()
            for sink in self._sinks:
                sink.close()

    def restore(self, states: TrainState, restart: bool, say: Callable[[str], None]) -> tuple[int, TrainState]:
        """Iteration and state to go on from: the newest good checkpoint, or the beginning if the run never left it.

        Where nothing can be used, RunError unless `restart` says to start over.
        """
        assert self._files is not None
        assert self.directory is not None
        restored, mark = self._files.restore(states, restart, say)
        self._files.metrics.rewind(mark)
        if restored is None:
            return 0, states
        self._kept = restored[0]
        if mark is not None and mark.size:
            self._earlier = self.directory.metrics()
        return restored

    def add(self, columns: tuple[str, ...], lines: list[tuple]) -> None:
        self.columns = columns
        self.lines += lines

    def add_evaluation(self, values: np.ndarray) -> None:
        """What the newest lines, one a seed, have in their last columns [S, columns]; they are not written yet."""
        first = len(self.lines) - len(values)
        assert self._flushed <= first
        newest = zip(self.lines[first:], values, strict=True)
        self.lines[first:] = [(*line[: -len(of_seed)], *of_seed) for line, of_seed in newest]

    @property
    def lacks_evaluations(self) -> bool:
        """Whether the run that goes on has lines without columns for them, as older versions wrote."""
        return bool(self._earlier) and not self._earlier.keys() >= set(EVALUATION_COLUMNS)

    def flush(self) -> None:
        """Write the lines that are not written yet."""
        new = self.lines[self._flushed :]
        if self._files is not None and new:
            self._files.append(self.columns, new)
            for sink in self._sinks:
                sink.write(self.columns, new)
        self._flushed = len(self.lines)

    def checkpoint(self, iteration: int, states: TrainState, since: int, interim: bool = False) -> None:
        """Keep this state; the metrics up to it are on disk before it is.

        Its score is the mean return after iteration `since`. One that is `interim` lies between two that belong to the
        run, and has none: what is the best must not depend on interruptions.
        """
        self.flush()
        if self._files is not None and iteration != self._kept:
            score = None if interim else mean_return(self.table(), since, iteration)
            self._files.keep(iteration, states, score, interim)
            self._kept = iteration

    def time(self, env_steps: int, seconds: float, steps_per_second: float, *waited: float) -> None:
        if self.directory is not None:
            self.directory.append_timing(env_steps, seconds, steps_per_second, *waited)

    def schedule_from(self, update: int) -> Callable[[Sequence[LedgerEntry]], None]:
        """Where it is noted which rollouts of actors updates use, from this one on."""
        if self.directory is None or not self._has_actors:
            return lambda entries: None
        self._schedule = ScheduleFile(self.directory.path, update)
        return self._schedule.add

    def table(self) -> Table:
        """All metrics of the run."""
        if not self.lines:
            return self._earlier
        table = table_of(self.columns, self.lines)
        return {n: np.concatenate([self._earlier[n], table[n]]) for n in table} if self._earlier else table


class RunFiles:
    """The metrics and the checkpoints of a run, which know of each other."""

    def __init__(self, directory: RunDirectory, keep: int) -> None:
        self.directory = directory
        self.metrics = MetricsFile(directory.path / METRICS)
        self.checkpoints = Checkpoints(directory.checkpoints, keep)

    def restore(
        self, states: TrainState, restart: bool, say: Callable[[str], None]
    ) -> tuple[tuple[int, TrainState] | None, Mark | None]:
        """The newest checkpoint that can be used and `metrics.csv` at its time; None for the beginning."""
        mark: Mark | None = None

        def has_metrics(note: CheckpointNote) -> None:
            nonlocal mark
            if note.metrics is None or not self.metrics.holds(note.metrics):
                raise ValueError(f"was made when {METRICS} had lines that are missing or changed now")
            mark = note.metrics

        there = self.checkpoints.iterations()
        restored = self.checkpoints.restore_newest(states, say, has_metrics)
        if restored is not None:
            return restored, mark
        if (there or self.metrics.has_lines()) and not restart:
            what = f"none of its checkpoints ({', '.join(map(str, there))})" if there else "no checkpoint"
            raise RunError(
                f"run_dir={str(self.directory.path)!r} cannot go on: {what} can be used. Nothing was changed; to train "
                f"it again from the beginning: isobatch train --resume {self.directory.quoted} --restart"
            )
        say("no checkpoint yet: starting at the beginning." if not there else "starting over.")
        return None, None

    def append(self, columns: tuple[str, ...], lines: list[tuple]) -> None:
        try:
            self.metrics.append(columns, lines)
        except OSError as error:
            raise RunError(
                f"{str(self.metrics.path)!r} cannot be written ({error.strerror}): make room, or make it writable, and "
                f"go on with isobatch train --resume {self.directory.quoted}"
            ) from None

    def keep(self, iteration: int, states: TrainState, score: float | None, interim: bool) -> None:
        self.checkpoints.save(
            iteration, states, CheckpointNote(score, interim, self.metrics.mark), first=self.metrics.sync
        )


class Sink(Protocol):
    """Who else gets the metrics."""

    def write(self, columns: tuple[str, ...], lines: list[tuple]) -> None: ...

    def close(self) -> None: ...


@dataclasses.dataclass
class TensorBoard:
    """One event file a seed."""

    path: Path
    writers: dict[int, SummaryWriter] = dataclasses.field(default_factory=dict)

    def write(self, columns: tuple[str, ...], lines: list[tuple]) -> None:
        from tensorboardX import SummaryWriter

        for line in lines:
            values = dict(zip(columns, line, strict=True))
            seed, step = values["seed"], values["env_steps"]
            if seed not in self.writers:  # a resumed run hides what an earlier one wrote past its checkpoint
                self.writers[seed] = SummaryWriter(str(self.path / f"seed_{seed}"), purge_step=step)
            for name in columns[len(INDEX) :]:
                if not np.isnan(values[name]):
                    self.writers[seed].add_scalar(name, float(values[name]), step)

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()


class WandbRun(Protocol):
    """A run of W&B, as far as it is used here."""

    def log(self, data: dict[str, float], step: int) -> None: ...

    def finish(self) -> None: ...


@dataclasses.dataclass
class WeightsAndBiases:
    """One W&B run: the mean over seeds of every metric, and each seed's return."""

    run: WandbRun

    def write(self, columns: tuple[str, ...], lines: list[tuple]) -> None:
        table = table_of(columns, lines)
        for step in np.unique(table["env_steps"]):
            rows = table["env_steps"] == step
            values = {n: table[n][rows] for n in columns[len(INDEX) :]}
            means = {n: float(np.nanmean(v)) for n, v in values.items() if not np.all(np.isnan(v))}
            seeds = zip(table["seed"][rows], values[RETURN], strict=True)
            each = {f"seeds/{seed}/{RETURN}": float(value) for seed, value in seeds if not np.isnan(value)}
            self.run.log(means | each, step=int(step))

    def close(self) -> None:
        self.run.finish()


def _open_sinks(directory: RunDirectory, config: Config, options: Options) -> list[Sink]:
    sinks: list[Sink] = []
    if options.tensorboard:
        sinks.append(TensorBoard(directory.path / "tensorboard"))
    if options.wandb_project is not None:
        import wandb

        settings = config.to_dict() | dataclasses.asdict(options)
        name = directory.path.absolute().name
        run = wandb.init(
            project=options.wandb_project,
            name=name,
            id=re.sub(r"[^\w.-]", "-", name),  # W&B takes no others
            resume="allow",
            config=settings,
            dir=directory.path,
        )
        sinks.append(WeightsAndBiases(run))
    return sinks


def check_extras(options: Options) -> None:
    """Raise unless the packages that these options need are there."""
    import importlib.util

    wanted = {"tensorboard": ("tensorboardX", options.tensorboard), "wandb": ("wandb", options.wandb_project)}
    for extra, (module, asked) in wanted.items():
        if asked and importlib.util.find_spec(module) is None:
            raise UsageError(f"{extra} needs the package {module}: pip install 'isobatch[{extra}]', or drop the flag.")
