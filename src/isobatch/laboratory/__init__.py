"""The gradient laboratory: how noisy, how biased, how correlated is the policy gradient at N x T?

| what                                             | where                                                      |
|--------------------------------------------------|------------------------------------------------------------|
| everything about the policies of a run           | `diagnose`, `LabOptions`, `Diagnosis`                      |
| gradients of single samples, one row each        | `per_sample_gradients`                                     |
| their inner products, exactly or by projection   | `gram`, `compiled_gram`, `projected_gram`                  |
| per-sample losses: plain, or a run's objective   | `vanilla`, `full`                                          |

Statistics of gradients, from these or from any framework: `isobatch.gradients`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # isort: off
    from isobatch.laboratory.diagnosis import Diagnosis as Diagnosis, diagnose as diagnose
    from isobatch.laboratory.inner_products import compiled_gram as compiled_gram, gram as gram
    from isobatch.laboratory.options import LabOptions as LabOptions
    from isobatch.laboratory.per_sample import full as full, vanilla as vanilla
    from isobatch.laboratory.per_sample import per_sample_gradients as per_sample_gradients
    from isobatch.laboratory.projection import projected_gram as projected_gram
    # isort: on

# Loaded on first use: flags need the options, which do not wait for JAX.
_NAMES = {
    "diagnosis": "Diagnosis diagnose",
    "inner_products": "compiled_gram gram",
    "options": "LabOptions",
    "per_sample": "full per_sample_gradients vanilla",
    "projection": "projected_gram",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'isobatch.laboratory' has no attribute {name!r}")
    return getattr(importlib.import_module(f"isobatch.laboratory.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
