"""Standard streams that may be closed, full, or unable to show a character."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from isobatch.cli.failures import report
from isobatch.errors import RunError

TRAILING_BLANKS = re.compile(r" +(?=\n)")


class Stream(io.TextIOBase):
    """The standard stream of the moment: tests and progress bars put others in its place."""

    name = "stdout"

    @property
    def stream(self) -> TextIO:
        stream: TextIO = getattr(sys, self.name)
        return getattr(stream, "rich_proxied_file", stream)  # what a progress bar stands before

    def close(self) -> None:
        """Nothing: the stream is not ours, and a failing flush would be lost where this object is collected."""

    def isatty(self) -> bool:
        return self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.stream.encoding


class Results(Stream):
    """Standard output for results, without the blanks that fill tables up; one sentence if it cannot be written."""

    def write(self, text: str) -> int:
        self._do(lambda: self.stream.write(TRAILING_BLANKS.sub("", text)))
        return len(text)

    def flush(self) -> None:
        self._do(self.stream.flush)

    @staticmethod
    def _do(action: Callable[[], object]) -> None:
        try:
            action()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _unwritable(error) from None


class Remarks(Stream):
    """Standard error for progress and remarks, which are not worth ending a run for when nobody takes them."""

    name = "stderr"

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self.stream.flush()


def prepare_streams() -> None:
    """Characters that a terminal lacks are escaped, and closed streams lead nowhere.

    Without the latter the first file that is opened would get the number of a closed stream, and with it what libraries
    print.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def flush_streams(code: int) -> int:
    """The exit code after everything was handed over: results that did not arrive are a failure.

    What a stream does not take is dropped, so that the interpreter does not try again when it ends.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except ValueError:  # closed meanwhile
            pass
        except OSError as error:
            _drop(stream)
            if stream is sys.stdout and code == 0:
                code = report(error if isinstance(error, BrokenPipeError) else _unwritable(error))
    return code


def _drop(stream: TextIO) -> None:
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _unwritable(error: OSError) -> RunError:
    return RunError(f"standard output cannot be written ({error.strerror}): print to another place.")
