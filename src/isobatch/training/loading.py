"""A run from its directory: settings and trained states."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from isobatch.errors import UsageError
from isobatch.learning.state import TrainState
from isobatch.settings.config import Config
from isobatch.training.checkpoints import Checkpoints
from isobatch.training.programs import initial_states
from isobatch.training.run_directory import RunDirectory


@dataclasses.dataclass(frozen=True)
class LoadedRun:
    config: Config
    seeds: list[int]
    iteration: int
    states: TrainState  # of all seeds, stacked


def load_run(path: Path, checkpoint: str = "newest", say: Callable[[str], None] = lambda sentence: None) -> LoadedRun:
    """The state at `checkpoint`: newest (skipping damaged ones), best, or an iteration's number."""
    directory = RunDirectory.open(path)
    config, info = directory.config, directory.info
    seeds = list(range(info["seed"], info["seed"] + info["num_seeds"]))
    checkpoints = Checkpoints(directory.checkpoints)
    if not checkpoints.iterations():
        raise UsageError(f"run_dir={str(path)!r} has no checkpoints yet: train it first.")
    template = initial_states(config, seeds)
    if checkpoint == "newest":
        newest = checkpoints.restore_newest(template, say)
        if newest is None:
            raise UsageError(f"run_dir={str(path)!r} has no readable checkpoint: resume or repeat the training.")
        return LoadedRun(config, seeds, *newest)
    while True:
        there = checkpoints.iterations()
        wanted = checkpoints.best() if checkpoint == "best" else int(checkpoint) if checkpoint.isdecimal() else None
        if wanted not in there:
            raise UsageError(f"checkpoint={checkpoint!r} is not there: use newest, best or one of {there}.")
        try:
            return LoadedRun(config, seeds, wanted, checkpoints.restore(wanted, template))
        except FileNotFoundError:  # the run goes on, and another one is the best by now
            continue
        except ValueError as error:
            raise UsageError(f"checkpoint={checkpoint!r} {error}: use another one of {there}.") from None


def checkpoint_numbers(path: Path, wanted: str) -> list[str]:
    """The checkpoints that `wanted` names: newest, best, all, or iterations separated by commas."""
    if wanted != "all":
        return [word.strip() for word in wanted.split(",")]
    there = Checkpoints(RunDirectory.open(path).checkpoints).iterations()
    if not there:
        raise UsageError(f"run_dir={str(path)!r} has no checkpoints yet: train it first.")
    return [str(iteration) for iteration in there]
