"""Where a critical batch size on the command line comes from: a number, or what a run has measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from isobatch.errors import UsageError
from isobatch.formatting import TO, number, rounded
from isobatch.settings.parsing import parse_value

MEASURED = "measured"
HELP = (
    "critical batch size; the directory of a run that measured it (diagnose, or train --noise-scale); or "
    f"`{MEASURED}`: by the run whose settings these are"
)


@dataclass(frozen=True)
class GivenCriticalBatch:
    """Samples of a gradient step, and in words who says so."""

    value: float
    source: str


def critical_batch_from(text: str | None, run_dir: Path | None = None) -> GivenCriticalBatch | None:
    """What the flag says; `run_dir` is the run that the settings come from."""
    if text is None:
        return None
    if text == MEASURED and run_dir is None:
        raise UsageError(f"critical_batch={MEASURED} is what a run has measured: name one, isobatch rescale RUN.")
    if text == MEASURED or Path(text).is_dir():
        return of_run(Path(run_dir if text == MEASURED and run_dir else text))
    return GivenCriticalBatch(float(parse_value("critical_batch", text, float)), "as given")


def of_run(run_dir: Path) -> GivenCriticalBatch:
    """By branches where there are some, else by the noise scale; of the latest policy that was measured so."""
    from isobatch.laboratory.known import METHODS, critical_batches
    from isobatch.training.metrics import critical_batch, read_metrics

    known = [entry for entry in critical_batches(run_dir) if 0 < entry.estimate.value < math.inf]
    for method in METHODS:
        stages = [entry for entry in known if entry.method == method]
        if stages:
            last, name = stages[-1], "the noise scale" if method == "noise scale" else method
            ends = TO.format(number(last.estimate.low, 0), number(last.estimate.high, 0))
            others = f", the last of {len(stages)} policies that were measured" if len(stages) > 1 else ""
            source = f"{ends}, by {name} after {last.env_steps:,} steps of {str(run_dir)!r}{others}"
            return GivenCriticalBatch(round(last.estimate.value), source)
    metrics = read_metrics(run_dir)
    if "noise/trace" not in metrics:
        raise UsageError(
            f"critical_batch={str(run_dir)!r} has not been measured: isobatch diagnose {run_dir} --sections branches "
            "measures it, or --sections geometries, which is quicker; or train it with --noise-scale, or give a number."
        )
    return GivenCriticalBatch(critical_batch(metrics), f"by the noise scale in the second half of {str(run_dir)!r}")


def sentence(given: GivenCriticalBatch) -> str:
    return f"critical batch size: {rounded(given.value, 6)} samples of a gradient step {given.source}"
