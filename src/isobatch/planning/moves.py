"""Settings at another geometry, by the rules of `rescaling`, and what speaks against them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from isobatch.errors import UsageError
from isobatch.planning.samples import Need
from isobatch.rescaling import MINIBATCH_SIZE, choose_rules, rescale
from isobatch.rescaling.cautions import cautions
from isobatch.settings.config import Config


@dataclass(frozen=True)
class Shape:
    """N x T in M minibatches, on D devices, with data up to `lag` iterations old."""

    num_envs: int
    num_steps: int
    num_minibatches: int
    devices: int = 1
    lag: int = 0

    @property
    def iteration_batch(self) -> int:
        return self.num_envs * self.num_steps

    @property
    def optimization_batch(self) -> int:
        return self.iteration_batch // self.num_minibatches

    @property
    def name(self) -> str:
        return f"{self.num_envs} x {self.num_steps}"

    def distance(self, other: Shape) -> float:
        """How many doublings lie between the two."""
        mine = self.num_envs, self.num_steps, self.num_minibatches, self.devices
        others = other.num_envs, other.num_steps, other.num_minibatches, other.devices
        return sum(abs(math.log2(a / b)) for a, b in zip(mine, others, strict=True)) + abs(self.lag - other.lag)


def shape_of(config: Config) -> Shape:
    return Shape(config.num_envs, config.num_steps, config.num_minibatches, 1, config.lag_iterations)


def moved(config: Config, shape: Shape, samples: float) -> Config:
    """`config` at another shape, for so many environment steps; UsageError where that cannot be had.

    First both batches follow the optimization batch, the number of minibatches held, and the hyperparameters with them;
    then the iteration batch alone, the minibatches held. N and T share it as the shape says.
    """
    n, t, m = shape.num_envs, shape.num_steps, shape.num_minibatches
    if n * t % m:
        raise UsageError(f"num_minibatches={m} does not divide {n} x {t} samples.")
    after, batch = config, shape.optimization_batch
    if batch != config.geometry.optimization_batch:
        envs = batch * config.num_minibatches / t
        if envs != int(envs):
            raise UsageError(f"an optimization batch of {batch} cannot be had with {t} steps: use fewer.")
        after = rescale(config, num_envs=int(envs), num_steps=t).after
    if (after.num_envs, after.num_steps) != (n, t):
        after = rescale(after, num_envs=n, num_steps=t, keep=MINIBATCH_SIZE).after
    after = with_lag(after, shape.lag)
    return after.replace(total_timesteps=whole_run(after, samples))


def with_lag(config: Config, lag: int) -> Config:
    """With actors that may be so many iterations behind, as many as the run has, or two; without any for 0."""
    if not lag:
        return config.replace(actors=0, max_lag=0)
    actors = config.actors or (2 if config.num_envs % 2 == 0 else 1)
    return config.replace(actors=actors, max_lag=lag * config.geometry.iteration_batch)


def whole_run(config: Config, samples: float) -> int:
    """Environment steps of the iterations, and phases, that hold so many samples."""
    phase = config.policy_iterations_per_phase or 1
    batch = config.geometry.iteration_batch
    updates = max(1, math.ceil(samples / batch - config.staleness - 1e-9))
    return (math.ceil(updates / phase) * phase + config.staleness) * batch


def what_speaks_against(config: Config, after: Config, need: Need) -> tuple[str, ...]:
    """The cautions of `rescale`, in its words, with the smallest critical batch of all stages."""
    names = [rule.name for rule in choose_rules(config, (), ())]
    same = config.geometry.optimization_batch == after.geometry.optimization_batch
    critical = None if same else min(stage.critical_batch.value for stage in need.stages)
    return cautions(config, after, names, critical)
