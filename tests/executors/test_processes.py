"""Jobs in this process, and in several."""

import multiprocessing
import os
from contextlib import closing

import pytest
from some_jobs import Die, Fail, Square

from isobatch.errors import RunError
from isobatch.executors.processes import LocalProcesses


@pytest.mark.parametrize("processes", [1, 2])
def test_every_job_is_done_once(processes: int) -> None:
    seen: dict[int, list[float]] = {}
    results = dict(
        LocalProcesses(processes).run(
            [Square(number) for number in range(5)], lambda index, done: seen.setdefault(index, []).append(done)
        )
    )
    assert {index: square for index, (square, _) in results.items()} == {0: 0, 1: 1, 2: 4, 3: 9, 4: 16}
    assert seen == {index: [0.0, 0.5] for index in range(5)}
    workers = {worker for _, worker in results.values()}
    assert (workers == {os.getpid()}) == (processes == 1)


def test_more_processes_than_jobs_and_none_at_all() -> None:
    assert [result[0] for _, result in LocalProcesses(4).run([Square(3)], lambda *_: None)] == [9]
    assert list(LocalProcesses(2).run([], lambda *_: None)) == []


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        (Fail(2), "2 has no square."),
        (Fail(2, expected=False), "a job failed where it was done: KeyError: 2"),
        (Die(2), "a process with a job was killed"),
    ],
)
def test_a_job_that_fails_ends_all_with_its_sentence(job: Square, sentence: str) -> None:
    with pytest.raises(RunError, match=sentence):
        list(LocalProcesses(2).run([Square(1), job], lambda *_: None))
    assert not multiprocessing.active_children()


def test_whoever_stops_asking_ends_the_processes() -> None:
    with closing(LocalProcesses(2).run([Square(number) for number in range(9)], lambda *_: None)) as results:
        next(results)
    assert not multiprocessing.active_children()
