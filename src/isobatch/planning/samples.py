"""How many samples a score takes at other batches, from how many it took at some.

McCandlish et al. (2018), section 2.3 (https://arxiv.org/abs/1812.06162): with the best learning rate, a run on batches
of B samples needs S = S_min (1 + B/B_crit) samples for a result, in S/B gradient steps. B_crit changes over training,
so a run is cut into stages, each with its own. B is the optimization batch. With E epochs every sample is used E
times, at every batch alike, so the law is the same in environment steps; S_min is then that of E epochs.

The law knows nothing of the iteration batch b = N T. While an iteration is collected its policy does not improve, so
the data that teaches is always about b steps behind. Growth at a rate r with a delay b, p'(s) = r p(s - b), is
exponential with the rate W(r b)/b, W being Lambert's function (Corless et al. 1996,
https://doi.org/10.1007/BF02124750): what S_0 steps would do without delay takes

    S = n b / W(n b / S_0),    so    S_0 = S exp(-n b / S),

with n = r S_0, how often the policy improves e-fold on its way. That n is not known; it is set here (`FOLDS`). Large b
cost about n / log(n b / S_0) iterations each, however good their gradients are. Old data only adds to the delay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import lambertw

from isobatch.statistics.bootstrap import Estimate

FOLDS = 6.0  # n; ours: between what CartPole (less) and Acrobot (more) took where their iteration batch grew fourfold


def least_samples(samples: ArrayLike, batch: float, critical_batch: ArrayLike) -> np.ndarray:
    """S_min of a stage that took `samples` at this batch: S / (1 + B/B_crit)."""
    return np.asarray(samples, float) / (1 + batch / np.asarray(critical_batch, float))


def samples_needed(least: ArrayLike, batch: float, critical_batch: ArrayLike) -> np.ndarray:
    """S(B) = S_min (1 + B/B_crit)."""
    return np.asarray(least, float) * (1 + batch / np.asarray(critical_batch, float))


def without_delay(samples: ArrayLike, delay: float) -> np.ndarray:
    """S_0 = S exp(-n b / S)."""
    taken = np.asarray(samples, float)
    return taken * np.exp(-FOLDS * delay / taken)


def with_delay(samples: ArrayLike, delay: float) -> np.ndarray:
    """S = n b / W(n b / S_0)."""
    behind = FOLDS * delay
    return behind / lambertw(behind / np.asarray(samples, float)).real


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
        return float(self.drawn(batch, delay, self.critical_batches())[0])

    def drawn(self, batch: float, delay: float, critical_batches: np.ndarray) -> np.ndarray:
        """The same [draws] for critical batches [draws, stages]."""
        shares = np.array([stage.samples for stage in self.stages], float) / self.samples
        taken = shares * without_delay(self.samples, self.delay)
        free = samples_needed(least_samples(taken, self.batch, critical_batches), batch, critical_batches).sum(axis=-1)
        return with_delay(free, delay)

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
