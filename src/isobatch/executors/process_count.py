"""Whether this machine can have so many processes: a number mistyped should not be what fills its memory."""

from __future__ import annotations

from pathlib import Path

from isobatch.errors import UsageError
from isobatch.formatting import byte_text

# What each has for itself on Linux when it has begun: Python with JAX, and with NumPy and an environment of Gymnasium.
JAX_BYTES, ENV_BYTES = 90 * 10**6, 20 * 10**6


def free_memory() -> int | None:
    """Bytes that new processes and arrays can take, or None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


def check_process_count(asked: str, count: int, each: int = JAX_BYTES) -> None:
    """Raise unless `count` processes of so many bytes fit, before the first one is started; `asked` names the setting
    that wants them."""
    there = free_memory()
    if there is None or count < 2 or count * each <= there:
        return
    raise UsageError(
        f"{asked} is too much: {count:,} processes need at least {byte_text(count * each)}, and {byte_text(there)} are "
        f"available; {max(there // each, 1):,} would fit."
    )
