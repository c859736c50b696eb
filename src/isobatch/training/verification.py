"""Are two runs the same? Every metric and every parameter, bit by bit."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from isobatch.training.checkpoints import flatten
from isobatch.training.loading import load_run
from isobatch.training.metrics import METRICS


def first_difference(one: Path, other: Path) -> str | None:
    """Where two runs first differ, in words, or None if they are identical."""
    return metrics_difference(one, other) or state_difference(one, other)


def metrics_difference(one: Path, other: Path) -> str | None:
    """The first metric whose text differs; the text of a number in `metrics.csv` gives its bits."""
    texts = [(run / METRICS).read_text().splitlines() for run in (one, other)]
    header = texts[0][0].split(",")
    if texts[0][0] != texts[1][0]:
        return "the runs log other metrics"
    for lines in itertools.zip_longest(*(text[1:] for text in texts)):
        if lines[0] == lines[1]:
            continue
        if None in lines:
            return f"one run has {len(texts[0]) - 1} lines of metrics, the other {len(texts[1]) - 1}"
        rows = [dict(zip(header, line.split(","), strict=True)) for line in lines]
        name = next(n for n in header if rows[0][n] != rows[1][n])
        where = f"environment step {rows[0]['env_steps']}, seed {rows[0]['seed']}"
        return f"{name} at {where}: {rows[0][name]} against {rows[1][name]}"
    return None


def state_difference(one: Path, other: Path) -> str | None:
    """The first array of the final states whose bits differ."""
    states = [flatten(load_run(run).states) for run in (one, other)]
    for name in states[0]:
        a, b = (np.ascontiguousarray(state[name]).reshape(-1).view(np.uint8) for state in states)
        if a.tobytes() != b.tobytes():
            return f"{name} of the final state, in {np.count_nonzero(a != b)} of {a.size} bytes"
    return None


def parameter_total(run: Path) -> int:
    """How many numbers `state_difference` compares."""
    return sum(array.size for array in flatten(load_run(run).states).values())
