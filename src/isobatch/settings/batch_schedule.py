"""A schedule of the number of environments: `0:64,0.2:256` is 64 at first, and 256 after a fifth of the run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from isobatch.errors import UsageError

FORM = "use SHARE:NUM_ENVS,SHARE:NUM_ENVS, as in 0:64,0.2:256"


@dataclass(frozen=True)
class Stage:
    """A part of a run."""

    begins: float
    """Share of the run's environment steps."""
    num_envs: int


def parse_batch_schedule(text: str) -> tuple[Stage, ...]:
    """The stages of a schedule, or a UsageError that says what is wrong with it."""
    stages = tuple(_stage(text, part) for part in text.split(","))
    shares = [stage.begins for stage in stages]
    if len(stages) < 2:
        raise UsageError(f"batch_schedule={text!r} has one stage, which is num_envs: {FORM}, or set num_envs.")
    if shares[0] != 0 or any(a >= b for a, b in pairwise(shares)) or shares[-1] >= 1:
        raise UsageError(f"batch_schedule={text!r} must begin at 0 and rise to shares below 1: {FORM}.")
    return stages


def _stage(text: str, part: str) -> Stage:
    share, _, count = part.partition(":")
    try:
        stage = Stage(float(share), int(count))
    except ValueError:
        raise UsageError(f"batch_schedule={text!r} cannot be read at {part!r}: {FORM}.") from None
    if not math.isfinite(stage.begins) or stage.num_envs < 1:
        raise UsageError(f"batch_schedule={text!r} has a stage {part!r} without environments or a share: {FORM}.")
    return stage
