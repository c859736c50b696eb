"""The bias of a gradient estimator against a reference, with the noise taken out."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from isobatch.errors import UsageError
from isobatch.gradients.layout import mean_gram, square
from isobatch.statistics.bootstrap import Estimate, estimate, pair_mean


def squared_bias(
    difference_gram: ArrayLike, groups: ArrayLike | None = None, resamples: int = 1000, seed: int = 0
) -> Estimate:
    """|E D|^2 = mean_(u != v) D_u . D_v, where D_u = estimator - reference gradient on independent unit u.

    A U-statistic (Hoeffding 1948, https://doi.org/10.1214/aoms/1177730196): |mean_u D_u|^2 would add Var(D)/U to it;
    pairs of different units add nothing, so the value may be slightly negative, the ends of its interval are not.

    Args:
        difference_gram: inner products of the D_u [U, U].
        groups: the independent unit of each row [U], where several rows belong to one: their mean counts.
        resamples: of the bootstrap over units; 0 leaves the interval out.
        seed: of the bootstrap.

    Returns:
        An estimate with its interval.

    Example:
        >>> import isobatch as ib
        >>> ib.gradients.squared_bias(ib.gradients.gram_of([[1.0], [3.0]]), resamples=0).value
        3.0
    """
    gram = square(difference_gram)
    if groups is not None:
        if np.shape(groups) != (len(gram),):
            raise UsageError(f"groups has shape {np.shape(groups)}: name a group for each of {len(gram)} rows")
        gram = mean_gram(gram, np.unique(np.asarray(groups), return_inverse=True)[1])
    return estimate(lambda w: pair_mean(gram, w), len(gram), resamples, seed, distinct=2, least=0.0)


def mean_squared_error(variance: Estimate, bias: Estimate) -> Estimate:
    """E|G_B - G|^2 = Var(G_B) + |bias|^2, for two estimates from independent data.

    The distances from value to end of the intervals add in squares (Zou & Donner 2008,
    https://doi.org/10.1002/sim.3095), and no end is below 0.

    Args:
        variance: Var(G_B) with its interval.
        bias: |bias|^2 with its interval.

    Returns:
        Their sum with its interval.

    Example:
        >>> import isobatch as ib
        >>> variance = ib.gradients.direct_variance(ib.gradients.gram_of([[1.0], [3.0]]), interval=False)
        >>> ib.gradients.mean_squared_error(variance, variance).value
        4.0
    """
    value = variance.value + bias.value
    below = np.hypot(variance.value - variance.low, bias.value - bias.low)
    above = np.hypot(variance.high - variance.value, bias.high - bias.value)
    return Estimate(value, float(np.maximum(value - below, 0.0)), float(value + above))
