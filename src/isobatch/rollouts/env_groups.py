"""The environments of a run in groups that step by turns: all of them together, or two halves, of each shard."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isobatch.envs.host_interface import HostEnvironment, Vector, VectorStep, episode_seed


@dataclass(frozen=True)
class LocalEnvs:
    """The environments of a seed that step in this process."""

    count: int
    first: int = 0  # number of the first one, in the run
    shards: int = 1  # that they are, equal ones


def group_columns(env: HostEnvironment, num_envs: int, shards: int = 1) -> list[slice]:
    """Which of the N environments of a seed step together: those of a shard.

    Two groups where environments step while Python does something else, so that the policy can act for one in the
    meantime. Always so, whether it does or not: groups have random keys of their own.
    """
    width = num_envs // shards
    if env.in_parallel and width % 2 == 0:
        width //= 2
    return [slice(start, start + width) for start in range(0, num_envs, width)]


@dataclass
class EnvGroup:
    """The same columns of all S seeds, in one vector of S x n environments."""

    vector: Vector
    columns: slice
    seeds: np.ndarray  # [S], of the runs
    obs: np.ndarray  # [S, n, ...], to act on next
    first: int  # number in the run of what is column 0 here
    awaited: bool = False  # while an answer is waited for; also when there will be none

    @classmethod
    def open(
        cls, env: HostEnvironment, columns: slice, seeds: np.ndarray, episode: np.ndarray, first: int = 0
    ) -> EnvGroup:
        """Environments for these episodes [S, N], which a reset begins."""
        begin = episode_seeds(seeds, columns, episode, np.ones_like(episode, bool), first)
        return cls(env.open(begin), columns, seeds, np.empty(0), first)

    def reset(self, episode: np.ndarray, which: np.ndarray) -> None:
        """Begin these episodes [S, N] in the environments that `which` [S, N] names."""
        mine = which[:, self.columns].reshape(-1)
        if mine.any():
            self.awaited = True
            seeds = episode_seeds(self.seeds, self.columns, episode, which, self.first)
            self.obs = self.by_seed(self.vector.reset(seeds, mine))
            self.awaited = False

    def send(self, actions: np.ndarray) -> None:
        """Actions [S, n, ...]."""
        self.awaited = True
        self.vector.send(actions.reshape(-1, *actions.shape[2:]))
        self.awaited = False

    def receive(self) -> VectorStep:
        """Where the actions led; arrays [S, n, ...]."""
        self.awaited = True
        step = self.vector.receive()
        self.awaited = False
        self.obs = self.by_seed(step.obs)
        reward, terminated, truncated = (self.by_seed(x) for x in (step.reward, step.terminated, step.truncated))
        return VectorStep(self.obs, reward, terminated, truncated, step.final)

    def by_seed(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(len(self.seeds), -1, *array.shape[1:])

    def place(self, index: int) -> tuple[int, int]:
        """Seed's place and number of the environment at this place of the vector."""
        width = self.columns.stop - self.columns.start
        return index // width, self.first + self.columns.start + index % width


def episode_seeds(
    seeds: np.ndarray, columns: slice, episode: np.ndarray, which: np.ndarray, first: int = 0
) -> list[int]:
    """Seeds of the episodes that begin; 0 in other places, since a seed takes as long as a step of a small one."""
    return [
        episode_seed(int(seed), first + n, int(episode[s, n])) if which[s, n] else 0
        for s, seed in enumerate(seeds)
        for n in range(columns.start, columns.stop)
    ]
