"""How much of a base's return other runs keep: mean(X) / mean(B), where 0 is what random actions get.

A return above random, normalized by any range that begins there, gives the same ratio: the upper end cancels.
"""

from __future__ import annotations

import numpy as np

from isobatch.errors import UsageError
from isobatch.statistics.aggregates import Scores, contrast
from isobatch.statistics.bootstrap import Estimate
from isobatch.statistics.comparisons import matched


def kept(x: Scores, base: Scores) -> tuple[dict[str, Estimate], Estimate]:
    """r_e = mean(X_e) / mean(B_e) for each environment e, and the mean of these.

    To first order r_e - E r_e = (mean(X_e) - r_e mean(B_e)) / mean(B_e), a contrast of two independent samples, so the
    interval is Student's for that (delta method). A base must be well above 0 for it: see `learned`.
    """
    ratios: dict[str, float] = {}
    terms: dict[str, list[tuple[float, np.ndarray]]] = {}
    for env, (runs, base_runs) in matched(x, base).items():
        reference = float(np.mean(base_runs))
        if reference <= 0:
            raise UsageError(f"the base of {env!r} has a mean score of {reference:g}: nothing was learned to be kept.")
        ratio = float(np.mean(runs)) / reference
        ratios[env], terms[env] = ratio, [(1 / reference, runs), (-ratio / reference, base_runs)]
    each = {env: around(ratio, terms[env]) for env, ratio in ratios.items()}
    share = 1 / len(ratios)
    all_terms = [(share * a, values) for pair in terms.values() for a, values in pair]
    return each, around(float(np.mean(list(ratios.values()))), all_terms)


def around(value: float, terms: list[tuple[float, np.ndarray]]) -> Estimate:
    """A value with the interval of the contrast that it differs from its expectation by, to first order."""
    error, _ = contrast(terms)
    half = (error.high - error.low) / 2
    return Estimate(value, value - half, value + half)


def learned(scores: np.ndarray) -> bool:
    """Whether the mean of runs is above 0 with its interval: else a ratio to it has no finite one (Fieller 1954)."""
    return contrast([(1.0, np.asarray(scores, dtype=float))])[0].low > 0
