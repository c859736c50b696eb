"""Files that are read with a clear complaint and written all at once."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isobatch.errors import RunError, UsageError

FULL = (errno.ENOSPC, errno.EDQUOT)
DRAFT = ".new"
MOST_BYTES = 10**7  # of a text that a flag names


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """The name of a new file beside `path`, which takes its place at the end of the block or is removed.

    It has the process in its name: two that replace one file do not write into each other's drafts.
    """
    draft = path.with_name(f"{path.name}.{os.getpid()}{DRAFT}")
    draft.unlink(missing_ok=True)  # of a process that was killed, or a link to somewhere else
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file all at once: a reader, or a kill, sees the old content or the new one."""
    with draft_of(path) as draft, draft.open("xb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())


def read_text(path: Path, flag: str) -> str:
    """A file that a flag names: text in UTF-8, of an end that is in sight (/dev/zero has none)."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise UsageError(f"{flag} {str(path)!r} is larger than {MOST_BYTES:,} bytes: name a file of settings.")
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(f"{flag} {str(path)!r} cannot be read ({why}): check the path.") from None


def check_writable(path: Path, what: str) -> None:
    """Raise where a file that a person asked for cannot be, best before anything is computed for it; `what` is the flag
    and its value."""
    if path.exists() and not path.is_file():  # a directory, or a device, which must not be replaced by a file
        raise UsageError(f"{what} is there and is not a file: name another place.")
    check_folder(path.parent, what)


def check_folder(path: Path, what: str) -> None:
    """Raise where no file can be made in a directory, which is made if need be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise unwritable(what, error) from None


def write_file(path: Path, content: str | bytes) -> None:
    """A file that a person asked for."""
    check_writable(path, f"--out {str(path)!r}")
    try:
        replace_file(path, content)
    except OSError as error:
        raise unwritable(f"--out {str(path)!r}", error) from None


def unwritable(what: str, error: OSError) -> UsageError | RunError:
    """Why a file that a person asked for is not there."""
    if error.errno in FULL:
        return RunError(f"{what} cannot be written ({error.strerror}): make room, and give the command again.")
    return UsageError(f"{what} cannot be written ({error.strerror}): name another place.")
