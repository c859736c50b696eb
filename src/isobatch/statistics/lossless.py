"""The largest of several sizes that loses nothing, from scores of each size on the same seeds.

A size is compared with the best of the smaller ones, the one of the highest mean score, by the differences of their
scores seed by seed, which have a mean d and Student's 95 % interval. With a tolerance t,
    it loses nothing    where the lower end is above -t: a loss of more than t is ruled out,
    it loses            where the upper end is below -t: less than a loss of t is ruled out,
    it cannot be told   otherwise.
The critical size is where d first falls below -t, between two sizes in proportion to d and to the logarithm of the
size. Its interval goes from the largest size up to which none is in doubt to the smallest one that loses: both ends are
statements of the 95 % intervals above, one for each size, without a correction for their number.

This is the procedure of Merrill et al. (2025), https://arxiv.org/abs/2505.23971, who take a fixed tolerance of the loss
of a language model and no intervals, since they have one seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from isobatch.statistics.aggregates import contrast
from isobatch.statistics.bootstrap import Estimate

Verdict = Literal["loses nothing", "loses", "cannot be told"]


@dataclass(frozen=True)
class SizeComparison:
    """One size with the best smaller one."""

    best_smaller: int  # its place in the list of sizes
    difference: Estimate
    verdict: Verdict


@dataclass(frozen=True)
class CriticalSize:
    size: Estimate  # where nothing is lost at any size: the largest one, without an upper end
    comparisons: tuple[SizeComparison, ...]  # of all sizes but the smallest


def critical_size(sizes: Sequence[float], scores: np.ndarray, tolerance: float) -> CriticalSize:
    """The rule of this module for two or more sizes, ascending, and scores [sizes, seeds]; more is better."""
    means = scores.mean(axis=1)
    compared = []
    for place in range(1, len(sizes)):
        best = int(np.argmax(means[:place]))
        difference, _ = contrast([(1.0, scores[place] - scores[best])])
        compared.append(SizeComparison(best, difference, _verdict(difference, tolerance)))
    doubtful = [place for place, each in enumerate(compared, 1) if each.verdict != "loses nothing"]
    lost = [place for place, each in enumerate(compared, 1) if each.verdict == "loses"]
    value = _crossing(sizes, [0.0, *(each.difference.value for each in compared)], -tolerance)
    low = sizes[doubtful[0] - 1] if doubtful else sizes[-1]
    return CriticalSize(Estimate(value, low, sizes[lost[0]] if lost else math.inf), tuple(compared))


def _verdict(difference: Estimate, tolerance: float) -> Verdict:
    if difference.low > -tolerance:
        return "loses nothing"
    return "loses" if difference.high < -tolerance else "cannot be told"


def _crossing(sizes: Sequence[float], differences: Sequence[float], limit: float) -> float:
    """The size at which differences first fall below a limit, between two of them; the last size if they never do."""
    below = next((i for i, difference in enumerate(differences) if difference < limit), None)
    if below is None:
        return sizes[-1]
    share = (differences[below - 1] - limit) / (differences[below - 1] - differences[below])
    return float(sizes[below - 1] * (sizes[below] / sizes[below - 1]) ** share)
