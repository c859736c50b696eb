"""Where the results of a run go: memory, and with a run directory its files, TensorBoard and W&B."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from isobatch.errors import UsageError
from isobatch.settings.config import Config
from isobatch.settings.options import Options
from isobatch.training.checkpoints import Checkpoints
from isobatch.training.metrics import INDEX, RETURN, Table, table_of
from isobatch.training.run_directory import RunDirectory


class Recorder:
    """Collects lines of metrics and checkpoints. Lines are written by `flush`, while the next chunk computes."""

    def __init__(self, directory: RunDirectory | None, config: Config, options: Options) -> None:
        self.directory = directory
        self.lines: list[tuple] = []
        self.columns: tuple[str, ...] = ()
        self._flushed = 0
        self._earlier: Table = {}  # what a resumed run had measured before
        self._checkpoints = None if directory is None else Checkpoints(directory.checkpoints, options.keep_checkpoints)
        self._sinks = [] if directory is None else _open_sinks(directory, config, options)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()
        if self._checkpoints is not None:
            self._checkpoints.close()
        for sink in self._sinks:
            sink.close()

    def restore(self, states: Any, say: Callable[[str], None]) -> tuple[int, Any]:
        """Iteration and state to go on from: the newest good checkpoint, else the beginning."""
        assert self._checkpoints is not None
        assert self.directory is not None
        iteration, states = self._checkpoints.restore_newest(states, say) or (0, states)
        if iteration == 0:
            say("no checkpoint after the beginning: starting over.")
        self.directory.rewind(iteration)
        if iteration:
            self._earlier = self.directory.metrics()
        return iteration, states

    def add(self, columns: tuple[str, ...], lines: list[tuple]) -> None:
        self.columns = columns
        self.lines += lines

    def flush(self) -> None:
        """Write the lines that are not written yet."""
        new = self.lines[self._flushed :]
        if self.directory is not None and new:
            self.directory.append_metrics(self.columns, new)
            for sink in self._sinks:
                sink.write(self.columns, new)
        self._flushed = len(self.lines)

    def checkpoint(self, iteration: int, states: Any, score: float) -> None:
        """Keep this state; the metrics up to it are on disk before it is."""
        self.flush()
        if self._checkpoints is not None and iteration not in self._checkpoints.iterations():
            self._checkpoints.save(iteration, states, score)

    def time(self, env_steps: int, seconds: float, steps_per_second: float) -> None:
        if self.directory is not None:
            self.directory.append_timing(env_steps, seconds, steps_per_second)

    def table(self) -> Table:
        """All metrics of the run."""
        if not self.lines:
            return self._earlier
        table = table_of(self.columns, self.lines)
        return {n: np.concatenate([self._earlier[n], table[n]]) for n in table} if self._earlier else table


@dataclasses.dataclass
class TensorBoard:
    """One event file a seed."""

    path: Path
    writers: dict[int, Any] = dataclasses.field(default_factory=dict)

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


@dataclasses.dataclass
class WeightsAndBiases:
    """One W&B run: the mean over seeds of every metric, and each seed's return."""

    run: Any

    def write(self, columns: tuple[str, ...], lines: list[tuple]) -> None:
        table = table_of(columns, lines)
        for step in np.unique(table["env_steps"]):
            rows = table["env_steps"] == step
            found = {n: table[n][rows] for n in columns[len(INDEX) :]}
            means = {n: float(np.nanmean(v)) for n, v in found.items() if not np.all(np.isnan(v))}
            seeds = zip(table["seed"][rows], found[RETURN], strict=True)
            each = {f"seeds/{seed}/{RETURN}": float(value) for seed, value in seeds if not np.isnan(value)}
            self.run.log(means | each, step=int(step))

    def close(self) -> None:
        self.run.finish()


def _open_sinks(directory: RunDirectory, config: Config, options: Options) -> list[Any]:
    sinks: list[Any] = []
    if options.tensorboard:
        sinks.append(TensorBoard(directory.path / "tensorboard"))
    if options.wandb_project is not None:
        import wandb

        settings = config.to_dict() | dataclasses.asdict(options)
        name = directory.path.name
        run = wandb.init(
            project=options.wandb_project, name=name, id=name, resume="allow", config=settings, dir=directory.path
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
