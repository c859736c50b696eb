"""What to measure of a policy, and how well."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated

from isobatch.errors import UsageError, check_constructor
from isobatch.laboratory.sections import ALL, SECTIONS
from isobatch.settings.fields import COUNT, COUNT_OR_0, POSITIVE, SEED, UNIT, check_ranges
from isobatch.settings.geometry import divisors
from isobatch.statistics.bootstrap import LEAST_FOR_INTERVAL

LONGEST_ROLLOUT = 2048  # steps, that `auto` proposes
LONGEST_CHAIN = 4 * LONGEST_ROLLOUT
UNITS = replace(COUNT, low=LEAST_FOR_INTERVAL, why=": an error bar needs so many independent ones")


@check_constructor
@dataclass(frozen=True)
class LabOptions:
    budget: Annotated[
        int,
        COUNT_OR_0,
        "Samples of a batch, divided into environments and steps in many ways; 0: as many as the run's own.",
    ] = 0
    geometries: Annotated[
        str, "NxT,NxT,... to compare, each of `budget` samples; auto: from 1 x budget to budget x 1."
    ] = "auto"
    lambdas: Annotated[
        tuple[float, ...], UNIT, "Values of gae_lambda to compare, besides the run's own."
    ] = (0.0, 0.5, 0.9, 0.95, 0.99, 1.0)  # fmt: skip
    chains: Annotated[
        int,
        UNITS,
        "Independent environments to measure on, each as long as the longest rollout; error bars shrink with its root. "
        "Rounded up to two for each start time, where rollouts are shorter than the time limit.",
    ] = 128
    batches: Annotated[int, UNITS, "Independent batches for what is measured directly."] = 32
    direct: Annotated[
        int, COUNT_OR_0, "Geometries whose variance is also measured on whole batches, besides the run's; 0: none."
    ] = 4
    horizon: Annotated[
        int,
        COUNT_OR_0,
        "Steps within which whole episodes must end, for the comparison of aggregations; 0: the time limit.",
    ] = 0
    branch_factors: Annotated[
        tuple[float, ...], POSITIVE, "Sizes of both batches to branch into, as multiples of the run's."
    ] = (0.25, 1.0, 4.0, 16.0, 64.0)  # fmt: skip
    branch_samples: Annotated[
        int, COUNT_OR_0, "Environment steps of each branch; 0: about a quarter of the run."
    ] = 0  # fmt: skip
    branch_seeds: Annotated[int, UNITS, "Seeds on which every batch size is trained."] = 8
    branch_episodes: Annotated[int, COUNT, "Episodes that judge a policy of a branch, four times on its way."] = 32
    sections: Annotated[
        str,
        "What to measure: all, which is all but branches (they train), or some of "
        "geometries,lambdas,lags,cosines,minibatches,trust-region,aggregations,branches.",
    ] = "all"
    measure_seed: Annotated[int, SEED, "Seed of everything that is drawn while measuring."] = 0

    def __post_init__(self) -> None:
        check_ranges(self)
        for name in self.chosen:
            if name not in SECTIONS:
                raise UsageError(f"sections={name!r} is unknown: use all, or some of {', '.join(SECTIONS)}.")

    @property
    def chosen(self) -> tuple[str, ...]:
        if self.sections == "all":
            return ALL
        return tuple(word.strip() for word in self.sections.split(","))


def geometries_of(options: LabOptions, num_envs: int, num_steps: int) -> list[tuple[int, int]]:
    """(N, T) to compare, many environments first, for a run whose own geometry is given."""
    budget = options.budget or num_envs * num_steps
    if options.geometries == "auto":
        return automatic(budget, (num_envs, num_steps))
    shapes = []
    for word in options.geometries.split(","):
        envs, _, steps = word.strip().lower().partition("x")
        if not (envs.isdigit() and steps.isdigit() and int(envs) and int(steps)):
            raise UsageError(f"geometries={word!r} is not valid: use environments x steps, for example 4x256,16x64.")
        if int(envs) * int(steps) != budget:
            near = min(divisors(budget), key=lambda n: abs(n - int(envs)))
            raise UsageError(
                f"geometries={word!r} has {int(envs) * int(steps)} samples and not the budget of {budget}: "
                f"use {near}x{budget // near}, or budget={int(envs) * int(steps)}."
            )
        shapes.append((int(envs), int(steps)))
    return sorted(set(shapes), key=lambda g: g[1])


def automatic(budget: int, geometry: tuple[int, int]) -> list[tuple[int, int]]:
    """Rollouts of 1 step and up, each at least twice as long as the one before; and the run's own geometry."""
    lengths = [steps for steps in doubling(budget) if steps <= LONGEST_ROLLOUT]
    if geometry[0] * geometry[1] == budget and geometry[1] not in lengths:
        lengths.append(geometry[1])
    return [(budget // steps, steps) for steps in sorted(lengths)]


def doubling(number: int) -> list[int]:
    """Divisors from 1 up, each at least twice the one before."""
    chosen: list[int] = []
    for divisor in divisors(number):
        if not chosen or divisor >= 2 * chosen[-1]:
            chosen.append(divisor)
    return chosen


def chain_length(geometries: list[tuple[int, int]]) -> int:
    """Steps that every rollout length divides."""
    length = math.lcm(*(steps for _, steps in geometries))
    if length > LONGEST_CHAIN:
        raise UsageError(
            f"geometries={','.join(f'{n}x{t}' for n, t in geometries)} have rollouts that fit together only after "
            f"{length} steps: choose lengths that divide each other, up to {LONGEST_CHAIN}."
        )
    return length
