"""The ratio of two sums of estimates, such as noise over signal at several stages of training."""

from __future__ import annotations

import math
from collections.abc import Sequence

from isobatch.statistics.bootstrap import Estimate

Z = 1.96  # a normal interval of 95 %


def ratio_of_sums(numerators: Sequence[Estimate], denominators: Sequence[Estimate]) -> Estimate:
    """sum_i n_i / sum_i d_i of what cannot truly be below 0, with Fieller's interval (1954).

    Estimates are independent and count as normal, with the standard errors of their intervals. The ends are the ratios
    r at which n - r d is Z standard errors from 0; where d itself is not, there is no upper one: infinity.
    """
    n, d = (sum(each.value for each in estimates) for estimates in (numerators, denominators))
    var_n, var_d = (sum(standard_error(each) ** 2 for each in estimates) for estimates in (numerators, denominators))
    # (n - r d)^2 = Z^2 (var_n + r^2 var_d), a quadratic equation a r^2 - 2 n d r + c = 0.
    a, c = d**2 - Z**2 * var_d, n**2 - Z**2 * var_n
    root = math.sqrt(max((n * d) ** 2 - a * c, 0.0))
    value = max(n, 0.0) / d if d > 0 else math.inf
    if a > 0 and d > 0:
        return Estimate(value, max((n * d - root) / a, 0.0), max((n * d + root) / a, 0.0))
    # d may be 0: every ratio from the one at which a positive d is Z errors from n / r is possible.
    low = c / (n * d + root) if c > 0 and n * d + root > 0 else 0.0
    return Estimate(value, max(low, 0.0), math.inf)


def standard_error(estimate: Estimate) -> float:
    return (estimate.high - estimate.low) / (2 * Z)
