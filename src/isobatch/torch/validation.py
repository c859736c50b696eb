"""Distributions of PyTorch without checks of their arguments, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.distributions import Distribution


@contextmanager
def unchecked_distributions() -> Iterator[None]:
    """The checks take as long as a small network, and look at values, which is not possible under `vmap`."""
    before = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)
