"""The directory of a search: its results on disk.

| file                      | what                                                                                   |
|---------------------------|----------------------------------------------------------------------------------------|
| `tune.json`               | what is searched, where it starts and how it goes on; nothing in it changes            |
| `groups/N.asked.json`     | the settings of the trials of a group, written before they are trained                 |
| `groups/N.csv.gz`         | their curves                                                                           |
| `groups/N.json`           | their results, written last: a group is finished when this file is there               |
| `confirmed/NAME.json`     | settings that were trained again on seeds of their own                                 |
| `trials.csv`              | one row per trial                                                                      |
| `best.yaml`               | the settings that won, for `isobatch train --config`                                   |
| `report.html`             | the page                                                                               |
| `run.lock`                | who writes here, while somebody does                                                   |

A group is the unit of work. One that was interrupted is trained again with the same trials, so a search that was killed
ends with the trials of one that was not.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from isobatch.errors import UsageError
from isobatch.settings.parsing import SettingsByName
from isobatch.studies.result_files import csv_text, curve_lines, one_writer, read_curves, write, write_json
from isobatch.training.metrics import Table
from isobatch.tuning.trials import Trial, TrialRecord

T = TypeVar("T")
INFO, TRIALS, BEST, PAGE = "tune.json", "trials.csv", "best.yaml", "report.html"


@dataclass(frozen=True)
class Asked:
    """A group before it is trained."""

    number: int
    round: int  # groups of one round are asked for together
    first: int  # number of its first trial
    settings: list[SettingsByName]


@dataclass(frozen=True)
class Group:
    """A group that was trained."""

    trials: list[Trial]
    seconds: float
    compile_seconds: float

    @classmethod
    def from_json(cls, trials: Sequence[TrialRecord], seconds: float, compile_seconds: float) -> Group:
        return cls([Trial.from_json(each) for each in trials], seconds, compile_seconds)

    @property
    def env_steps(self) -> int:
        return sum(trial.env_steps for trial in self.trials)


@dataclass(frozen=True)
class Confirmed:
    """Settings on seeds that played no part in choosing them."""

    returns: list[float | None]  # of each seed; None if it diverged
    env_steps: int  # of all seeds
    seconds: float
    compile_seconds: float
    finished: str  # when

    @property
    def known(self) -> list[float]:
        return [value for value in self.returns if value is not None]

    @property
    def mean(self) -> float:
        """Of the seeds; minus infinity if one diverged."""
        return float(np.mean(self.known)) if len(self.known) == len(self.returns) else -np.inf

    @property
    def steps_per_second(self) -> float:
        return self.env_steps / max(self.seconds - self.compile_seconds, 1e-9)


@dataclass(frozen=True)
class TuneDirectory:
    """A directory that holds one search."""

    path: Path

    @contextmanager
    def begun(self, info: Mapping[str, object]) -> Iterator[None]:
        """A new directory, or one that was begun with the same search by the same version; this process writes."""
        with one_writer(self.path, INFO, "search"):
            before = self.info if (self.path / INFO).is_file() else None
            now = json.loads(json.dumps(info))
            differ = [name for name in now if before is not None and before.get(name) != now[name]]
            if differ:
                raise UsageError(
                    f"out={str(self.path)!r} holds another search: {', '.join(differ)} differ; name another folder."
                )
            if before is None:
                write_json(self.path / INFO, info)
            yield

    @property
    def info(self) -> SettingsByName:
        return self._read(self.path / INFO, dict)

    def _read(self, path: Path, make: Callable[..., T]) -> T:
        """What a file holds, made of the mapping in it."""
        if path.name == INFO and not path.exists():
            raise UsageError(f"{str(self.path)!r} holds no search: it has no {path.name}; check the path.")
        with undamaged(path):
            return make(**json.loads(path.read_text()))

    def asked(self) -> list[Asked]:
        """All groups that were begun, in their order."""
        return [self._read(path, Asked) for path in sorted((self.path / "groups").glob("*.asked.json"))]

    def save_asked(self, asked: Asked) -> None:
        write_json(self._group(asked.number, ".asked.json"), vars(asked))

    def group(self, number: int) -> Group | None:
        """The results of a group, if it is finished."""
        path = self._group(number, ".json")
        return self._read(path, Group.from_json) if path.is_file() else None

    def save_group(self, number: int, group: Group, curves: Sequence[Table]) -> None:
        """The curves, then the results."""
        lines = [curve_lines(trial.number, table) for trial, table in zip(group.trials, curves, strict=True)]
        write(self._group(number, ".csv.gz"), gzip.compress("".join(lines).encode(), mtime=0))
        trials = [trial.to_json() for trial in group.trials]
        known = {"seconds": group.seconds, "compile_seconds": group.compile_seconds, "trials": trials}
        write_json(self._group(number, ".json"), known)

    def groups(self) -> list[Group]:
        """All that are finished."""
        groups = [self.group(asked.number) for asked in self.asked()]
        return [group for group in groups if group is not None]

    def curves(self) -> dict[int, Table]:
        """The curves of each trial of finished groups, by its number."""
        curves: dict[int, Table] = {}
        for asked in self.asked():
            path, results = (self._group(asked.number, ending) for ending in (".csv.gz", ".json"))
            if results.is_file():
                with undamaged(path, results):
                    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
                    if not lines:
                        raise EOFError("no lines")
                    curves |= {int(number): table for number, table in read_curves(lines).items()}
        return curves

    def confirmed(self, name: str) -> Confirmed | None:
        path = self.path / "confirmed" / f"{name}.json"
        return self._read(path, Confirmed) if path.is_file() else None

    def save_confirmed(self, name: str, confirmed: Confirmed) -> None:
        write_json(self.path / "confirmed" / f"{name}.json", vars(confirmed))

    def all_confirmed(self) -> list[Confirmed]:
        return [self._read(path, Confirmed) for path in sorted((self.path / "confirmed").glob("*.json"))]

    def save_table(self, trials: Sequence[Trial]) -> None:
        rows = [
            {"trial": trial.number, "group": trial.group, "finished": trial.finished, "rung": len(trial.scores)}
            | {"score": trial.score if trial.has_return else None, "mean_return": trial.mean_return}
            | {"diverged": trial.diverged, "env_steps": trial.env_steps}
            | trial.settings
            for trial in trials
        ]
        write(self.path / TRIALS, csv_text(rows))

    def _group(self, number: int, ending: str) -> Path:
        return self.path / "groups" / f"{number:04d}{ending}"


@contextmanager
def undamaged(path: Path, remove: Path | None = None) -> Iterator[None]:
    """What reads a file: that it cannot is one sentence, which names the file without which all of it is done again."""
    try:
        yield
    except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise UsageError(
            f"{str(path)!r} is damaged: remove {'it' if remove is None else repr(str(remove))}, and give the same "
            "command again."
        ) from None
