"""How many samples a score takes at other batches, from how many it took at some.

McCandlish et al. (2018), section 2.3 (https://arxiv.org/abs/1812.06162): with the best learning rate, a run on batches
of B samples needs S_min (1 + B/B_crit) samples for a result: so many samples however small B is, and so many gradient
steps however large. B_crit changes over training, so a run is cut into stages, each with its own. B is the optimization
batch. With E epochs every sample is used E times, at every batch alike, so the law is the same in environment steps.

It knows nothing of the iteration batch b = N T. An iteration moves the policy by a bounded amount, that of the clip
range or of the KL penalty (Schulman et al. 2017, https://arxiv.org/abs/1707.06347), so some number of iterations is
needed, too, however good their gradients are. Such needs add up, as those of samples and of gradient steps do:

    S = S_min (1 + B/B_crit) + I b.

How many iterations I a score takes is not seen in one run. Of a run that took K = S/b it is no more than K, and of one
with many small iterations no more than some I_max; in between 1/I = 1/I_max + 1/K, half of either where both are the
same. I_max is fitted: `benchmarks/planning_law.py`. Old data counts as larger iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from isobatch.statistics.bootstrap import Estimate

ITERATIONS = 16.0  # I_max
ITERATIONS_SPREAD = 0.36  # standard deviation of its logarithm over tasks


def least_samples(samples: ArrayLike, batch: float, critical_batch: ArrayLike) -> np.ndarray:
    """S_min of a stage that took `samples` at this batch: S / (1 + B/B_crit)."""
    return np.asarray(samples, float) / (1 + batch / np.asarray(critical_batch, float))


def samples_needed(least: ArrayLike, batch: float, critical_batch: ArrayLike) -> np.ndarray:
    """S(B) = S_min (1 + B/B_crit)."""
    return np.asarray(least, float) * (1 + batch / np.asarray(critical_batch, float))


def iterations_needed(taken: ArrayLike, most: ArrayLike = ITERATIONS) -> np.ndarray:
    """I of a run that took K iterations: 1/I = 1/I_max + 1/K."""
    return 1 / (1 / np.asarray(most, float) + 1 / np.asarray(taken, float))


@dataclass(frozen=True)
class Stage:
    """A part of the way to the score."""

    first: int
    """Environment steps of the run before it."""
    last: int
    critical_batch: Estimate
    source: str
    """Where its critical batch comes from, for a person."""

    @property
    def samples(self) -> int:
        """That the run took for it."""
        return self.last - self.first


@dataclass(frozen=True)
class Need:
    """What a run needed for its score, stage by stage, and what it would need at other batches."""

    stages: tuple[Stage, ...]
    batch: int
    """The run's own optimization batch."""
    delay: float
    """The environment steps by which the run's data is behind the policy that learns: its iteration batch, and lag."""

    @property
    def samples(self) -> int:
        """That the run took."""
        return sum(stage.samples for stage in self.stages)

    def at(self, batch: float, delay: float) -> float:
        """Samples at another optimization batch and delay."""
        return float(self.drawn(batch, delay, self.critical_batches(), np.array([ITERATIONS]))[0])

    def drawn(self, batch: float, delay: float, critical_batches: np.ndarray, most: np.ndarray) -> np.ndarray:
        """The same [draws] for critical batches [draws, stages] and I_max [draws]."""
        iterations = iterations_needed(self.samples / self.delay, most)
        shares = np.array([stage.samples for stage in self.stages], float) / self.samples
        taken = shares * (self.samples - iterations * self.delay)[:, None]
        least = least_samples(taken, self.batch, critical_batches)
        return samples_needed(least, batch, critical_batches).sum(axis=-1) + iterations * delay

    def critical_batches(self) -> np.ndarray:
        """[1, stages]"""
        return np.array([[stage.critical_batch.value for stage in self.stages]])

    @property
    def smallest_critical(self) -> float:
        """The critical batch of the stage that has the smallest."""
        return min(stage.critical_batch.value for stage in self.stages)

    def ratio(self, batch: float, delay: float) -> float:
        """Samples at another batch and delay, in units of the run's own."""
        return self.at(batch, delay) / self.samples


def drawn_values(estimates: Sequence[Estimate], draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draws [draws, estimates] of positive quantities: log-normal, with the ends of their intervals at 2 deviations.

    An end that is not known or not finite is as far away as the other one. The first draw is the values themselves.
    """
    values = np.array([each.value for each in estimates], float)
    spreads = np.array([log_spread(each) for each in estimates])
    drawn = values * np.exp(spreads * rng.standard_normal((draws, len(values))))
    drawn[0] = values
    return drawn


def log_spread(estimate: Estimate) -> float:
    """Standard deviation of the logarithm, from a 95 % interval; 0 without one."""
    low, high = estimate.low, estimate.high
    sides = [abs(np.log(end / estimate.value)) for end in (low, high) if np.isfinite(end) and end > 0]
    return float(np.mean(sides)) / 1.96 if sides else 0.0
