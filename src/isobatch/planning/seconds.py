"""From measured seconds to those of any geometry: straight lines between what was measured.

An iteration of N environments, T steps, M minibatches of B = N T / M samples and E epochs takes

    T c(N) + E M g(B) seconds,

with c(N) the seconds in which all N environments make one step, and g(B) those of a gradient step, to which everything
is counted that is not collecting (advantages, shuffling). Both are measured at some sizes and straight lines between
them: a + b N and a + b B piece by piece. On D devices each has N / D environments and B / D samples of a minibatch, and
every gradient step ends with a sum over them (`devices`). Actors that collect meanwhile: max in place of the sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from isobatch.planning.moves import Shape
from isobatch.planning.timing import Timed

Origin = Literal["measured", "interpolated", "extrapolated"]
INTERPOLATION_SPREAD = 0.1  # standard deviation of the logarithm of seconds that were not measured: ours
EXTRAPOLATION_SPREAD = 0.3


@dataclass(frozen=True)
class Line:
    """Seconds measured at some sizes, smallest first, and straight lines between them.

    A smaller size never takes longer than a larger one: where it was found to, something else had kept it waiting.
    """

    sizes: tuple[float, ...]
    seconds: tuple[float, ...]

    @classmethod
    def through(cls, points: Mapping[float, float]) -> Line:
        sizes = sorted(points)
        seconds = np.minimum.accumulate([points[size] for size in reversed(sizes)])[::-1]
        return cls(tuple(sizes), tuple(seconds.tolist()))

    def at(self, size: float) -> float:
        """Beyond the ends the last piece goes on; never less than half of the smallest that was measured."""
        sizes, seconds = np.array(self.sizes), np.array(self.seconds)
        if len(sizes) == 1:
            return float(seconds[0] * max(1.0, size / sizes[0]))
        piece = int(np.clip(np.searchsorted(sizes, size) - 1, 0, len(sizes) - 2))
        slope = (seconds[piece + 1] - seconds[piece]) / (sizes[piece + 1] - sizes[piece])
        return float(max(seconds[piece] + slope * (size - sizes[piece]), seconds.min() / 2))

    def origin(self, size: float) -> Origin:
        if any(np.isclose(size, each) for each in self.sizes):
            return "measured"
        return "interpolated" if self.sizes[0] <= size <= self.sizes[-1] else "extrapolated"


@dataclass(frozen=True)
class Seconds:
    """Of iterations of any geometry."""

    collecting: Line
    """c(N)"""
    learning: Line
    """g(B)"""
    epochs: int
    whole: tuple[Timed, ...]
    """Iterations that were timed as a whole."""

    @classmethod
    def of(cls, collecting: Mapping[float, float], timed: Sequence[Timed]) -> Seconds:
        """g(B) from what collecting leaves of whole iterations; the mean where several have the same B. Collecting is a
        part of an iteration: where it was found to take longer, it had been kept waiting."""
        bounds: dict[float, float] = dict(collecting)
        for each in timed:
            if each.num_envs in bounds:
                bounds[each.num_envs] = min(bounds[each.num_envs], each.seconds / each.num_steps)
        line, by_batch = Line.through(bounds), dict[float, list[float]]()
        for each in timed:
            rest = max(each.seconds - each.num_steps * line.at(each.num_envs), 0.05 * each.seconds)
            by_batch.setdefault(each.optimization_batch, []).append(rest / (each.epochs * each.num_minibatches))
        learning = Line.through({batch: float(np.mean(seconds)) for batch, seconds in by_batch.items()})
        return cls(line, learning, timed[0].epochs, tuple(timed))

    def measured(self, shape: Shape) -> Timed | None:
        """The whole iteration, if it was."""
        return next((t for t in self.whole if t.sizes == shape.sizes), None) if shape.devices == 1 else None

    def parts(self, shape: Shape, sum_seconds: float = 0.0) -> tuple[float, float]:
        """Seconds of collecting and of learning, in an iteration."""
        collect = shape.num_steps * self.collecting.at(shape.num_envs / shape.devices)
        learn = self.epochs * shape.num_minibatches * (self.learning.at(self._batch(shape)) + sum_seconds)
        timed = self.measured(shape)
        if timed is not None:  # the parts share what the whole was found to take
            share = timed.seconds / (collect + learn)
            return collect * share, learn * share
        return collect, learn

    def origin(self, shape: Shape) -> Origin:
        """Measured as a whole; else interpolated if its parts were, inside of what was measured."""
        if self.measured(shape) is not None:
            return "measured"
        ends = self.collecting.origin(shape.num_envs / shape.devices), self.learning.origin(self._batch(shape))
        return "extrapolated" if "extrapolated" in ends else "interpolated"

    def spread(self, shape: Shape) -> float:
        """Standard deviation of the logarithm."""
        timed = self.measured(shape)
        if timed is not None:
            return timed.spread
        return INTERPOLATION_SPREAD if self.origin(shape) == "interpolated" else EXTRAPOLATION_SPREAD

    @staticmethod
    def _batch(shape: Shape) -> float:
        """Samples of a minibatch on one device."""
        return shape.iteration_batch / shape.num_minibatches / shape.devices
