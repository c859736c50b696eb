"""One writer for a run directory: a lock that a process holds as long as it lives, and no longer."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from isobatch.errors import RunError
from isobatch.files import unwritable

LOCK = "run.lock"  # who writes, for people; what counts is the lock on the open file, which the system takes back


@contextmanager
def locked(directory: Path, flag: str = "run_dir") -> Iterator[None]:
    """RunError, with the name of the other one, if somebody writes into this directory, which `flag` names."""
    try:
        file = (directory / LOCK).open("a+")
    except OSError as error:
        raise unwritable(f"{flag}={str(directory)!r}", error) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"{flag}={str(directory)!r} is being trained by {holder(directory)}: wait until it is done, stop it, "
                "or name another directory."
            ) from None
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        file.truncate(0)
        file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}) + "\n")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def holder(directory: Path) -> str:
    try:
        who = json.loads((directory / LOCK).read_text())
        return f"process {who['pid']} on {who['host']} since {who['since']}"
    except (OSError, ValueError, TypeError, KeyError):  # it has not written its name yet
        return "another process"
