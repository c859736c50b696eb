"""How noisy the mean of a minibatch is, given the batch it is drawn from without replacement.

For m of M units, with unit means x_u and their mean X (Cochran 1977, theorem 2.2, summed over parameters):

    E|x_m - X|^2 = (1 - m/M) s^2/m,   s^2 = sum_u |x_u - X|^2 / (M - 1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from isobatch.errors import UsageError
from isobatch.gradients.layout import mean_gram, square


def minibatch_variance(gram: ArrayLike, size: int) -> float:
    """E|G_m - G_B|^2 = (1 - m/B) s^2/m of minibatches of m samples, every subset of the batch equally likely.

    Sampling without replacement, s^2 = sum_i |g_i - G_B|^2 / (B - 1): Cochran 1977, theorem 2.2;
    https://en.wikipedia.org/wiki/Standard_error#Finite_population_correction_(FPC).

    Args:
        gram: inner products of the per-sample gradients of one batch [B, B].
        size: m.

    Returns:
        A number: 0 where a minibatch is the batch.

    Example:
        >>> import isobatch as ib
        >>> ib.gradients.minibatch_variance(ib.gradients.gram_of([[1.0], [3.0]]), size=1)
        1.0
    """
    return _without_replacement(square(gram), size, "samples")


def row_variance(gram: ArrayLike, rows: ArrayLike, count: int) -> float:
    """`minibatch_variance` of minibatches that are whole environments.

    Cluster sampling: the same formula on the rows' means, so rows must be of equal length.

    Args:
        gram: inner products of the per-sample gradients of one batch [B, B].
        rows: the environment of each sample [B].
        count: environments in a minibatch.

    Returns:
        A number: 0 where a minibatch is the batch.

    Example:
        >>> import isobatch as ib
        >>> gram = ib.gradients.gram_of([[0.0], [2.0], [3.0], [3.0]])
        >>> ib.gradients.row_variance(gram, rows=[0, 0, 1, 1], count=1)
        1.0
    """
    gram = square(gram)
    if np.shape(rows) != (len(gram),):
        raise UsageError(f"rows has shape {np.shape(rows)}: name the row of each of {len(gram)} samples")
    row = np.unique(np.asarray(rows), return_inverse=True)[1]
    lengths = np.bincount(row)
    if np.any(lengths != lengths[0]):
        raise UsageError(f"rows have {lengths.min()} to {lengths.max()} samples: give rows of equal length")
    return _without_replacement(mean_gram(gram, row), count, "rows")


def _without_replacement(gram: np.ndarray, size: int, what: str) -> float:
    units = len(gram)
    if not 1 <= size <= units:
        raise UsageError(f"size = {size} {what}: a minibatch takes 1 to {units} of the batch's {units} {what}")
    if size == units:
        return 0.0
    spread = (np.trace(gram) - gram.sum() / units) / (units - 1)
    return float((1 - size / units) * spread / size)
