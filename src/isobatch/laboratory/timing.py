"""How long something takes."""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import numpy as np

TIMED = 7  # repetitions, of which the median counts
PATIENCE = 2.0  # seconds after which there are no more of them


def median_seconds(call: Callable[[], object]) -> float:
    """Of a call that is made once before, to be compiled."""
    jax.block_until_ready(call())
    taken: list[float] = []
    while len(taken) < TIMED and sum(taken) < PATIENCE:
        begin = time.perf_counter()
        jax.block_until_ready(call())
        taken.append(time.perf_counter() - begin)
    return float(np.median(taken))
