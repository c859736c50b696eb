"""Run a study: cells of equal shape together, finished ones never again, results in the order of the grid."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from isobatch.envs.registry import environment_of, host_environment_of
from isobatch.errors import check_keywords
from isobatch.executors.cores import available_cores
from isobatch.executors.interface import Executor, Job
from isobatch.executors.processes import LocalProcesses
from isobatch.formatting import counted
from isobatch.settings.config import Config
from isobatch.studies.claims import study_of
from isobatch.studies.grid import Cell, Grid, Study, check_scale
from isobatch.studies.jobs import Devices, MeasurementResult, MeasurePolicy, PartResult, TrainPart
from isobatch.studies.result_files import one_writer
from isobatch.studies.study_directory import INFO, StudyDirectory

LANES = 64  # cells x seeds that are trained at once
HOST_ENVS = 32  # environments outside JAX of the cells that are trained at once
LABORATORY_SHARE = 0.2  # of the time, roughly, where there is one
Watch = Callable[[str, float], None]
Result = PartResult | MeasurementResult


@check_keywords
def run_study(
    study: Study | str,
    scale: str,
    out: str | Path,
    watch: Watch = lambda label, done: None,
    executor: Executor | None = None,
) -> StudyDirectory:
    """Train what is not finished yet of an experiment about a claim. A kill loses at most the parts in training.

    Args:
        study: its name (`study_names`).
        scale: quick, laptop or paper.
        out: directory of the study; one that was begun goes on, also if the grid has grown since then.
        watch: gets a label of the current work and the share of all work that is done.
        executor: who trains the parts; by default this process, one after the other. `isobatch.executors` has others:
            more processes of this machine, or a cluster.

    Returns:
        The directory, with `rows()`, one for each setting and seed, and `curves()`.

    Example:
        >>> import isobatch as ib
        >>> ib.run_study("invarianc", scale="quick", out="runs/invariance")
        Traceback (most recent call last):
        isobatch.errors.UsageError: study 'invarianc' is unknown; did you mean invariance?
    """
    study = study_of(study) if isinstance(study, str) else study
    executor = executor or LocalProcesses()
    check_scale(scale)
    grid = study.grid(scale)
    devices = Devices(grid.cells[0].config, len(available_cores()))
    devices.choose()  # before an environment starts JAX
    for first in {cell.config.env: cell.config for cell in reversed(grid.cells)}.values():
        environment_of(first)  # says what is missing before anything is written
    with one_writer(Path(out), INFO, "study"):
        directory = StudyDirectory.begin(Path(out), study.name, scale, grid)
        train_missing(study, scale, directory, watch, executor, devices)
    watch("done", 1.0)
    return directory


def train_missing(
    study: Study, scale: str, directory: StudyDirectory, watch: Watch, executor: Executor, devices: Devices
) -> None:
    """The parts and measurements that are not there yet."""
    grid = study.grid(scale)
    parts = [cells for stage in directory.stages(grid) for cells in parts_of(stage)]
    measurements = study.laboratory(scale)
    progress = JobsProgress(watch)
    jobs: list[Job[Result]] = []
    total = sum(work(cells, grid) for cells in parts) / (1 - LABORATORY_SHARE if measurements else 1)
    for index, cells in enumerate(parts, 1):
        finished = directory.finished(cells)
        progress.add(f"part {index} of {len(parts)}: {part_label(cells)}", work(cells, grid) / total, finished)
        if not finished:
            jobs.append(TrainPart(cells, grid.seeds, study.ranges, devices, grid.evaluated))
    for measurement in measurements:
        env = measurement.config.env
        finished = directory.measured_on(env) is not None
        progress.add(f"laboratory: {env}", LABORATORY_SHARE / len(measurements), finished)
        if not finished:
            path = directory.laboratory_run(env) if executor.shares_files else None
            jobs.append(MeasurePolicy(measurement, path, devices))
    with closing(executor.run(jobs, progress)) as results:
        for index, result in results:
            save(jobs[index], result, directory)
            directory.collect(parts)
            progress(index, 1.0)
    directory.collect(parts)
    directory.collect_measured([measurement.config.env for measurement in measurements])


def save(job: Job[Result], result: Result, directory: StudyDirectory) -> None:
    if isinstance(job, TrainPart) and isinstance(result, PartResult):
        directory.save(job.cells, result.outcomes, result.rows, result.seconds)
    elif isinstance(job, MeasurePolicy) and isinstance(result, MeasurementResult):
        directory.save_measured(job.measurement.config.env, result.rows, result.files)


class JobsProgress:
    """One bar for all jobs, wherever they are done: called with the index of a job and the part of it that is done."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.labels: list[str] = []  # of the jobs to be done
        self.sizes: list[float] = []  # of each, as a share of all work
        self.parts: dict[int, float] = {}  # of each that was begun, what is done
        self.finished = 0.0  # before

    def add(self, label: str, size: float, finished: bool) -> None:
        if finished:
            self.finished += size
        else:
            self.labels.append(label)
            self.sizes.append(size)

    def __call__(self, index: int, part: float) -> None:
        self.parts[index] = part
        running = [other for other, done in self.parts.items() if done < 1]
        done = len(self.parts) - len(running)
        label = f"{done} of {counted(len(self.labels), 'job')} done, {len(running)} at work"
        if len(running) <= 1:
            label = self.labels[running[0] if running else index]
        self.watch(label, self.finished + sum(self.sizes[other] * part for other, part in self.parts.items()))


def parts_of(grid: Grid) -> list[list[Cell]]:
    """Cells that share a compiled program, at most LANES lanes of them at a time, in parts of nearly equal size."""
    by_shape: dict[Config, list[Cell]] = {}
    for cell in grid.cells:
        by_shape.setdefault(cell.config.static, []).append(cell)
    parts = []
    for cells in by_shape.values():
        # Outside JAX, a step of few environments takes as long as one of many.
        lanes = max(1, HOST_ENVS // cells[0].config.num_envs) if host_environment_of(cells[0].config) else LANES
        count = min(-(-len(cells) * grid.num_seeds // lanes), len(cells))
        size = -(-len(cells) // count)
        parts += [cells[i : i + size] for i in range(0, len(cells), size)]
    return parts


def work(cells: list[Cell], grid: Grid) -> float:
    """About how long a part takes, for the time left: a step costs as much as a sample of a gradient step, which
    itself costs as much as some 32 samples."""
    return (
        sum(
            cell.config.env_steps * (1 + cell.config.update_epochs * (1 + 32 / cell.config.geometry.optimization_batch))
            for cell in cells
        )
        * grid.num_seeds
    )


def part_label(cells: list[Cell]) -> str:
    config = cells[0].config
    return f"{config.algo} on {config.env}, {config.num_envs} x {config.num_steps}, {len(cells)} setting(s)"
