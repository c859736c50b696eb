"""Chains, batches and episodes of environments that step outside JAX, collected as training collects them.

They cannot be copied. What a return comes to behind the end of a chain is measured once, by letting the same
environments play on; and nothing can be seen behind a time limit, where the value function stands in.
"""

from __future__ import annotations

import abc
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Protocol, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from isobatch.envs.host_interface import HostEnvironment
from isobatch.errors import UsageError
from isobatch.laboratory.chains import Chains, begins, horizon_of, next_in_row, num_groups, scaled
from isobatch.laboratory.partial_results import ANEW, NOTHING_KEPT, MadePiece, PartialResults, Piece, named, taken
from isobatch.laboratory.source import Draw, median_seconds
from isobatch.learning.state import TrainState
from isobatch.rollouts.host_rollout import replaced
from isobatch.rollouts.player import Played, PolicyPlayer, Standing
from isobatch.rollouts.segment import Segment
from isobatch.rollouts.staleness import seen_dtype
from isobatch.settings.config import Config

T = TypeVar("T")
AFTERWARDS = ("reward", "terminated", "truncated", "next_value")
LONGEST_WAIT = 1000  # steps after a reset, at most, that stand for the time limit: some games have limits of hours
ROWS = 64  # that environments are run for between two looks at what is still missing
SIDE_BY_SIDE = 128  # environments that run at a time
SILENCE = 10.0  # seconds between two words on how far a collection is
PROCESSES = 16  # those that have a process each: so many, or as many as the run has


class SegmentPlayer(Protocol):
    """A policy at play in environments that run while the context is open."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @property
    def standing(self) -> Standing: ...

    @property
    def lost(self) -> bool: ...

    def go_on(self, standing: Standing) -> None: ...

    def play(self) -> Played: ...

    def nothing_played(self) -> Played: ...

    def segment(self, played: Played) -> Segment: ...


class OutsideSource(abc.ABC):
    """`Source` of environments of Gymnasium and EnvPool, whoever acts in them."""

    config: Config
    env: HostEnvironment
    tell: Callable[[str], None]  # how far a collection is, now and then
    sets_clocks = False
    cheap_steps = 200_000

    @abc.abstractmethod
    def _player(self, steps: int, num_envs: int, key: Key[Array, ""]) -> SegmentPlayer:
        """The policy, for so many steps of so many environments at a time."""

    @abc.abstractmethod
    def _learned(self, reward: Array) -> Array:
        """Rewards as the learner sees them."""

    @property
    def time_limit(self) -> int:
        return min(self.env.max_steps or LONGEST_WAIT, LONGEST_WAIT)

    @property
    def known_limit(self) -> int:
        return self.env.max_steps

    @property
    def obs_bytes(self) -> int:
        """In the buffer it is collected in, and on the device."""
        return 2 * np.dtype(seen_dtype(self.config, self.env)).itemsize * math.prod(self.env.obs_shape)

    @property
    def width(self) -> int:
        """Environments that run at a time."""
        return max(self.config.num_envs, PROCESSES) if self.env.in_processes else SIDE_BY_SIDE

    def chains(self, count: int, length: int, seed: int, parts: PartialResults = NOTHING_KEPT) -> Chains:
        """The environments run on after the end of their chains, until an episode ends or the rest is negligible."""
        groups = num_groups(self.time_limit, length)
        passed = begins(self.time_limit, groups, count)
        most = length + horizon_of(self.config.hypers.gamma, self.time_limit)
        columns = self._record(passed, length, most, length - 1, jax.random.key(seed), parts, "chains")
        segment = self._as_learned(columns.segment)
        at_limits = segment.next_value if self.config.bootstrap else jnp.zeros_like(segment.value)
        true_next = jnp.where(segment.truncated, at_limits, next_in_row(self.config, segment.value))
        done = (segment.terminated | segment.truncated)[-1]
        true_next = true_next.at[-1].set(jnp.where(done, true_next[-1], self._returns(columns)))
        return Chains(segment, true_next, groups)

    def batches(
        self, num_envs: int, num_steps: int, drawn: Draw, first: int = 0, parts: PartialResults = NOTHING_KEPT,
        name: str = "collected",
    ) -> Iterator[Segment]:  # fmt: skip
        """As many at a time as there may be environments: they need not wait for each other."""
        ages = (np.asarray(drawn.age) * self.time_limit).astype(int)
        at_a_time = max(1, self.width // num_envs)
        begins = range(first - first % at_a_time, len(ages), at_a_time) if first < len(ages) else ()
        for begin in begins:
            passed = np.repeat(ages[begin : begin + at_a_time], num_envs)
            columns = self._record(passed, num_steps, num_steps, num_steps, drawn.key[begin], parts, f"{name}-{begin}")
            segment = self._as_learned(columns.segment)
            for one in range(max(first - begin, 0), len(passed) // num_envs):
                which = slice(one * num_envs, (one + 1) * num_envs)
                yield jax.tree.map(lambda leaf, which=which: leaf[:, which], segment)
            for turn in range(-(-len(passed) // self.width)):
                parts.drop(f"{name}-{begin}-{turn}")

    def episodes(self, count: int, horizon: int, seed: int, parts: PartialResults = NOTHING_KEPT) -> Segment:
        columns = self._record(np.zeros(count, int), horizon, horizon, 0, jax.random.key(seed), parts, "episodes")
        return self._as_learned(columns.segment)

    def seconds(self, num_envs: int, num_steps: int) -> float:
        """Steps cost the same at any time, so a few tell; more environments than run at a time would take turns."""
        envs, steps = min(num_envs, self.width), min(num_steps, ROWS)
        with self._player(steps, envs, jax.random.key(0)) as player:
            taken = median_seconds(lambda: player.segment(player.play()))
        return taken * (num_envs / envs) * (num_steps / steps)

    def _record(
        self, passed: Int[np.ndarray, " C"], kept: int, most: int, least: int, key: Key[Array, ""],
        parts: PartialResults, name: str,
    ) -> Columns:  # fmt: skip
        """Columns of environments that were reset `passed` rows before; some of them at a time."""
        columns = Columns(passed, kept, most, least)
        for turn, begin in enumerate(range(0, len(passed), self.width)):
            part = slice(begin, min(begin + self.width, len(passed)))
            player = partial(self._player, ROWS, part.stop - begin, jax.random.fold_in(key, turn))
            for piece in parts.pieces(f"{name}-{turn}", partial(self._play, columns, part, player)):
                if not piece:
                    columns.forget(part)
                elif any(leaf.startswith("segment/") for leaf in piece):
                    if columns.like is None:  # of a piece that was kept: nobody plays yet
                        columns.like = player().segment(player().nothing_played())
                    columns.store(int(piece["end"]) - ROWS, taken(columns.like, piece, "segment"), part)
        return columns

    def _play(
        self, columns: Columns, part: slice, player_of: Callable[[], SegmentPlayer], count: int, last: MadePiece | None
    ) -> Iterator[Piece]:
        """ROWS rows of some environments at a time: what is needed of them, and where they stand then.

        Environments that cannot be brought to where they stood begin anew.
        """
        if not columns.missing(part).any():
            return
        player, first, spoken = player_of(), 0, time.monotonic()
        if last is not None:
            first = int(last["end"])
            player.go_on(taken(player.standing, last, "standing"))
        with ExitStack() as running:
            if not player.lost:
                running.enter_context(player)
            while not player.lost and columns.missing(part).any():
                played, piece = player.play(), dict[str, np.ndarray]()
                needed = columns.missing(part) & (columns.passed[part] < first + ROWS)
                if needed.any():  # else nobody wants the values of its states
                    columns.like = player.segment(played)
                    piece = named(columns.like, "segment")
                first += ROWS
                yield piece | named(player.standing, "standing") | {"end": np.array(first)}
                if time.monotonic() - spoken > SILENCE:
                    spoken = time.monotonic()
                    which = f"environments {part.start + 1:,} to {part.stop:,} of {len(columns.passed):,}"
                    end = int(columns.passed[part].max()) + columns.most
                    self.tell(f"{which}, step {min(first, end):,} of at most {end:,}")
        if player.lost:
            yield ANEW
            yield from self._play(columns, part, player_of, 0, None)

    def _as_learned(self, segment: Segment) -> Segment:
        return replaced(segment, reward=self._learned(segment.reward))

    def _returns(self, columns: Columns) -> Float[Array, " C"]:
        """Discounted returns of the steps after a chain; the value function stands for what follows them."""
        config, gamma = self.config, self.config.hypers.gamma
        reward, terminated, truncated, value = (jnp.asarray(leaf) for leaf in columns.after)
        value = value if config.baseline else jnp.zeros_like(value)
        at_limits = value if config.bootstrap else jnp.zeros_like(value)

        def earlier(later: Array, step: tuple[Array, ...]) -> tuple[Array, None]:
            reward, terminated, truncated, at_limit = step
            rest = jnp.where(terminated, 0.0, jnp.where(truncated, at_limit, later))
            return reward + gamma * rest, None

        steps = (self._learned(reward), terminated, truncated, at_limits)
        return jax.lax.scan(earlier, value[-1], steps, reverse=True)[0]


@dataclass(frozen=True)
class HostSource(OutsideSource):
    """A policy of a run of this package."""

    config: Config
    env: HostEnvironment
    state: TrainState
    env_timeout: float
    tell: Callable[[str], None] = lambda detail: None

    def __post_init__(self) -> None:
        if self.config.staggered_resets:
            raise UsageError(
                f"staggered_resets=True sets the clock of an environment, and that of {self.config.env} cannot be "
                "set: drop it."
            )

    def _player(self, steps: int, num_envs: int, key: Key[Array, ""]) -> PolicyPlayer:
        clip, size = self.config.hypers.obs_clip, (steps, num_envs)
        networks, moments = self.state.networks, self.state.obs_moments
        return PolicyPlayer(self.env, self.config.env, networks, moments, clip, size, key, self.env_timeout)

    def _learned(self, reward: Array) -> Array:
        return scaled(self.config, self.state, reward)


class Columns:
    """`kept` steps of each environment, and what returns need of the steps after them, up to `most` in all.

    Environments run side by side; where some reset in a step of their own, their rows fall out of step. Here each is a
    column of real steps from a time of its own on, one after another, without the rows that are no steps.

    An environment is not needed any longer when it has as many, or when an episode has ended at step `least` or later.
    """

    def __init__(self, passed: Int[np.ndarray, " C"], kept: int, most: int, least: int) -> None:
        self.passed, self.kept, self.most, self.least = passed, kept, most, least
        self.like: Segment | None = None  # what is stored looks like this
        self.count: np.ndarray = np.zeros(len(passed), int)
        self._ended: np.ndarray = np.zeros(len(passed), bool)
        self._segment: Segment | None = None  # made when the shapes are known
        self._after: tuple[np.ndarray, ...] = ()

    def store(self, first: int, segment: Segment, part: slice) -> None:
        """Rows `first`, `first` + 1, ... of the environments `part`."""
        segment = jax.tree.map(np.asarray, segment)
        if self._segment is None:
            self._segment = self._buffer(replaced(segment, valid=None), self.kept)
            self._after = self._buffer(tuple(getattr(segment, name) for name in AFTERWARDS), self.most)
        real = np.ones(segment.reward.shape, bool) if segment.valid is None else segment.valid
        time = first + np.arange(len(real))[:, None]
        real = real & (time >= self.passed[part])
        place = self.count[part] + np.cumsum(real, axis=0) - 1  # of each real row in its column
        done = segment.terminated | segment.truncated
        self._write(self._segment, replaced(segment, valid=None), real & (place < self.kept), place, part)
        after = tuple(getattr(segment, name) for name in AFTERWARDS)
        self._write(self._after, after, real & (place < self.most), place, part)
        self._ended[part] |= (real & done & (place >= self.least)).any(axis=0)
        self.count[part] += real.sum(axis=0)

    def forget(self, part: slice) -> None:
        """The rows of the environments `part`: they begin anew."""
        self.count[part], self._ended[part] = 0, False
        for leaf in jax.tree.leaves((self._segment, self._after)):
            leaf[:, part] = 0

    def missing(self, part: slice) -> Bool[np.ndarray, " N"]:
        """Which of the environments `part` are still needed."""
        return ~(self._ended[part] | (self.count[part] >= self.most))

    @property
    def segment(self) -> Segment:
        """[L, C]: the steps that are kept, up to the last one that any environment has."""
        longest = min(int(self.count.max()), self.kept)
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[:longest]), self._segment)

    @property
    def after(self) -> tuple[np.ndarray, ...]:
        """AFTERWARDS [most - kept, C]: of the steps after those that are kept."""
        return tuple(leaf[self.kept :] for leaf in self._after)

    def _buffer(self, tree: T, rows: int) -> T:
        return jax.tree.map(lambda leaf: np.zeros((rows, len(self.passed), *leaf.shape[2:]), leaf.dtype), tree)

    def _write(
        self, buffer: PyTree, tree: PyTree, which: Bool[np.ndarray, "T N"], place: Int[np.ndarray, "T N"], part: slice
    ) -> None:
        rows, columns = np.nonzero(which)
        for into, leaf in zip(jax.tree.leaves(buffer), jax.tree.leaves(tree), strict=True):
            into[place[rows, columns], part.start + columns] = leaf[rows, columns]
