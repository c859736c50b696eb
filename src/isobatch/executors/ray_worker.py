"""What runs in the processes of a Ray cluster. It imports neither JAX nor Ray: a job does what it needs itself."""

from __future__ import annotations

import pickle
import platform
import time
from dataclasses import dataclass
from typing import Protocol

from isobatch.errors import RunError
from isobatch.executors.interface import Failure, attempt
from isobatch.settings.versions import difference, versions

SECONDS_BETWEEN = 0.5  # two reports of progress


@dataclass(frozen=True)
class Ticket:
    """Which job, and which attempt at it."""

    index: int
    attempt: int


class Board:
    """An actor on the machine that began: whoever works leaves how far it is, and the bar is drawn from that."""

    def __init__(self) -> None:
        self.shares: dict[Ticket, float] = {}

    def note(self, ticket: Ticket, done: float) -> None:
        self.shares[ticket] = done

    def read(self) -> dict[Ticket, float]:
        return self.shares


class RemoteNote(Protocol):
    """`Board.note` as Ray calls it."""

    def remote(self, ticket: Ticket, done: float) -> object: ...


class RemoteBoard(Protocol):
    """A board in another process."""

    @property
    def note(self) -> RemoteNote: ...


def work(ticket: Ticket, job: bytes, expected: dict[str, str], board: RemoteBoard) -> object:
    """A task of Ray: the job's result, or a `Failure`. Nothing is unpickled before the versions are the same."""
    differ = difference(expected, versions())
    if differ:
        return Failure(
            RunError(
                f"node {platform.node()} has {differ}: install the same versions on all nodes, and run the same "
                "command again; what was finished is kept."
            )
        )
    last = 0.0

    def watch(done: float) -> None:
        nonlocal last
        if time.monotonic() > last + SECONDS_BETWEEN:
            last = time.monotonic()
            board.note.remote(ticket, done)

    watch(0.0)
    return attempt(pickle.loads(job), watch)
