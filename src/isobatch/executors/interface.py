"""Where the jobs of a grid are done: one interface, whoever does them.

A job is a picklable object of an importable class: it is sent to where it is done, and its result comes back. Jobs do
not know each other, so they may be done in any order, at the same time, and again if a machine is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from isobatch.errors import RunError, UsageError, first_line

Watch = Callable[[float], None]  # gets the part of a job that is done
WatchAll = Callable[[int, float], None]  # gets the index of a job and the part of it that is done
ResultT = TypeVar("ResultT")
Result = TypeVar("Result", covariant=True)


class Job(Protocol[Result]):
    """One piece of work."""

    def run(self, watch: Watch) -> Result: ...


class Executor(Protocol):
    """Does the jobs of a grid."""

    @property
    def shares_files(self) -> bool:
        """Whether jobs see the files of this machine; if not, what they leave has to be in their results."""
        ...

    @property
    def places(self) -> int:
        """How many jobs are done at once, for whoever decides how many to ask for."""
        ...

    def run(self, jobs: Sequence[Job[ResultT]], watch: WatchAll) -> Generator[tuple[int, ResultT]]:
        """Do all jobs: yields the index and the result of each as soon as it is done.

        The first job that fails ends it with that job's error; what was yielded before is not affected. Closing the
        generator stops what is being done.
        """
        ...


@dataclass(frozen=True)
class Failure:
    """How a job ended badly, as another process can be told."""

    error: Exception


def attempt(job: Job[ResultT], watch: Watch) -> ResultT | Failure:
    """Do a job in a process that is there for it. Errors that may not survive pickling become a sentence."""
    try:
        return job.run(watch)
    except (UsageError, RunError, MemoryError) as error:
        return Failure(error)
    except Exception as error:
        return Failure(RunError(f"a job failed where it was done: {type(error).__name__}: {first_line(error)}"))
