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

import importlib
from typing import Any

# Loaded on first use: statistics of somebody else's gradients should not wait for JAX.
_HOMES = {
    "Layout": "layout",
    "gram_of": "layout",
    "pair_sums": "pairs",
    "pair_sums_of": "pairs",
    "decompose": "variance",
    "decompose_sums": "variance",
    "direct_variance": "variance",
    "cosine_pairs": "correlation",
    "cosine_across": "correlation",
    "cosine_matrix": "correlation",
    "cosine_with_mean": "correlation",
    "lag_correlation": "correlation",
    "across_correlation": "correlation",
    "squared_bias": "bias",
    "mean_squared_error": "bias",
    "noise_scale": "noise",
    "smooth": "noise",
    "minibatch_variance": "subsampling",
    "row_variance": "subsampling",
    "compare": "aggregations",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'isobatch.gradients' has no attribute {name!r}")
    return getattr(importlib.import_module(f"isobatch.gradients.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
