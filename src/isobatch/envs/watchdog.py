"""Work in a thread that is given up when it shows no sign of life for too long; environments begin and end in one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Generic, TypeVar

PATIENCE = 0.5  # seconds between two looks
LATE = 5.0  # seconds by which a look is so late that this process itself was stopped (Ctrl-Z) or got no time
START_SECONDS = 300.0  # that making environments may take at least: processes import what they need
CLOSE_SECONDS = 5.0  # that closing one may take
T = TypeVar("T")


class HangError(Exception):
    """The work showed no sign of life within its time limit."""


class Watched(Generic[T]):
    """A call in a thread of its own. It has to call `beat` within every `time_limit` seconds.

    The thread is a daemon: one that hangs for ever does not keep the process from ending.
    """

    def __init__(self, work: Callable[[Callable[[], None]], T], time_limit: float) -> None:
        self._work, self._time_limit = work, time_limit
        self._result: list[T] = []
        self._error: BaseException | None = None
        self.beat()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def beat(self) -> None:
        self._last = time.monotonic()

    def _run(self) -> None:
        try:
            self._result = [self._work(self.beat)]
        except BaseException as error:  # handed on to whoever waits
            self._error = error

    def wait(self) -> T:
        """The result of the work, or what it raised, or `HangError`."""
        pause = min(PATIENCE, self._time_limit / 4)
        while True:
            before = time.monotonic()
            self._thread.join(pause)
            if not self._thread.is_alive():
                break
            now = time.monotonic()
            if now - before > pause + LATE:
                self.beat()  # what was stopped with this process does not hang
            elif now - self._last > self._time_limit:
                raise HangError
        if self._error is not None:
            raise self._error
        return self._result[0]


def closed_in_time(close: Callable[[], object]) -> bool:
    """Close, whatever that raises; False if it hangs, and then it goes on hanging in a thread that holds up nobody."""
    try:
        Watched(lambda beat: close(), CLOSE_SECONDS).wait()
    except HangError:
        return False
    except (Exception, SystemExit):
        pass
    return True


class Worker:
    """A thread of its own for calls one after the other. Like that of `Watched` it holds up nobody."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def call(self, work: Callable[[], T], time_limit: float) -> T:
        """The result of the work, or what it raised, or `HangError`."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:  # handed on to whoever waits
                future.set_exception(error)

        self._calls.put(run)
        try:
            return future.result(None if time_limit == float("inf") else time_limit)
        except TimeoutError:
            if future.done():  # of the work itself
                raise
            raise HangError from None

    def end(self) -> None:
        """After the calls before."""
        self._calls.put(None)
