"""The files of a run.

| file            | what                                                                       |
|-----------------|----------------------------------------------------------------------------|
| `config.yaml`   | every setting, ready for `isobatch train --config`                         |
| `run.json`      | seeds, command, versions, device                                           |
| `metrics.csv`   | one line per row and seed, only appended to; nothing in it depends on time |
| `timing.csv`    | when each chunk of rows was done                                           |
| `schedule.csv`  | with actors: which rollouts each update used, see `schedule_file`          |
| `checkpoints/`  | see `checkpoints` and `checkpoint_file`                                    |
| `run.lock`      | who writes here, while somebody does                                       |

A kill at any moment loses at most the rows since the last checkpoint. A checkpoint knows how far `metrics.csv` was,
and what was written after it is removed, so that a resumed run leaves the same file as an undisturbed one.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NotRequired, TypedDict

from isobatch.errors import UsageError, first_line
from isobatch.executors.cores import available_cores
from isobatch.files import DRAFT, read_text, replace_file, unwritable
from isobatch.settings.config import Config
from isobatch.settings.files import dump_config, load_config
from isobatch.settings.options import Options
from isobatch.settings.parsing import SettingsByName
from isobatch.settings.versions import versions
from isobatch.training.lock import LOCK
from isobatch.training.metrics import Table, read_metrics

WAITED = ("actors/learner_waited", "actors/actor_waited")  # columns of `timing.csv`
CONFIG, INFO, TIMING, CHECKPOINTS = "config.yaml", "run.json", "timing.csv", "checkpoints"
STAGES = "stages.json"  # of a directory that holds a run in stages, each in a directory of its own


class RunInfo(TypedDict):
    """The contents of run.json, as far as it is read again."""

    seed: int
    num_seeds: int
    log_interval: int
    replay: NotRequired[str | None]
    init_from: NotRequired[str | None]
    continues: NotRequired[str | None]
    eval_interval: NotRequired[int]
    eval_threshold: NotRequired[float | None]
    eval_episodes: NotRequired[int]


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """A directory that holds one run."""

    path: Path

    @classmethod
    def make(cls, path: Path) -> RunDirectory:
        """The directory itself, for a new run."""
        cls.check_new(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(f"run_dir={str(path)!r}", error) from None
        return cls(path)

    @staticmethod
    def check_new(path: Path) -> None:
        """UsageError unless it can be made: nothing is there, or no more than a run that was killed at once leaves."""
        try:
            is_new = not path.is_symlink() and not path.exists()
            names = [] if is_new else [name for name in os.listdir(path) if not name.endswith(DRAFT)]
        except NotADirectoryError:
            names = [path.name]
        except OSError as error:
            raise unwritable(f"run_dir={str(path)!r}", error) from None
        if not set(names) <= {LOCK, CONFIG}:
            raise UsageError(f"run_dir={str(path)!r} exists: add --resume to go on with it, or name another one.")

    def describe(self, config: Config, info: Mapping[str, object]) -> None:
        """Write what the run is; the last file makes it one that can be resumed."""
        self.check_new(self.path)
        try:
            replace_file(self.path / CONFIG, dump_config(config))
            replace_file(self.path / INFO, json.dumps({**info, **environment()}, indent=2) + "\n")
        except OSError as error:
            raise unwritable(f"run_dir={str(self.path)!r}", error) from None

    def update(self, config: Config) -> None:
        """Other settings from here on."""
        replace_file(self.path / CONFIG, dump_config(config))

    @staticmethod
    def holds_run(path: Path) -> bool:
        return (path / CONFIG).is_file() and (path / INFO).is_file()

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        if not cls.holds_run(path):
            if (path / STAGES).is_file():
                newest = max(path.glob("stage-*"), default=path / "stage-1")
                raise UsageError(f"run_dir={str(path)!r} holds a run in stages: name one of them, as {str(newest)!r}.")
            raise UsageError(
                f"run_dir={str(path)!r} holds no run: it has no {CONFIG} and {INFO}; check the path, or train it first."
            )
        return cls(path)

    @property
    def config(self) -> Config:
        return load_config(self.path / CONFIG)

    @property
    def info(self) -> RunInfo:
        """What `run.json` says; seeds and log interval are whole numbers in their ranges."""
        name = f"{INFO} of run_dir={str(self.path)!r}"
        try:
            info: RunInfo = json.loads(read_text(self.path / INFO, "run_dir"))
            numbers = {"seed": info["seed"], "num_seeds": info["num_seeds"], "log_interval": info["log_interval"]}
            Options.from_keywords(**numbers)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            why = f"{error} is missing" if isinstance(error, KeyError) else first_line(error)
            raise UsageError(f"{name} is damaged ({why.rstrip('.')}): restore it, or train anew.") from None
        return info

    @property
    def settings(self) -> SettingsByName:
        """Those of the config, and the seeds."""
        info = self.info
        return self.config.to_dict() | {"seed": info["seed"], "num_seeds": info["num_seeds"]}

    @property
    def checkpoints(self) -> Path:
        return self.path / CHECKPOINTS

    @property
    def quoted(self) -> str:
        """The path as one types it in a shell."""
        return shlex.quote(f"./{self.path}" if str(self.path).startswith("-") else str(self.path))

    def append_timing(self, env_steps: int, seconds: float, steps_per_second: float, *waited: float) -> None:
        """`waited`, with actors: seconds that the learner and that an actor had to wait so far."""
        path, names = self.path / TIMING, ["env_steps", "charts/seconds", "charts/SPS", *WAITED[: len(waited)]]
        header = "" if path.is_file() and path.stat().st_size else ",".join(names) + "\n"
        numbers = [f"{seconds:.3f}", f"{steps_per_second:.1f}", *(f"{part:.3f}" for part in waited)]
        with path.open("a") as file:
            file.write(f"{header}{env_steps},{','.join(numbers)}\n")

    def metrics(self) -> Table:
        """Column name -> values, in the order of the file."""
        return read_metrics(self.path)


def environment() -> dict[str, object]:
    """What the run depends on besides its settings: for a reader, and for two runs that should agree."""
    import jax

    devices = jax.devices()
    return {
        "versions": versions(),
        "device": {"kind": devices[0].device_kind, "count": len(devices), "platform": devices[0].platform},
        "system": {"platform": platform.platform(), "cores": len(available_cores())},
        "command": " ".join(["isobatch", *sys.argv[1:]]) if Path(sys.argv[0]).name == "isobatch" else "python",
    }
