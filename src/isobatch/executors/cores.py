"""The cores of this machine that a process may use, and keeping a process to some of them."""

from __future__ import annotations

import os
from collections.abc import Collection


def available_cores() -> list[int]:
    """Those that this process may use; all, numbered from 0, where the system does not tell (macOS, Windows)."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def stay_on(some: Collection[int]) -> None:
    """Keep this process to these cores, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, some)
