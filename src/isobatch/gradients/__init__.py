"""Statistics of gradients: how noisy, how biased, how correlated is a policy gradient at N x T?

| what                                             | where                                                      |
|--------------------------------------------------|------------------------------------------------------------|
| which sample belongs where; inner products       | `Layout`, `gram_of`                                        |
| Var(G_B), its two terms, by lag, effective size  | `decompose`, `direct_variance`                             |
| correlation against lag                          | `cosine_pairs`, `cosine_across`, `lag_correlation`         |
| bias, mean squared error                         | `squared_bias`, `mean_squared_error`                       |
| noise scale, critical batch size                 | `noise_scale`, `smooth`                                    |
| minibatches; the four aggregations               | `minibatch_variance`, `row_variance`, `compare`            |

All take plain arrays, from any framework: gradients [n, P], or their inner products [n, n]. What computes gradients of
single samples and their inner products in JAX, and `diagnose`, are in `isobatch.laboratory`.
"""

from __future__ import annotations

from isobatch.gradients.aggregations import compare
from isobatch.gradients.bias import mean_squared_error, squared_bias
from isobatch.gradients.correlation import (
    across_correlation,
    cosine_across,
    cosine_matrix,
    cosine_pairs,
    cosine_with_mean,
    lag_correlation,
)
from isobatch.gradients.layout import Layout, gram_of
from isobatch.gradients.noise import noise_scale, smooth
from isobatch.gradients.pairs import pair_sums, pair_sums_of
from isobatch.gradients.subsampling import minibatch_variance, row_variance
from isobatch.gradients.variance import decompose, decompose_sums, direct_variance

__all__ = [
    "Layout", "across_correlation", "compare", "cosine_across", "cosine_matrix", "cosine_pairs", "cosine_with_mean",
    "decompose", "decompose_sums", "direct_variance", "gram_of", "lag_correlation", "mean_squared_error",
    "minibatch_variance", "noise_scale", "pair_sums", "pair_sums_of", "row_variance", "smooth", "squared_bias",
]  # fmt: skip
