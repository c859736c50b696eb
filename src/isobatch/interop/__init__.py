"""Hyperparameters of other libraries, read as a `Config` and written back in their own words.

What "batch size" means differs between them, which is why nothing here is called that; each module says it for its
library.
"""

from __future__ import annotations

from isobatch.interop import cleanrl, rllib, skrl, stable_baselines3, torchrl
from isobatch.interop.library import Answer, Library, LibrarySettings, answer, find_library, from_settings, read, write

LIBRARIES: dict[str, Library] = {
    module.LIBRARY.name: module.LIBRARY for module in (stable_baselines3, cleanrl, rllib, torchrl, skrl)
}


def library(name: str) -> Library:
    """The library of that name, or a UsageError."""
    return find_library(name, LIBRARIES)


__all__ = ["LIBRARIES", "Answer", "Library", "LibrarySettings", "answer", "from_settings", "library", "read", "write"]
