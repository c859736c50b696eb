"""Compiled programs, kept on disk from one run to the next by JAX's own cache.

JAX finds a program by a digest of its text, its options and the version of XLA. Added here is what that leaves out: the
processor, whose instructions a program may use, and the number of threads; a bound on the size; and that what a kill or
a full disk cut short is removed rather than tried again by every run. Several processes can use it: who finds half a
file compiles for himself.
"""

from __future__ import annotations

import hashlib
import os
import platform
import stat
import time
import warnings
import zlib
from contextlib import suppress
from pathlib import Path

import jax

from isobatch.executors.cores import available_cores
from isobatch.rollouts.compiling import SHORTEST

DIRECTORY = "ISOBATCH_COMPILE_CACHE"  # of the environment: a directory, or 0 for no cache
MAX_BYTES = 256 * 1024**2
CHECKED = "checked"  # a file whose time tells up to when entries were checked
ENTRIES = "*/*-cache"
PLACE = "jax_compilation_cache_dir"


def keep_programs() -> None:
    """Look for compiled programs in the directory that the environment names, and leave new ones there.

    Nothing happens where none is named, where it cannot be used, or where JAX was given one already.
    """
    named = os.environ.get(DIRECTORY, "0")
    if named == "0" or getattr(jax.config, PLACE) is not None:
        return
    directory = Path(named)
    programs = directory / hashlib.sha256(machine().encode()).hexdigest()[:16]
    try:
        programs.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_private(directory):
            return
        sweep(directory)
    except OSError:
        return
    jax.config.update(SHORTEST, 0)  # small programs too take longer to compile than to load
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update(PLACE, str(programs))
    # What cannot be loaded is compiled, and what cannot be written is not there next time: nobody has to know.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")


def is_private(directory: Path) -> bool:
    """Whether nobody else can write to it: what lies there is run."""
    status = directory.stat()
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def sweep(directory: Path, max_bytes: int = MAX_BYTES) -> None:
    """Remove entries that are not whole, and those that were not used for longest if all together are too large."""
    mark, now = directory / CHECKED, time.time()
    last = mark.stat().st_mtime if mark.exists() else 0.0
    used = {}
    for path in directory.glob(ENTRIES):
        with suppress(FileNotFoundError):  # another process sweeps as well
            status = path.stat()
            if status.st_mtime >= last:
                whole = is_whole(path)
                os.utime(path, (status.st_atime, status.st_mtime))  # to be checked is not to be used
                if not whole:
                    path.unlink()
                    continue
            used[path] = (max(status.st_atime, status.st_mtime), status.st_size)
    total = sum(size for _, size in used.values())
    for path in sorted(used, key=lambda path: used[path]):
        if total <= max_bytes:
            break
        path.unlink(missing_ok=True)
        total -= used[path][1]
    mark.touch()
    os.utime(mark, (now, now))


def is_whole(path: Path) -> bool:
    """Whether the compressed file ends as it should; of what is not zlib's, nothing can be said."""
    content = path.read_bytes()
    if content and content[0] != 0x78:
        return True
    try:
        zlib.decompress(content)
    except zlib.error:
        return False
    return True


def machine() -> str:
    """What a compiled program depends on, besides what JAX counts in: the processor, and threads."""
    lines = [platform.machine(), os.environ.get("PJRT_NPROC", ""), str(len(available_cores()))]
    with suppress(OSError):
        first_core = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
        lines += [line for line in first_core if line.startswith(("vendor_id", "model", "flags", "CPU", "Features"))]
    return "\n".join(lines)
