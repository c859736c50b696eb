"""How many seeds would tell a difference from 0?

Colas, Sigaud & Oudeyer 2018, *How many random seeds?*, https://arxiv.org/abs/1806.08295: take the spread from a pilot,
name the smallest difference that matters, and choose as many seeds as find it in a given share of experiments. The
spread of a few seeds is itself uncertain, and so is the number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from isobatch.errors import UsageError
from isobatch.statistics.aggregates import FEWEST_SEEDS
from isobatch.statistics.bootstrap import LEVEL

SMALLEST = 0.05  # of normalized return, that matters: about the paper's gap between batch sizes, 0.052
POWER = 0.8  # the share of experiments that find it, as is usual (Cohen 1988)


def seeds_to_tell(terms: Sequence[tuple[float, np.ndarray]], effect: float = SMALLEST, power: float = POWER) -> int:
    """The least n for which sum_k a_k mean(x_k) of n seeds each, truly `effect`, has an interval without 0.

    In a share `power` of experiments: P(|T| > t) >= power, with t the quantile of Student's interval and T of the
    noncentral t distribution with v degrees of freedom and noncentrality effect / sqrt(V/n), where V = sum_k V_k,
    V_k = a_k^2 s_k^2, and v = (n - 1) V^2 / sum_k V_k^2, as in `aggregates.contrast`. Terms are pairs (a_k, x_k).
    """
    if not effect > 0 or not 0 < power < 1:
        raise UsageError(f"effect = {effect} and power = {power}: give an effect above 0 and a power between 0 and 1")
    parts = np.array([a**2 * np.var(x, ddof=1) for a, x in terms])
    variance = float(np.sum(parts))
    if variance == 0:
        return FEWEST_SEEDS
    freedom = variance**2 / float(np.sum(parts**2))  # for each seed beyond the first

    def power_of(n: int) -> float:
        v, shift = (n - 1) * freedom, effect / math.sqrt(variance / n)
        t = stats.t.ppf((1 + LEVEL) / 2, v)
        return float(stats.nct.sf(t, v, shift) + stats.nct.cdf(-t, v, shift))

    # With known variance: ((z_{1 - alpha/2} + z_power) / effect)^2 V seeds. Student's t needs a few more.
    quantiles = stats.norm.ppf((1 + LEVEL) / 2) + stats.norm.ppf(power)
    n = max(FEWEST_SEEDS, math.floor((quantiles / effect) ** 2 * variance))
    while power_of(n) < power:
        n += 1
    return n
