"""Jobs in this process, and in several."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import some_jobs
from some_jobs import Die, Fail, Square, StepInAThread

from isobatch.errors import RunError
from isobatch.executors.processes import LocalProcesses


def test_jobs_may_step_environments_of_gymnasium() -> None:
    """A thread of theirs makes them, and only the main thread of a process may set what a signal does."""
    results = LocalProcesses(2).run([StepInAThread()], lambda index, done: None)
    assert dict(results) == {0: False}


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


def until(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_processes_end_with_the_one_that_sends_jobs(sent: signal.Signals, tmp_path: Path) -> None:
    """In the middle of a job that does not report; Ctrl-C reaches all of them at once, and only the sender answers."""
    words = [sys.executable, str(Path(some_jobs.__file__)), str(tmp_path)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert until(lambda: len(list(tmp_path.iterdir())) == 2, 120)
        workers = [int(path.name) for path in tmp_path.iterdir()]
        assert all(map(is_alive, workers))
        if sent == signal.SIGINT:
            os.killpg(process.pid, sent)
        else:
            process.send_signal(sent)
        assert until(lambda: not any(map(is_alive, workers)), 30)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    assert process.returncode == (130 if sent == signal.SIGINT else -sent)


def is_alive(pid: int) -> bool:
    """Whether a process is there and not only waiting to be told off its parent's list."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
