"""The bound on the lag holds whoever is fast or slow, dies or comes back, and nobody waits for ever."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isobatch.errors import RunError
from isobatch.rollouts.actors.ledger import (
    FixedOrder,
    FreeOrder,
    Ledger,
    LedgerEntry,
    Order,
    Piece,
    RecordedOrder,
    RolloutTask,
    most_urgent,
)

UPDATES = 40


def simulated(order: Order, actors: int, lag: int, luck: random.Random, deaths: float = 0.0) -> list[LedgerEntry]:
    """A run without threads: each event is that of an actor or of the learner, drawn at random; who was used when."""
    ledger = Ledger(actors, lag, order, UPDATES)
    ledger.publish(0, "policy 0")
    numbers, speeds = [0] * actors, [luck.choice([0.02, 0.3, 1.0]) for _ in range(actors)]
    busy, learning, entries = {}, None, []
    for _ in range(200_000):
        if ledger.version == UPDATES:
            return entries
        actor = luck.randrange(actors + 1)
        if actor == actors:  # the learner: begins an update, or has computed one
            if learning is not None:
                ledger.publish(learning + 1, f"policy {learning + 1}")
                learning = None
            elif order.batch(ledger) is not None:
                learning = ledger.update
                pieces = ledger.draw()
                assert pieces is not None
                assert len(pieces) == actors
                entries += [LedgerEntry(learning, p.task.actor, p.task.number, p.task.version) for p in pieces]
        elif actor in busy:
            if luck.random() < deaths:
                ledger.withdraw(busy.pop(actor))
            elif luck.random() < speeds[actor]:
                ledger.deliver(Piece(busy.pop(actor), None))
                numbers[actor] += 1
        elif (admitted := order.admit(ledger, actor, numbers[actor])) and admitted[0] <= ledger.version:
            task = ledger.next_task(actor, numbers[actor])
            assert task is not None
            assert task.policy == f"policy {task.version}"
            assert len(ledger.open) + len(ledger.done) <= actors * (lag + 1)  # the queue does not grow
            busy[actor] = task
    raise AssertionError(f"nothing moves: {ledger.open}, {ledger.done}")


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(0, 5), st.integers(0, 10**6), st.sampled_from([0.0, 0.05]))
def test_no_rollout_is_used_older_than_the_bound_and_none_twice(actors: int, lag: int, seed: int, deaths: float):
    entries = simulated(FreeOrder(), actors, lag, random.Random(seed), deaths)
    assert max(entry.update - entry.version for entry in entries) <= lag
    assert min(entry.update - entry.version for entry in entries) >= 0
    assert len({(entry.actor, entry.number) for entry in entries}) == len(entries) == UPDATES * actors
    for actor in range(actors):  # in the order in which they were collected
        own = [entry.number for entry in entries if entry.actor == actor]
        assert own == list(range(len(own)))


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(0, 4), st.integers(0, 10**6))
def test_what_was_recorded_is_repeated_whoever_is_fast_now(actors: int, lag: int, seed: int):
    entries = simulated(FreeOrder(), actors, lag, random.Random(seed))
    assert simulated(RecordedOrder(entries), actors, lag, random.Random(seed + 1)) == entries


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_the_fixed_order_is_a_function_of_the_settings(lag: int):
    expected = [LedgerEntry(u, k, u, max(0, u - lag)) for u in range(UPDATES) for k in range(3)]
    for seed in range(5):
        assert simulated(FixedOrder(), 3, lag, random.Random(seed)) == expected


def test_fast_actors_are_used_more_often():
    """With leave to be late, a slow actor does not hold up the others."""
    entries = simulated(FreeOrder(), 3, 5, random.Random(0))
    used = [sum(entry.actor == actor for entry in entries) for actor in range(3)]
    assert max(used) > 2 * min(used)


def test_a_batch_waits_for_what_would_get_too_old():
    """Of two actors with lag 1: rollout 0 of actor 0 is begun by version 0, and must be in update 1 at the latest."""
    ledger = Ledger(2, 1, FreeOrder(), UPDATES)
    ledger.publish(0, "0")
    slow = ledger.next_task(0, 0)
    assert slow is not None
    for number in range(2):
        task = ledger.next_task(1, number)
        assert task is not None
        ledger.deliver(Piece(task, None))
    assert ledger.draw() is not None  # both are of actor 1
    ledger.publish(1, "1")
    for number in (2, 3):
        task = ledger.next_task(1, number)
        assert task is not None
        ledger.deliver(Piece(task, None))
    assert ledger.draw(lambda: True) is None  # two are there, but not the one that is due
    ledger.deliver(Piece(slow, None))
    pieces = ledger.draw()
    assert pieces is not None
    assert slow in [piece.task for piece in pieces]


def test_most_urgent_by_counting():
    """Two places in each update from 10 on: three that update 10 must use are one too many."""
    assert most_urgent([10, 10, 11], places=1, actors=2, update=10) == 10
    assert most_urgent([10, 11, 11, 11], places=1, actors=2, update=10) == 11
    assert most_urgent([10, 11, 11], places=1, actors=2, update=10) is None


def test_a_rollout_that_is_too_old_is_never_handed_out():
    """Should the rules above ever fail, the learner does not learn from it."""

    class Careless(FreeOrder):
        def batch(self, ledger: Ledger) -> list[Piece] | None:
            return list(ledger.done.values())[:1]

    ledger = Ledger(1, 0, Careless(), UPDATES)
    ledger.done |= {(0, number): Piece(RolloutTask(0, number, 0, "0"), None) for number in range(2)}
    ledger.draw()
    with pytest.raises(AssertionError, match="1 updates old, where 0 are allowed"):
        ledger.draw()


def test_the_learner_learns_that_an_actor_gave_up():
    ledger = Ledger(1, 0, FreeOrder(), UPDATES)
    ledger.fail(RunError("it failed"))
    with pytest.raises(RunError, match="it failed"):
        ledger.draw()
    ledger.end()
    assert ledger.next_task(0, 0) is None
