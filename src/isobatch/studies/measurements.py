"""What the gradient laboratory says about the policies of a study: variance and critical batch size along a run.

Its runs and measurements live in the study's directory, as `isobatch train` and `isobatch diagnose` would leave them,
and go on where they were stopped.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from isobatch.laboratory.diagnosis import diagnose
from isobatch.laboratory.options import LabOptions
from isobatch.laboratory.sections.geometries import Geometries
from isobatch.laboratory.sections.points import Point
from isobatch.settings.parsing import plain_json
from isobatch.studies.grid import Measurement, Row
from isobatch.training.run_directory import RunDirectory
from isobatch.training.trainer import train

ESTIMATES = ("variance", "signal", "effective_samples", "critical_batch")


def measure(measurement: Measurement, path: Path, watch: Callable[[float], None]) -> list[Row]:
    """Train one seed, then measure its checkpoints: one row for each of them and each shape."""
    config, shapes = measurement.config, measurement.shapes
    begun = RunDirectory.holds_run(path)
    if not begun and path.exists():
        shutil.rmtree(path)  # a kill while it was made
    interval = -(-config.num_iterations // measurement.checkpoints)
    result = train(
        config, run_dir=path, resume=begun, checkpoint_interval=interval, keep_checkpoints=measurement.checkpoints,
        watch=lambda progress: watch(0.5 * progress.env_steps / config.env_steps),
    )  # fmt: skip
    if result.interrupted:
        raise KeyboardInterrupt
    options = LabOptions(
        budget=shapes[0][0] * shapes[0][1],
        geometries=",".join(f"{envs}x{steps}" for envs, steps in shapes),
        chains=measurement.chains,
        sections="geometries",
    )
    diagnoses = diagnose(path, options, checkpoints="all", watch=lambda what, done: watch(0.5 + 0.5 * done))
    return [
        row_of(config.env, diagnosis.env_steps, point)
        for diagnosis in diagnoses
        for point in diagnosis.get(Geometries).rows
    ]


def row_of(env: str, env_steps: int, point: Point) -> Row:
    row: Row = {"env": env, "env_steps": env_steps, "num_envs": point.num_envs, "num_steps": point.num_steps}
    for name in ESTIMATES:
        estimate = getattr(point, name)
        row |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return {name: plain_json(value) for name, value in row.items()}
