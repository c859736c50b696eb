"""The gradient noise scale of McCandlish et al. (2018), appendix A: S/|G|^2, the critical batch size.

A batch of B samples has E|G_B|^2 = |G|^2 + S/B, with S the trace of the covariance of one sample. In reinforcement
learning samples of a trajectory are correlated, so trajectories are the independent units and S is that of a sample
which comes in whole trajectories.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from isobatch.errors import UsageError
from isobatch.gradients.layout import square
from isobatch.gradients.variance import direct
from isobatch.statistics.bootstrap import Estimate, estimate, pair_mean, ratio


class Arithmetic(Protocol):
    """A float, or an array of any framework."""

    def __rmul__(self, factor: float, /) -> Self: ...

    def __sub__(self, other: Self, /) -> Self: ...

    def __truediv__(self, divisor: float, /) -> Self: ...


Number = TypeVar("Number", bound=Arithmetic)


@dataclass(frozen=True)
class NoiseScale:
    """|G|^2, S, and S/|G|^2 in samples: infinite where the gradient cannot be told from its noise.

    |G|^2 is unbiased and may fall below 0; no end of an interval does.
    """

    signal: Estimate
    noise: Estimate
    critical_batch: Estimate


def two_batch_sizes(
    small_squared_norm: Number, big_squared_norm: Number, small: float, big: float
) -> tuple[Number, Number]:
    """|G|^2 = (b |G_b|^2 - s |G_s|^2)/(b - s) and S = (|G_s|^2 - |G_b|^2)/(1/s - 1/b) for batches of s < b samples.

    Both are unbiased; average each over time before taking their ratio. Numbers or arrays, of any framework.
    """
    if not 0 < small < big:
        raise UsageError(f"small = {small} and big = {big}: give two batch sizes with 0 < small < big")
    signal = (big * big_squared_norm - small * small_squared_norm) / (big - small)
    return signal, (small_squared_norm - big_squared_norm) / (1 / small - 1 / big)


def noise_scale(unit_gram: ArrayLike, samples_per_unit: float, resamples: int = 1000, seed: int = 0) -> NoiseScale:
    """The noise scale S/|G|^2, the critical batch size in samples, from mean gradients G_u of independent trajectories.

    McCandlish et al. (2018), appendix A, https://arxiv.org/abs/1812.06162, with trajectories of b samples as the
    independent units: |G|^2 = mean_(u != v) G_u . G_v, and S = b (mean_u |G_u|^2 - |G|^2).

    Args:
        unit_gram: inner products of the G_u [U, U].
        samples_per_unit: b.
        resamples: of the bootstrap over units; 0 leaves intervals out.
        seed: of the bootstrap.

    Returns:
        `signal` |G|^2, `noise` S and `critical_batch` S/|G|^2, each with an interval.

    Example:
        >>> import isobatch as ib
        >>> scale = ib.gradients.noise_scale(ib.gradients.gram_of([[1.0], [3.0]]), samples_per_unit=6, resamples=0)
        >>> scale.signal.value, scale.noise.value, scale.critical_batch.value
        (3.0, 12.0, 4.0)
    """
    gram, b = square(unit_gram), samples_per_unit
    if b <= 0:
        raise UsageError(f"samples_per_unit = {b}: give the number of samples in a trajectory, 1 or more")
    variance = direct(gram)
    of = partial(estimate, units=len(gram), resamples=resamples, seed=seed, least=0.0)
    return NoiseScale(
        signal=of(lambda w: pair_mean(gram, w)),
        noise=of(lambda w: b * variance(w)),
        critical_batch=of(lambda w: ratio(b * variance(w), pair_mean(gram, w), otherwise=np.inf)),
    )


def smooth(signals: ArrayLike, traces: ArrayLike, decay: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Running |G|^2, S and S/|G|^2, each mean sum_s decay^(t-s) x_s / sum_s decay^(t-s), the ratio last.

    Numerator and denominator are averaged apart, since a mean of ratios would be biased and may divide by zero:
    McCandlish et al. (2018), appendix A, https://arxiv.org/abs/1812.06162.

    Args:
        signals: |G|^2 of each step [steps].
        traces: S of each step [steps].
        decay: from 0, each step alone, up to 1.

    Returns:
        The three running values, each [steps].

    Example:
        >>> import isobatch as ib
        >>> signal, noise, critical_batch = ib.gradients.smooth([1.0, 3.0], [4.0, 4.0], decay=0.5)
        >>> [round(float(value), 3) for value in (signal[-1], noise[-1], critical_batch[-1])]
        [2.333, 4.0, 1.714]
    """
    if not 0 <= decay < 1:
        raise UsageError(f"decay = {decay}: give a number from 0 up to, but not including, 1")
    weight, sums, running = 0.0, np.zeros(2), []
    for step in np.stack([np.asarray(signals, dtype=np.float64), np.asarray(traces, dtype=np.float64)], axis=-1):
        weight, sums = decay * weight + 1, decay * sums + step
        running.append(sums / weight)
    signal, noise = np.reshape(running, (-1, 2)).T
    return signal, noise, ratio(noise, signal, otherwise=np.inf)
