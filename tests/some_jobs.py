"""Jobs that take no time, fail, end their process, or never report. As a script: the last kind in two processes."""

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import gymnasium

from isobatch.envs.guard import Recipe, guarded
from isobatch.errors import RunError
from isobatch.executors.interface import Watch
from isobatch.executors.processes import LocalProcesses


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


@dataclass(frozen=True)
class Sleep:
    """Like a program that compiles for a minute; a trainer too answers the signal in its own time."""

    folder: str

    def run(self, watch: Watch) -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)
        (Path(self.folder) / str(os.getpid())).touch()
        while True:
            time.sleep(60)


@dataclass(frozen=True)
class StepInAThread:
    """As a rollout does: an environment of Gymnasium, made by a thread that collects."""

    def run(self, watch: Watch) -> bool:
        spaces = gymnasium.spaces.Box(-9, 9, (4,)), gymnasium.spaces.Discrete(2)
        recipe = Recipe(lambda: gymnasium.make("CartPole-v1"), *spaces)
        with ThreadPoolExecutor() as pool:
            env = pool.submit(guarded, recipe, 0, [0]).result()
        env.reset(seed=0)
        return bool(env.step(1)[2])


if __name__ == "__main__":
    try:
        list(LocalProcesses(2).run([Sleep(sys.argv[1])] * 2, lambda *_: None))
    except KeyboardInterrupt:
        sys.exit(130)
