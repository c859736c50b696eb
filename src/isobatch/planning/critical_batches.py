"""The critical batch size at each stage of a run.

By branches of a policy near it, else from the run's own metrics, else from other diagnoses, else measured on its
checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from isobatch.errors import UsageError
from isobatch.gradients.noise import noise_scale
from isobatch.laboratory.diagnosis import subject_of
from isobatch.laboratory.known import CriticalBatch, critical_batches
from isobatch.laboratory.options import LabOptions
from isobatch.planning.samples import Stage
from isobatch.statistics.bootstrap import LEAST_FOR_INTERVAL, Estimate, estimate, ratio, unit_mean
from isobatch.training.checkpoints import Checkpoints
from isobatch.training.loading import load_run
from isobatch.training.metrics import Table
from isobatch.training.run_directory import RunDirectory

STAGES = 3
MEASURED_BATCHES = 16  # independent ones, at a checkpoint
SMALLEST = 1.0  # samples: estimates of a noise that is nearly none can fall below zero
LARGEST = 1e6  # where the signal cannot be told from the noise, the critical batch has no end

Watch = Callable[[str, float], None]


def stages_of(
    run_dir: Path, table: Table, steps: float, given: float | None, watch: Watch = lambda what, done: None
) -> tuple[Stage, ...]:
    """The way to the score, which took so many steps, in equal parts, each with the critical batch measured there.

    `given` stands for all of them, where a user knows it.
    """
    ends = np.linspace(0, steps, STAGES + 1).round().astype(int)
    parts = list(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True))
    if given is not None:
        if not 0 < given < np.inf:
            raise UsageError(f"critical_batch={given:g} is not a batch size: use a positive number of samples.")
        return tuple(Stage(first, last, Estimate(given), "given") for first, last in parts)
    known = [each for each in critical_batches(run_dir) if 0 < each.estimate.value < np.inf]
    branches = [each for each in known if each.method == "branches"]
    stages = [from_diagnoses(branches, first, last, within=1.0) for first, last in parts]
    if {"noise/trace", "noise/signal"} <= table.keys():
        measured = [Stage(first, last, *from_metrics(table, first, last)) for first, last in parts]
    else:
        diagnosed = [from_diagnoses(known, first, last, within=np.inf) for first, last in parts]
        measured = [each for each in diagnosed if each is not None]
    if len(measured) < len(parts) and None in stages:
        measured = list(from_checkpoints(run_dir, parts, watch))
    return tuple(each or measured[place] for place, each in enumerate(stages))


def from_diagnoses(known: Sequence[CriticalBatch], first: int, last: int, within: float) -> Stage | None:
    """By the policy nearest to the middle of a stage that a diagnosis has measured, up to so many stages away."""
    middle, most = (first + last) / 2, within * (last - first)
    near = [each for each in known if abs(each.env_steps - middle) <= most]
    if not near:
        return None
    best = min(near, key=lambda each: abs(each.env_steps - middle))
    return Stage(first, last, best.estimate, f"{best.method} of the diagnosis, after {best.env_steps:,} steps")


def from_metrics(table: Table, first: int, last: int) -> tuple[Estimate, str]:
    """S / |G|^2 of the lines of a stage, both averaged first, with an interval over lines; nearest lines if few."""
    there = ~np.isnan(table["noise/trace"])
    rows = there & (table["env_steps"] > first) & (table["env_steps"] <= last)
    if np.count_nonzero(rows) < LEAST_FOR_INTERVAL:
        distance: np.ndarray = np.where(there, np.abs(table["env_steps"] - (first + last) / 2), np.inf)
        count = min(LEAST_FOR_INTERVAL, int(np.count_nonzero(there)))
        rows = distance <= np.sort(distance)[count - 1]
    both = np.stack([table["noise/trace"][rows], table["noise/signal"][rows]], axis=1)

    def critical(weights: np.ndarray) -> np.ndarray:
        means = unit_mean(both, weights)
        return np.clip(ratio(means[..., 0], means[..., 1], otherwise=LARGEST), SMALLEST, LARGEST)

    enough = len(both) >= LEAST_FOR_INTERVAL
    value = estimate(critical, len(both), resamples=1000 if enough else 0, distinct=1, what="lines of metrics")
    return value, "the run's noise scale (--noise-scale)"


def from_checkpoints(run_dir: Path, parts: Sequence[tuple[int, int]], watch: Watch) -> tuple[Stage, ...]:
    """Measured on the checkpoint nearest to the middle of each stage, of the run's first seed."""
    directory = RunDirectory.open(run_dir)
    batch, there = directory.config.geometry.iteration_batch, Checkpoints(directory.checkpoints).iterations()
    there = [iteration for iteration in there if iteration > 0]
    if not there:
        raise UsageError(
            f"run {str(run_dir)!r} has neither noise/* metrics nor checkpoints, from which the critical batch size is "
            "known: train it with --noise-scale, or give it (--critical-batch)."
        )
    nearest = [nearest_to(there, (first + last) / 2 / batch) for first, last in parts]
    measured: dict[int, Estimate] = {}
    for place, iteration in enumerate(sorted(set(nearest))):
        watch(f"critical batch size after {iteration * batch:,} steps", place / len(set(nearest)))
        measured[iteration] = at_checkpoint(run_dir, iteration)
    return tuple(
        Stage(first, last, measured[i], f"the laboratory, after {i * batch:,} steps")
        for (first, last), i in zip(parts, nearest, strict=True)
    )


def nearest_to(iterations: Sequence[int], place: float) -> int:
    return min(iterations, key=lambda iteration: abs(iteration - place))


def at_checkpoint(run_dir: Path, iteration: int) -> Estimate:
    """From the gradients of independent batches of the run's own geometry."""
    loaded = load_run(run_dir, str(iteration))
    subject = subject_of(loaded, LabOptions(batches=MEASURED_BATCHES))
    num_envs, num_steps = subject.batch_shape
    products = subject.batch_products(num_envs, num_steps, seed_offset=11)
    critical = noise_scale(products, num_envs * num_steps).critical_batch
    return Estimate(
        *(float(np.clip(each, SMALLEST, LARGEST)) for each in (critical.value, critical.low, critical.high))
    )
