"""What the diagnoses of a run have found out about its critical batch size, read from their files without JAX."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from isobatch.laboratory.results import FORMAT, from_json
from isobatch.settings.config import Config
from isobatch.settings.parsing import SettingsByName, parse_value
from isobatch.statistics.bootstrap import Estimate
from isobatch.training.run_directory import RunDirectory

Method = Literal["branches", "noise scale"]
METHODS: tuple[Method, ...] = ("branches", "noise scale")
# The measurement does not depend on these: a run can be made longer, and shards are measured as one.
INDIFFERENT = ("total_timesteps", "num_shards")


@dataclass(frozen=True)
class CriticalBatch:
    """Of one policy of a run, in samples of a gradient step.

    By `branches` it is the largest batch that loses nothing; by the `noise scale` the one that needs twice the samples
    of a very small one, B_crit of 1 + B/B_crit. Taken for B_crit the former errs on the side of small batches.
    """

    env_steps: int  # after which the policy was measured
    estimate: Estimate  # `high` inf: no upper end; `value` nan: not to be told
    method: Method


def critical_batches(run_dir: str | Path, out: str | Path | None = None) -> list[CriticalBatch]:
    """All that was measured with the run's own settings, in order of training, branches before noise scale.

    Args:
        run_dir: directory of a run.
        out: where its diagnoses are kept, if not in `diagnosis` of the run directory.

    Returns:
        One entry for each checkpoint and method; none where nothing was measured.
    """
    run_dir = Path(run_dir)
    config = RunDirectory.open(run_dir).config
    folder = run_dir / "diagnosis" if out is None else Path(out)
    newest: dict[tuple[int, Method], CriticalBatch] = {}
    for section in ("geometries", "branches"):  # what the branches have beside them is the same noise scale
        for path in sorted(folder.glob(f"[0-9]*-{section}.json")):
            for entry in _entries(path, section, config):
                newest[entry.env_steps, entry.method] = entry
    return sorted(newest.values(), key=lambda entry: (entry.env_steps, METHODS.index(entry.method)))


def _entries(path: Path, section: str, config: Config) -> Iterator[CriticalBatch]:
    """Of one file; none where it is damaged, of another version, or measured with other settings."""
    try:
        content = json.loads(path.read_text())
        key, result = content["key"], content["result"]
        if key["format"] != FORMAT or not _same_settings(key["settings"], config):
            return
        env_steps = int(key["settings"]["iteration"]) * config.geometry.iteration_batch
        if section == "branches":
            yield CriticalBatch(env_steps, _estimate(result["critical_batch"]), "branches")
            noise = result["noise_scale"]
        else:
            noise = _nearest_row(result["rows"], config.num_steps)["critical_batch"]
        yield CriticalBatch(env_steps, _estimate(noise), "noise scale")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return


def _same_settings(settings: SettingsByName, config: Config) -> bool:
    current, usual = config.to_dict(), Config().to_dict()  # which is what a setting was before there was one
    return all(settings.get(name, usual[name]) == current[name] for name in current if name not in INDIFFERENT)


def _nearest_row(rows: list[SettingsByName], num_steps: int) -> SettingsByName:
    """The run's own geometry, or the one whose rollouts are most like the run's: a noise scale depends on T."""

    def distance(row: SettingsByName) -> float:
        return 0.0 if row["current"] else 1 + abs(math.log(parse_value("num_steps", row["num_steps"], int) / num_steps))

    return min(rows, key=distance)


def _estimate(value: object) -> Estimate:
    if not isinstance(value, dict):
        raise ValueError("is no estimate")
    return from_json(Estimate, value)
