"""The files of a run.

| file            | what                                                                       |
|-----------------|----------------------------------------------------------------------------|
| `config.yaml`   | every setting, ready for `isobatch train --config`                         |
| `run.json`      | seeds, command, versions, device                                           |
| `metrics.csv`   | one line per row and seed, only appended to; nothing in it depends on time |
| `timing.csv`    | when each chunk of rows was done                                           |
| `checkpoints/`  | see `checkpoints`                                                          |

A kill at any moment loses at most the rows since the last checkpoint, and `rewind` removes what was written
after it, so that a resumed run leaves the same `metrics.csv` as an undisturbed one.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from isobatch.errors import UsageError
from isobatch.files import replace_file
from isobatch.settings.config import Config
from isobatch.settings.files import dump_config, load_config
from isobatch.training.metrics import METRICS, Table, format_number, read_metrics

CONFIG, ABOUT, TIMING, CHECKPOINTS = "config.yaml", "run.json", "timing.csv", "checkpoints"
PACKAGES = (
    "isobatch",
    "jax",
    "jaxlib",
    "equinox",
    "optax",
    "gymnax",
    "gymnasium",
    "envpool",
    "orbax-checkpoint",
    "numpy",
)


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """A directory that holds one run."""

    path: Path

    @classmethod
    def create(cls, path: Path, config: Config, about: dict[str, Any]) -> RunDirectory:
        """Make the directory and describe the run in it."""
        if path.exists():
            raise UsageError(f"run_dir={str(path)!r} exists: add --resume to go on with it, or name another one.")
        try:
            path.mkdir(parents=True)
            replace_file(path / CONFIG, dump_config(config))
            replace_file(path / ABOUT, json.dumps(about | environment(), indent=2) + "\n")
        except OSError as error:
            raise UsageError(
                f"run_dir={str(path)!r} cannot be written ({error.strerror}): name a directory that can."
            ) from None
        return cls(path)

    @staticmethod
    def holds_run(path: Path) -> bool:
        return (path / CONFIG).is_file() and (path / ABOUT).is_file()

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        if not cls.holds_run(path):
            raise UsageError(f"run_dir={str(path)!r} holds no run: it has no {CONFIG} and {ABOUT}; check the path.")
        return cls(path)

    @property
    def config(self) -> Config:
        return load_config(self.path / CONFIG)

    @property
    def about(self) -> dict[str, Any]:
        return json.loads((self.path / ABOUT).read_text())

    @property
    def checkpoints(self) -> Path:
        return self.path / CHECKPOINTS

    def append_metrics(self, columns: tuple[str, ...], rows: list[tuple]) -> None:
        self._append(METRICS, columns, [[format_number(v) for v in row] for row in rows])

    def append_timing(self, env_steps: int, seconds: float, steps_per_second: float) -> None:
        row = [str(env_steps), f"{seconds:.3f}", f"{steps_per_second:.1f}"]
        self._append(TIMING, ("env_steps", "charts/seconds", "charts/SPS"), [row])

    def metrics(self) -> Table:
        """Column name -> values, in the order of the file."""
        return read_metrics(self.path)

    def rewind(self, iteration: int) -> None:
        """Forget the metrics after `iteration`, and a line that a kill cut short."""
        path = self.path / METRICS
        if not path.is_file():
            return
        lines = path.read_text().split("\n")
        whole = lines[:-1]  # what stands after the last line break was not finished
        kept = whole[:1] + [line for line in whole[1:] if int(line.split(",", 1)[0]) <= iteration]
        replace_file(path, "\n".join(kept) + "\n" if kept else "")

    def _append(self, name: str, columns: tuple[str, ...], rows: list[list[str]]) -> None:
        path = self.path / name
        new = not path.is_file() or path.stat().st_size == 0
        lines = ([",".join(columns)] if new else []) + [",".join(row) for row in rows]
        with path.open("a") as file:
            file.write("".join(line + "\n" for line in lines))


def environment() -> dict[str, Any]:
    """What the run depends on besides its settings: for a reader, and for two runs that should agree."""
    import jax

    devices = jax.devices()
    return {
        "versions": versions(),
        "device": {"kind": devices[0].device_kind, "count": len(devices), "platform": devices[0].platform},
        "system": {"platform": platform.platform(), "cores": len(os.sched_getaffinity(0))},
        "command": " ".join(["isobatch", *sys.argv[1:]]) if Path(sys.argv[0]).name == "isobatch" else "python",
    }


def versions() -> dict[str, str]:
    """Of Python and of the packages that results depend on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found
