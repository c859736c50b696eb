"""`metrics.csv` while a run writes it: lines are only appended, and a checkpoint remembers how far it was."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from isobatch.training.metrics import format_number


class Mark(NamedTuple):
    """The file at some time."""

    size: int  # in bytes
    digest: str  # SHA-256 of them


class MetricsFile:
    """The lines that a run has written, which begin where `rewind` said."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._size, self._digest = 0, hashlib.sha256()

    @property
    def mark(self) -> Mark:
        return Mark(self._size, self._digest.hexdigest())

    def holds(self, mark: Mark) -> bool:
        """Whether it still begins with all that was there at that time."""
        content = self._beginning(mark.size)
        return len(content) == mark.size and hashlib.sha256(content).hexdigest() == mark.digest

    def has_lines(self) -> bool:
        return self.path.is_file() and self.path.read_bytes().count(b"\n") > 1

    def rewind(self, mark: Mark | None) -> None:
        """Forget what was written after that time, also a line that a kill cut short; None: after the beginning."""
        content = b"" if mark is None else self._beginning(mark.size)
        self._size, self._digest = len(content), hashlib.sha256(content)
        if self.path.exists():
            os.truncate(self.path, self._size)

    def _beginning(self, size: int) -> bytes:
        if not self.path.is_file():
            return b""
        with self.path.open("rb") as file:
            return file.read(size)

    def append(self, columns: tuple[str, ...], rows: list[tuple]) -> None:
        lines = [] if self._size else [",".join(columns)]
        lines += [",".join(map(format_number, row)) for row in rows]
        text = "".join(line + "\n" for line in lines).encode()
        try:
            with self.path.open("ab") as file:
                file.write(text)
        except OSError:  # a full disk may have taken a part of it
            if self.path.exists():
                os.truncate(self.path, self._size)
            raise
        self._size += len(text)
        self._digest.update(text)

    def sync(self) -> None:
        """Wait until it is on disk."""
        if self.path.exists():
            with self.path.open("rb") as file:
                os.fsync(file.fileno())
