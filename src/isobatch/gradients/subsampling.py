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
    """Minibatches of `size` samples of the batch with this Gram matrix [B, B], every subset equally likely."""
    return _without_replacement(square(gram), size, "samples")


def row_variance(gram: ArrayLike, rows: ArrayLike, count: int) -> float:
    """Minibatches of `count` whole environments; `rows` [B] names the environment of each sample.

    Cluster sampling: the same formula on the rows' means, so rows must be of equal length.
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
