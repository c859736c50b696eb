"""Time to the score at many shapes: samples needed x seconds of a sample, each with what is not known of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from isobatch.planning.devices import Link
from isobatch.planning.moves import Shape
from isobatch.planning.samples import ITERATIONS, ITERATIONS_SPREAD, Need, drawn_values
from isobatch.planning.seconds import Origin, Seconds
from isobatch.statistics.bootstrap import Estimate, percentile_interval

DRAWS = 1000


@dataclass(frozen=True)
class Forecast:
    """Of one shape."""

    shape: Shape
    samples: float
    """Environment steps to the score."""
    seconds: Estimate
    """To the score, with a 95 % interval."""
    collecting: float
    """Seconds of an iteration."""
    learning: float
    origin: Origin
    """Whether the seconds of its iterations were measured."""

    @property
    def steps_per_second(self) -> float:
        return self.samples / self.seconds.value


@dataclass(frozen=True)
class Forecaster:
    """What is known of a run and of the machine; `at` says what follows for a shape."""

    need: Need
    seconds: Seconds
    link: Link
    parameters: int
    run_spread: float
    """Of the samples that the run took, over seeds: standard deviation of the logarithm. Common to all shapes."""
    seed: int = 0

    def at(self, shape: Shape) -> Forecast:
        """With an interval."""
        drawn = self.drawn(shape)
        return dataclasses.replace(self.quick(shape), seconds=percentile_interval(float(drawn[0]), drawn[1:]))

    def quick(self, shape: Shape) -> Forecast:
        """Without one, to search among many."""
        collect, learn = self.parts(shape)
        iteration = max(collect, learn) if shape.lag else collect + learn
        samples = self.need.at(shape.optimization_batch, shape.delay)
        seconds = Estimate(samples * iteration / shape.iteration_batch)
        origin = self.seconds.origin(shape)
        return Forecast(shape, samples, seconds, collect, learn, origin)

    def parts(self, shape: Shape) -> tuple[float, float]:
        """Seconds of collecting and of learning, in an iteration."""
        sums = self.link.sum_seconds(shape.devices, self.parameters)
        return self.seconds.parts(shape, sums)

    def drawn(self, shape: Shape) -> np.ndarray:
        """Seconds to the score [DRAWS], the first one without any error. Draws of two shapes belong together: critical
        batches, iterations and the run's own luck are the same in both, errors of their seconds are not."""
        common = np.random.default_rng(self.seed)
        critical = drawn_values([stage.critical_batch for stage in self.need.stages], DRAWS, common)
        luck = np.exp(self.run_spread * common.standard_normal(DRAWS))
        iterations = ITERATIONS * np.exp(ITERATIONS_SPREAD * common.standard_normal(DRAWS))
        noise = np.random.default_rng([self.seed, *shape.sizes, shape.devices, shape.lag])
        error = np.exp(self.seconds.spread(shape) * noise.standard_normal(DRAWS))
        luck[0], error[0], iterations[0] = 1.0, 1.0, ITERATIONS
        known = self.quick(shape)
        samples = self.need.drawn(shape.optimization_batch, shape.delay, critical, iterations)
        return luck * error * known.seconds.value * samples / known.samples

    def chance(self, shape: Shape, others: Iterable[Shape], within: float) -> float:
        """Share of the draws in which a shape is at most so much slower than the fastest of all."""
        mine = self.drawn(shape)
        fastest = np.min([mine, *(self.drawn(other) for other in others)], axis=0)
        return float(np.mean(mine <= (1 + within) * fastest))


def grid(current: Shape, devices: int = 1, lag: int = 0, wider: int = 0) -> list[Shape]:
    """Doublings and halvings of the run's N, T and M; `wider` doublings more of N, for several devices."""
    envs = doublings(current.num_envs, -6, 6 + wider)
    shapes = [
        Shape(n, t, m, devices, lag)
        for n in envs
        for t in doublings(current.num_steps, -6, 3)
        for m in doublings(current.num_minibatches, -5, 5)
        if n * t % m == 0 and n % devices == 0 and n * t // m >= devices
    ]
    return [shape for shape in shapes if shape.optimization_batch > 1]


def doublings(size: int, least: int, most: int) -> list[int]:
    """size x 2^k for k from `least` to `most`, where that is whole."""
    return [int(size * 2.0**k) for k in range(least, most + 1) if (size * 2.0**k).is_integer()]


def choose(forecasts: Iterable[Forecast], current: Shape, fits: Callable[[Shape], bool], tie: float) -> Forecast | None:
    """The fastest that fits, if one does; of those that are within `tie` of it the one nearest to the run's own."""
    ordered = sorted(forecasts, key=lambda each: each.seconds.value)
    best, limit = None, math.inf
    for each in ordered:
        if each.seconds.value > limit:
            break
        if fits(each.shape):
            if best is None:
                best, limit = each, (1 + tie) * each.seconds.value
            elif each.shape.distance(current) < best.shape.distance(current):
                best = each
    return best
