"""Who collects which rollout with which policy, and which rollouts make a batch: a hard bound on the lag.

Versions of the policy are counted in updates: update u learns from one batch of K rollouts and makes version u + 1. A
rollout of version v that is used in update u is u - v updates old, and may be at most L. Nothing here knows what a
policy or a rollout is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from isobatch.errors import RunError

LOOK = 0.1  # seconds between two looks at whether to stop

PolicyT = TypeVar("PolicyT")
ContentT = TypeVar("ContentT")  # of a rollout


class LedgerEntry(NamedTuple):
    """One rollout that an update learned from."""

    update: int
    actor: int
    number: int  # of the rollouts of this actor that were used
    version: int  # of the policy that collected it
    restarts: int = 0  # how often its environments had to start new episodes before it


@dataclass(frozen=True)
class RolloutTask(Generic[PolicyT]):
    """A rollout to be collected."""

    actor: int
    number: int
    version: int
    policy: PolicyT
    restarts: int = 0  # to be made first


@dataclass(frozen=True)
class Piece(Generic[PolicyT, ContentT]):
    """A rollout that was collected."""

    task: RolloutTask[PolicyT]
    content: ContentT
    restarts: int = 0  # that were made, those that were asked for included


class Order(Protocol):
    """Decides when an actor may go on, and what makes the next batch."""

    def admit(self, ledger: Ledger[PolicyT, ContentT], actor: int, number: int) -> tuple[int, int] | None:
        """Version and restarts of an actor's next rollout, or None as long as it must wait."""
        ...

    def batch(self, ledger: Ledger[PolicyT, ContentT]) -> list[Piece[PolicyT, ContentT]] | None:
        """What the next update learns from, or None as long as it is not there."""
        ...


class Ledger(Generic[PolicyT, ContentT]):
    """What K actors and the learner agree on; every method may be called from any thread."""

    def __init__(self, actors: int, lag: int, order: Order, updates: int, update: int = 0) -> None:
        """`updates` of the run in all, of which the first `update` were made before."""
        self.actors, self.lag, self.order, self.updates = actors, lag, order, updates
        self.version = update  # newest
        self.update = update  # the next one that takes a batch
        self.open: dict[tuple[int, int], RolloutTask[PolicyT]] = {}  # being collected
        self.done: dict[tuple[int, int], Piece[PolicyT, ContentT]] = {}  # not used yet, in the order in which they came
        self.actors_waited = 0.0  # seconds, of all together
        self.learner_waited = 0.0
        self._policies: dict[int, PolicyT] = {}
        self._changed = threading.Condition()
        self._ended = False
        self._fault: RunError | None = None

    def publish(self, version: int, policy: PolicyT) -> None:
        """A policy that actors may use; those that nobody may use any more are forgotten."""
        with self._changed:
            self._policies[version] = policy
            self.version = max(self.version, version)
            for old in [v for v in self._policies if v < self.version - self.lag]:
                del self._policies[old]
            self._changed.notify_all()

    def next_task(self, actor: int, number: int) -> RolloutTask[PolicyT] | None:
        """What an actor shall do next, as soon as it may; None when all is over."""
        clock = time.perf_counter()
        with self._changed:
            while not self._ended:
                admitted = self.order.admit(self, actor, number)
                if admitted is not None and admitted[0] in self._policies:
                    version, restarts = admitted
                    task = RolloutTask(actor, number, version, self._policies[version], restarts)
                    self.open[actor, number] = task
                    self.actors_waited += time.perf_counter() - clock
                    return task
                self._changed.wait(LOOK)
        return None

    def withdraw(self, task: RolloutTask[PolicyT]) -> None:
        """A rollout that will not come."""
        with self._changed:
            self.open.pop((task.actor, task.number), None)
            self._changed.notify_all()

    def deliver(self, piece: Piece[PolicyT, ContentT]) -> None:
        with self._changed:
            place = piece.task.actor, piece.task.number
            del self.open[place]
            self.done[place] = piece
            self._changed.notify_all()

    def draw(self, is_stopped: Callable[[], bool] = lambda: False) -> list[Piece[PolicyT, ContentT]] | None:
        """The K rollouts of the next update, as soon as they are there; None if it was stopped before."""
        clock = time.perf_counter()
        with self._changed:
            while True:
                if self._fault is not None:
                    raise self._fault
                pieces = self.order.batch(self)
                if pieces is not None:
                    break
                if is_stopped():
                    return None
                self._changed.wait(LOOK)
            for piece in pieces:
                age = self.update - piece.task.version
                if not 0 <= age <= self.lag:
                    raise AssertionError(f"a rollout {age} updates old, where {self.lag} are allowed: {piece.task}")
                del self.done[piece.task.actor, piece.task.number]
            self.update += 1
            self.learner_waited += time.perf_counter() - clock
            self._changed.notify_all()
            return pieces

    def fail(self, fault: RunError) -> None:
        """An actor gave up: the learner is told."""
        with self._changed:
            self._fault = fault
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def has_ended(self) -> bool:
        return self._ended


class FreeOrder:
    """Whoever is first: actors take the newest policy, and a batch is made of what came first, as far as the bound
    allows.

    A rollout of version v has to be used by update v + L at the latest. An actor begins one only if all that are not
    used yet can be: K places in each update. And a batch passes over a rollout only if there will be places for it.
    """

    def admit(self, ledger: Ledger[PolicyT, ContentT], actor: int, number: int) -> tuple[int, int] | None:
        until = min(ledger.version + ledger.lag + 1, ledger.updates)
        places = ledger.actors * (until - ledger.update)
        return (ledger.version, 0) if len(ledger.open) + len(ledger.done) < places else None

    def batch(self, ledger: Ledger[PolicyT, ContentT]) -> list[Piece[PolicyT, ContentT]] | None:
        waiting, chosen = list(ledger.done.values()), []
        tasks = [*ledger.open.values(), *(piece.task for piece in waiting)]
        last = sorted(task.version + ledger.lag for task in tasks)  # updates that may use them
        for places in range(ledger.actors - 1, -1, -1):  # left in this update after the next choice
            latest = most_urgent(last, places, ledger.actors, ledger.update)
            piece = next((p for p in waiting if latest is None or p.task.version + ledger.lag <= latest), None)
            if piece is None:
                return None
            waiting.remove(piece)
            last.remove(piece.task.version + ledger.lag)
            chosen.append(piece)
        return chosen


def most_urgent(last: Sequence[int], places: int, actors: int, update: int) -> int | None:
    """Up to which last update rollouts are more than the places left for them, so that the next choice must be one of
    those; None if there is no such need."""
    for count, until in enumerate(last, start=1):
        if count > places + actors * (until - update):
            return until
    return None


class FixedOrder:
    """A function of the settings: update u learns from the rollout number u of each actor, by the policy of version
    u - L."""

    def admit(self, ledger: Ledger[PolicyT, ContentT], actor: int, number: int) -> tuple[int, int] | None:
        version = max(0, number - ledger.lag)
        return (version, 0) if version <= ledger.version and number < ledger.updates else None

    def batch(self, ledger: Ledger[PolicyT, ContentT]) -> list[Piece[PolicyT, ContentT]] | None:
        places = [(actor, ledger.update) for actor in range(ledger.actors)]
        return [ledger.done[place] for place in places] if all(place in ledger.done for place in places) else None


class RecordedOrder:
    """As in a run before, of which these are the entries."""

    def __init__(self, entries: Sequence[LedgerEntry]) -> None:
        self._of_rollout = {(entry.actor, entry.number): entry for entry in entries}
        self._of_update: dict[int, list[LedgerEntry]] = {}
        for entry in entries:
            self._of_update.setdefault(entry.update, []).append(entry)

    def admit(self, ledger: Ledger[PolicyT, ContentT], actor: int, number: int) -> tuple[int, int] | None:
        entry = self._of_rollout.get((actor, number))
        return None if entry is None or entry.version > ledger.version else (entry.version, entry.restarts)

    def batch(self, ledger: Ledger[PolicyT, ContentT]) -> list[Piece[PolicyT, ContentT]] | None:
        places = [(entry.actor, entry.number) for entry in self._of_update[ledger.update]]
        return [ledger.done[place] for place in places] if all(place in ledger.done for place in places) else None
