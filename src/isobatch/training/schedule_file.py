"""Which rollouts of actors each update of a run learned from, in order: `schedule.csv` of its directory.

A line is written when the update is made, and none is changed later. With it a run can be had again, whatever decided
then who came first.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from isobatch.errors import RunError, UsageError
from isobatch.files import replace_file
from isobatch.rollouts.actors.ledger import LedgerEntry
from isobatch.settings.config import Config
from isobatch.settings.options import Options
from isobatch.training.run_directory import RunDirectory

NAME = "schedule.csv"
HEAD = ",".join(LedgerEntry._fields)
# What a run may differ in from the one whose schedule it follows: how long it is, and who decides.
FREE_TO_DIFFER = ("total_timesteps", "schedule")


class ScheduleFile:
    """The file of a run that is being written."""

    def __init__(self, directory: Path, update: int) -> None:
        """For a run that goes on after `update` updates: what an interrupted one wrote beyond is cut off."""
        self._path = directory / NAME
        self._file: IO[str] | None = None
        kept = [entry for entry in entries_of(directory) if entry.update < update] if self._path.exists() else []
        missing = update - len({entry.update for entry in kept})
        if missing:
            raise RunError(f"{self._path} lacks {missing} of the {update} updates before: it cannot be gone on with.")
        lines = [HEAD, *(",".join(map(str, entry)) for entry in kept)]
        replace_file(self._path, "\n".join(lines) + "\n")

    def add(self, entries: Sequence[LedgerEntry]) -> None:
        """Of one update, in one write."""
        if self._file is None:
            self._file = self._path.open("a")
        self._file.write("".join(",".join(map(str, entry)) + "\n" for entry in entries))
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def entries_of(directory: Path) -> list[LedgerEntry]:
    """What the file says; a line that a kill cut short is left out."""
    text = (directory / NAME).read_text()
    whole = text[: text.rfind("\n") + 1]
    rows = list(csv.reader(whole.splitlines()))
    try:
        if not rows or ",".join(rows[0]) != HEAD:
            raise ValueError
        return [LedgerEntry(*map(int, row)) for row in rows[1:]]
    except (ValueError, TypeError):
        raise UsageError(
            f"{directory / NAME} is not the schedule of a run with actors: name the run's directory."
        ) from None


def run_to_replay(directory: Path) -> RunDirectory:
    """The run in `directory`, if it noted which rollouts its updates used."""
    if not (directory / NAME).exists():
        raise UsageError(
            f"replay={str(directory)!r} has no {NAME}: name the directory of a run with actors and max_lag above 0."
        )
    return RunDirectory.open(directory)


def check_same_start(directory: Path, options: Options, init_from: str | None) -> None:
    """Raise where a run would begin otherwise than the one whose schedule it follows: its bits would be others."""
    info = run_to_replay(directory).info
    theirs = {"seed": info["seed"], "num_seeds": info["num_seeds"], "init_from": info.get("init_from")}
    ours = {"seed": options.seed, "num_seeds": options.num_seeds, "init_from": init_from}
    check_same_values(directory, ours, theirs)


def schedule_to_replay(directory: Path, config: Config) -> list[LedgerEntry]:
    """Of the run in `directory`, if it is one of these settings and long enough."""
    theirs, ours = (c.to_dict() for c in (run_to_replay(directory).config, config))
    check_same_values(directory, {name: ours[name] for name in ours if name not in FREE_TO_DIFFER}, theirs)
    entries = entries_of(directory)
    updates = {entry.update for entry in entries}
    if len(updates) < config.num_iterations:
        raise UsageError(
            f"total_timesteps={config.total_timesteps} are {config.num_iterations} updates, and the run "
            f"{str(directory)!r} made {len(updates)}: use at most {len(updates) * config.geometry.iteration_batch}."
        )
    return entries


def check_same_values(directory: Path, ours: Mapping[str, object], theirs: Mapping[str, object]) -> None:
    for name in ours:
        if theirs[name] != ours[name]:
            raise UsageError(
                f"{name}={ours[name]!r} is {theirs[name]!r} in the run {str(directory)!r}, whose schedule shall be "
                "replayed: use the same."
            )
