"""One actor: a thread that collects rollout after rollout, here or elsewhere, and is replaced where it fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from isobatch.errors import RunError
from isobatch.formatting import Say, counted
from isobatch.rollouts.acting import Policy
from isobatch.rollouts.actors.interface import Backend, PolicyVersion
from isobatch.rollouts.actors.ledger import Ledger, Piece, RolloutTask
from isobatch.rollouts.collected import CollectedRollout
from isobatch.rollouts.collector import AnyArray, GroupKeys
from isobatch.rollouts.replay import new_episodes
from isobatch.rollouts.segment import EnvCarry, EpisodeSums, Segment

MOST_FAILURES = 5  # in a row, after which an actor is not replaced again
APART = 1_000_000  # between the numbers of episodes before and after a restart, where these are seeds


class Standing(NamedTuple):
    """Where an actor stands between two rollouts."""

    envs: EnvCarry
    key: Array  # [S]
    number: int  # of its next rollout
    discounted: AnyArray  # [S, n], discounted returns in progress


class Content(NamedTuple):
    """A rollout as the learner gets it, and where it left the actor."""

    segment: Segment
    episodes: EpisodeSums
    obs: Array | None  # as they came, where a normalizer learns from them
    after: Standing


class Functions(Protocol):
    """What a rollout of an actor goes through in the learner's process."""

    def keys_of(self, key: Array, actor: int) -> tuple[Array, GroupKeys]:
        """The key after this rollout's, and one for each group of environments."""
        ...

    def digest(
        self, policy: Policy, before: Standing, key: Array, envs: EnvCarry, rollout: CollectedRollout
    ) -> Content:
        """With values, counted episodes and discounted returns."""
        ...


class ActorLoop:
    """A thread of its own."""

    def __init__(
        self,
        index: int,
        ledger: Ledger[PolicyVersion, Content],
        make: Callable[[int], Backend],
        standing: Standing,
        replays: bool,
        say: Say,
    ) -> None:
        """`replays`: whether episodes can be had again from seeds and actions."""
        self.index, self._ledger, self._make = index, ledger, make
        self.standing, self._replays, self._say = standing, replays, say
        self.backend = make(index)
        self.restarts = 0
        self._failures = 0
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Start the environments where they stood. What fails twice is no accident."""
        before = self.standing
        try:
            envs = self.opened(before.envs, before.number)
        except RunError:
            self.backend.close()
            self.backend = self._make(self.index)
            envs = self.opened(before.envs, before.number)
        self.standing = before._replace(envs=envs)

    def opened(self, envs: EnvCarry, number: int) -> EnvCarry:
        after = self.backend.open(envs, number, self._say)
        return jax.tree.map(np.asarray, after)

    def start(self, functions: Functions) -> None:
        self._functions = functions
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"actor {self.index}")
        self._thread.start()

    def interrupt(self) -> None:
        """After the ledger has ended."""
        self.backend.interrupt()

    def close(self, patience: float) -> None:
        """After `interrupt`; a step of an environment may take so many seconds."""
        if self._thread is not None:
            self._thread.join(patience)
        self.backend.close()

    def _run(self) -> None:
        try:
            while (task := self._ledger.next_task(self.index, self.standing.number)) is not None:
                self._do(task)
        except RunError as error:
            self._ledger.fail(error)
        except Exception as error:
            self._ledger.fail(RunError(f"actor {self.index} failed ({type(error).__name__}: {error})."))

    def _do(self, task: RolloutTask[PolicyVersion]) -> None:
        """Collect what was asked for, or be replaced and ask again."""
        try:
            for _ in range(task.restarts - self.restarts):
                self._replace()
            content = self._collected(task)
        except RunError as error:
            self._ledger.withdraw(task)
            if self._ledger.has_ended:
                return
            self._failures += 1
            if self._failures > MOST_FAILURES:
                times = f"{self._failures} times in a row"
                raise RunError(f"actor {self.index} failed {times}. The last time: {error}") from None
            envs = counted(self.standing.envs.episodes.length.shape[1], "environment")
            self._say(f"actor {self.index} is replaced, and its {envs} start new episodes: {error}")
            self._replace_until_it_starts(error)
            return
        self._failures, self.standing = 0, content.after
        self._ledger.deliver(Piece(task, content, self.restarts))
        self.restarts = 0

    def _collected(self, task: RolloutTask[PolicyVersion]) -> Content:
        before, published = self.standing, task.policy
        key, keys = self._functions.keys_of(before.key, self.index)
        envs, rollout = self.backend.collect(before.envs, task.version, published, keys, before.number)
        return self._functions.digest(published.policy, before, key, envs, rollout)

    def _replace_until_it_starts(self, error: RunError) -> None:
        while True:
            try:
                return self._replace()
            except RunError as again:
                self._failures += 1
                if self._failures > MOST_FAILURES or self._ledger.has_ended:
                    raise RunError(f"{error} It could not be started again: {again}") from None

    def _replace(self) -> None:
        """With new environments in new episodes."""
        self.backend.close()
        self.backend = self._make(self.index)
        self.restarts += 1
        envs = self.standing.envs
        everyone = np.ones(envs.episodes.counts.shape, bool)
        # Where episodes cannot be had again, new seeds come from the number that it is opened with.
        number = 0 if self._replays else self.standing.number + APART * self.restarts
        self.standing = self.standing._replace(
            envs=self.opened(new_episodes(envs, everyone), number),
            discounted=jnp.zeros_like(self.standing.discounted),
        )
