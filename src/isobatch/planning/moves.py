"""Settings at another geometry, by the rules of `rescaling`, and what speaks against them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from isobatch.errors import UsageError
from isobatch.planning.samples import Need
from isobatch.rescaling import MINIBATCH_SIZE, choose_rules, rescale
from isobatch.rescaling.cautions import cautions, critical_batch_size
from isobatch.settings.config import Config
from isobatch.settings.geometry import Sizes


@dataclass(frozen=True)
class Shape(Sizes):
    """N x T in M minibatches, on D devices, with data up to `lag` iterations old."""

    devices: int = 1
    lag: int = 0

    @property
    def delay(self) -> int:
        """Environment steps by which data is behind the policy that learns from it."""
        return (1 + self.lag) * self.iteration_batch

    @property
    def name(self) -> str:
        return f"{self.num_envs} x {self.num_steps}"

    def doublings(self, other: Shape) -> float:
        """How many doublings and halvings of N, T, M and D lie between the two."""
        names = ("num_envs", "num_steps", "num_minibatches", "devices")
        return sum(_log_ratio(getattr(self, name), getattr(other, name)) for name in names) + abs(self.lag - other.lag)

    def distance(self, other: Shape) -> float:
        """The same, and those of both batches: what leaves them as they are relies on no rule."""
        batches = ("iteration_batch", "optimization_batch")
        return self.doublings(other) + sum(_log_ratio(getattr(self, b), getattr(other, b)) for b in batches)


def _log_ratio(one: int, other: int) -> float:
    return abs(math.log2(one / other))


def shape_of(config: Config) -> Shape:
    return Shape(config.num_envs, config.num_steps, config.num_minibatches, 1, config.lag_iterations)


def moved(config: Config, shape: Shape, samples: float) -> Config:
    """`config` at another shape, for so many environment steps; UsageError where that cannot be had.

    First both batches follow the optimization batch, the number of minibatches held, and the hyperparameters with them;
    then the iteration batch alone, the minibatches held. N and T share it as the shape says. With a lag there are as
    many actors as the run has, or two.
    """
    n, t, m = shape.sizes
    if n * t % m:
        raise UsageError(f"num_minibatches={m} does not divide {n} x {t} samples.")
    after, batch = config.replace(actors=0, max_lag=0), shape.optimization_batch
    if batch != config.geometry.optimization_batch:
        envs = batch * config.num_minibatches / t
        if envs != int(envs):
            raise UsageError(f"an optimization batch of {batch} cannot be had with {t} steps: use fewer.")
        after = rescale(after, num_envs=int(envs), num_steps=t).after
    if (after.num_envs, after.num_steps) != (n, t):
        after = rescale(after, num_envs=n, num_steps=t, keep=MINIBATCH_SIZE).after
    if shape.lag:
        actors = config.actors or (2 if n % 2 == 0 else 1)
        after = after.replace(actors=actors, max_lag=shape.lag * shape.iteration_batch)
    return after.replace(total_timesteps=whole_run(after, samples))


def whole_run(config: Config, samples: float) -> int:
    """Environment steps of the iterations, and phases, that hold so many samples."""
    phase = config.policy_iterations_per_phase or 1
    batch = config.geometry.iteration_batch
    updates = max(1, math.ceil(samples / batch - config.staleness - 1e-9))
    return (math.ceil(updates / phase) * phase + config.staleness) * batch


def what_speaks_against(config: Config, after: Config, need: Need) -> tuple[str, ...]:
    """The cautions of `rescale`, in its words, with the smallest critical batch of all stages; but for the one that
    says what a batch near it costs, which the samples of the plan know, stage by stage."""
    names = [rule.name for rule in choose_rules(config, (), ())]
    critical = need.smallest_critical
    counted = critical_batch_size(config, after, critical)
    return tuple(each for each in cautions(config, after, names, critical) if each != counted)
