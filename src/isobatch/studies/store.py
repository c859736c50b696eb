"""The results of a study on disk.

| file               | what                                                                                   |
|--------------------|----------------------------------------------------------------------------------------|
| `study.json`       | which study, preset, grid and version                                                  |
| `cells/NAME.csv.gz` | the curves of one cell: one line per point and seed                                   |
| `cells/NAME.json`  | what the cell came to, written last: a cell is finished when it is there               |
| `rows.csv`         | one row per cell and seed with all settings: `pandas.read_csv`                         |
"""

from __future__ import annotations

import csv
import gzip
import importlib.metadata
import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isobatch.config_files import replace_file
from isobatch.errors import RunError, UsageError
from isobatch.metrics import RETURN, Table, final_returns, format_number, table_of
from isobatch.studies.grid import Cell, Grid, Study, describe, same_grid
from isobatch.studies.lanes import Outcome

CURVES = ("iteration", "env_steps", "seed", RETURN, "charts/episodic_length", "charts/episodes", "losses/approx_kl")
Row = dict[str, Any]


@dataclass(frozen=True)
class Results:
    """A directory that holds one study at one preset."""

    path: Path

    @classmethod
    def open(cls, path: Path, study: Study, preset: str, grid: Grid) -> Results:
        """A new directory, or one that was begun with the same grid by the same version."""
        identity = {"study": study.name, "preset": preset, "grid": same_grid(grid), "version": version()}
        about = path / "study.json"
        if about.is_file():
            was = json.loads(about.read_text())
            differ = [f"{name} ({was.get(name)} there, {identity[name]} now)" for name in identity if was.get(name) != identity[name]]
            if differ:
                raise UsageError(f"out={str(path)!r} holds other results: {', '.join(differ)}; name another folder.")
        elif path.exists() and any(path.iterdir()):
            raise UsageError(f"out={str(path)!r} is not empty and holds no study: name another folder.")
        else:
            _write(lambda: (path / "cells").mkdir(parents=True, exist_ok=True), path)
            _write(lambda: replace_file(about, json.dumps(identity | describe(grid), indent=1) + "\n"), path)
        return cls(path)

    @classmethod
    def read(cls, path: Path) -> tuple[Results, dict[str, Any]]:
        about = path / "study.json"
        if not about.is_file():
            raise UsageError(f"dir={str(path)!r} holds no study: it has no study.json; check the path.")
        return cls(path), json.loads(about.read_text())

    def finished(self, cell: Cell) -> bool:
        return (self.path / "cells" / f"{cell.name}.json").is_file()

    def save(self, cell: Cell, outcome: Outcome, seeds: list[int], seconds: float) -> None:
        """The curves, then what they come to."""
        rows = summarize(cell, outcome, seeds, seconds)
        base = self.path / "cells" / cell.name

        def write() -> None:
            draft = base.with_name(base.name + ".csv.gz.new")
            draft.write_bytes(gzip.compress(curves_text(outcome.table).encode(), mtime=0))
            draft.replace(base.with_name(base.name + ".csv.gz"))
            replace_file(base.with_name(base.name + ".json"), json.dumps(rows, indent=1) + "\n")

        _write(write, self.path)

    def rows(self) -> list[Row]:
        """All finished rows, in the order of their cells' names and seeds."""
        files = sorted((self.path / "cells").glob("*.json"))
        return [row for file in files for row in json.loads(file.read_text())]

    def curves(self, name: str) -> Table:
        """The curves of one cell."""
        with gzip.open(self.path / "cells" / f"{name}.csv.gz", "rt", newline="") as text:
            header, *lines = csv.reader(text)
        return table_of(tuple(header), [tuple(float(v) if v else np.nan for v in line) for line in lines])

    def write_rows(self) -> None:
        """rows.csv, made anew of what is finished."""
        rows = self.rows()
        columns = list(dict.fromkeys(key for row in rows for key in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        _write(lambda: replace_file(self.path / "rows.csv", text.getvalue()), self.path)


def summarize(cell: Cell, outcome: Outcome, seeds: list[int], seconds: float) -> list[Row]:
    """One row per seed: factors, results, then every setting. A run that diverged has the final return it had before."""
    table = outcome.table
    rows = []
    for seed in seeds:
        own = {name: values[table["seed"] == seed] for name, values in table.items()}
        gone = outcome.diverged.get(seed)
        final = final_returns(own, cell.config.env_steps)[0] if len(own["seed"]) and gone is None else None
        episodes = own["charts/episodes"] > 0
        mean = float(np.average(own[RETURN][episodes], weights=own["charts/episodes"][episodes])) if episodes.any() else None
        rows.append(
            {
                "cell": cell.name,
                "seed": seed,
                **{f"factor_{k}" if k in cell.config.to_dict() and k not in ("env", "algo") else k: v for k, v in cell.factors.items()},
                "final_return": final,
                "mean_return": mean,
                "diverged": gone is not None,
                "diverged_at": None if gone is None else gone.env_steps,
                "diverged_metric": None if gone is None else gone.metric,
                "approx_kl": float(np.nanmean(own["losses/approx_kl"])) if len(own["seed"]) else None,
                "seconds": round(seconds, 3),
                "version": version(),
                **{k: json.dumps(v) if isinstance(v, list) else v for k, v in cell.config.to_dict().items() if k not in ("env", "algo")},
            }
        )
    return rows


def curves_text(table: Table) -> str:
    lines = [",".join(CURVES)]
    lines += [",".join(format_number(v) for v in line) for line in zip(*(table[name] for name in CURVES), strict=True)]
    return "\n".join(lines) + "\n"


def version() -> str:
    return importlib.metadata.version("isobatch")


def _write(action: Any, path: Path) -> None:
    """A full disk, or one that cannot be written, stops a study with a sentence; what was finished stays."""
    try:
        action()
    except OSError as error:
        raise RunError(
            f"out={str(path)!r} cannot be written ({error.strerror}): make room or name another place, and run the same "
            "command again; finished cells are kept."
        ) from None
