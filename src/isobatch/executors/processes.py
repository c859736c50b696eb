"""Jobs done on this machine: in this process, one after the other, or in several processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait

from isobatch.errors import RunError, UsageError
from isobatch.executors.interface import Failure, Job, ResultT, WatchAll, attempt
from isobatch.executors.process_count import check_process_count
from isobatch.executors.signals import ENDING


@dataclass(frozen=True)
class LocalProcesses:
    """One process is this one. More pay off where jobs do not keep all cores busy, as while they compile."""

    processes: int = 1
    shares_files = True

    def __post_init__(self) -> None:
        if self.processes < 1:
            raise UsageError(f"processes={self.processes} must be at least 1.")

    @property
    def places(self) -> int:
        return self.processes

    def run(self, jobs: Sequence[Job[ResultT]], watch: WatchAll) -> Generator[tuple[int, ResultT]]:
        if self.processes > 1:
            yield from spread(jobs, watch, self.processes)
            return
        for index, job in enumerate(jobs):
            watch(index, 0.0)
            yield index, job.run(partial(watch, index))


def spread(jobs: Sequence[Job[ResultT]], watch: WatchAll, processes: int) -> Generator[tuple[int, ResultT]]:
    """Each process gets the next job when it is done with one. They are not forked, since JAX has threads.

    They are killed, not asked to end: a job that compiles or steps environments would be long in answering, and what it
    leaves behind is what any kill leaves.
    """
    processes = min(processes, len(jobs))
    check_process_count(f"processes={processes}", processes)
    context = multiprocessing.get_context("spawn")
    waiting, workers = deque(range(len(jobs))), {}
    try:
        for _ in range(processes):
            here, there = context.Pipe()
            worker = context.Process(target=serve, args=(there,))
            with deaf_to_signals():
                worker.start()
            there.close()  # so that the end of the process ends the connection
            workers[here] = worker
            here.send((waiting[0], jobs[waiting.popleft()]))
        busy = len(workers)
        while busy:
            for connection in wait(list(workers)):
                assert isinstance(connection, Connection)
                try:
                    index, message = connection.recv()
                except (EOFError, OSError):
                    code = workers[connection].exitcode
                    raise RunError(
                        f"a process with a job was killed (exit code {code}), perhaps for want of memory: lower "
                        "processes, and run the same command again; what was finished is kept."
                    ) from None
                if isinstance(message, float):
                    watch(index, message)
                    continue
                if isinstance(message, Failure):
                    raise message.error
                yield index, message
                if waiting:
                    connection.send((waiting[0], jobs[waiting.popleft()]))
                else:
                    busy -= 1
    finally:
        for connection, worker in workers.items():
            connection.close()
            worker.kill()
            worker.join()


@contextmanager
def deaf_to_signals() -> Iterator[None]:
    """Processes that are started now are, also for what they start: the one that sends jobs answers, for all of them.

    Ctrl-C reaches all processes, and so do the SIGTERM of a batch system and the end of a terminal. The sender gets
    those of this time afterwards.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_sender() -> None:
    """Wait for the end of the process that sends jobs, however it ends, and end this one in the middle of a job."""
    sender = multiprocessing.parent_process()
    assert sender is not None
    wait([sender.sentinel])
    os._exit(1)


def serve(connection: Connection) -> None:
    """A process that does jobs until nobody sends any."""
    threading.Thread(target=end_with_sender, daemon=True).start()
    with suppress(EOFError, OSError):  # the other end is gone
        while True:
            index, job = connection.recv()

            def watch(done: float, index: int = index) -> None:
                try:
                    connection.send((index, float(done)))
                except OSError:
                    raise SystemExit(1) from None

            watch(0.0)
            connection.send((index, attempt(job, watch)))
