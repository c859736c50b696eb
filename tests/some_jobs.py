"""Jobs that take no time, fail, or end their process."""

import os
from dataclasses import dataclass

from isobatch.errors import RunError
from isobatch.executors.interface import Watch


@dataclass(frozen=True)
class Square:
    number: int

    def run(self, watch: Watch) -> tuple[int, int]:
        """The square, and who computed it."""
        watch(0.5)
        return self.number**2, os.getpid()


@dataclass(frozen=True)
class Fail(Square):
    expected: bool = True

    def run(self, watch: Watch) -> tuple[int, int]:
        raise RunError(f"{self.number} has no square.") if self.expected else KeyError(self.number)


@dataclass(frozen=True)
class Die(Square):
    def run(self, watch: Watch) -> tuple[int, int]:
        os._exit(9)
