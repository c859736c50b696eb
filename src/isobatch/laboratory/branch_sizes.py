"""Into which batch sizes a run can branch, and for how many samples.

Both batches follow the number of environments; rates and all else follow by `rescaling`. A size that does not work, or
of which the branch would have too few iterations, is left out with a sentence that says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from isobatch.errors import UsageError
from isobatch.laboratory.options import LabOptions
from isobatch.laboratory.subject import NotMeasurableError
from isobatch.rescaling import rescale
from isobatch.settings.config import Config
from isobatch.settings.schedules import ADAPTIVE, ranges_at, schedule_of

FEWEST_ITERATIONS = 2  # of a branch: with one alone there is no policy that has learned from its own data
SHARE_OF_RUN = 0.25  # that a branch is as long as, unless its length is given
MOST_OF_RUN = 0.5  # that a branch may be to include its largest batch, unless its length is given
MEASURED_STEPS = 16  # gradient steps, at least, from which the optimizer's moments are measured before a branch
ITERATIONS = 2**20  # of the configs: more than any branch has, so that its length does not decide the program


@dataclass(frozen=True)
class BranchSize:
    """One batch size."""

    factor: float  # of the run's
    config: Config
    before: int  # iterations in which nothing is learned: the optimizer's moments are measured, queues and phases fill

    @property
    def name(self) -> str:
        return f"x{self.factor:g}"

    @property
    def batch(self) -> int:
        """Environment steps of an iteration."""
        return self.config.geometry.iteration_batch

    @property
    def unit(self) -> int:
        """Environment steps of which a branch is a multiple: an iteration, or a phase."""
        return self.config.geometry.phase_batch or self.batch


@dataclass(frozen=True)
class BranchPlan:
    sizes: tuple[BranchSize, ...]  # ascending
    samples: int  # environment steps of each branch
    left_out: tuple[str, ...]


def base_config(config: Config, iteration: int) -> Config:
    """The run's settings as they are at an iteration, for training by turns in this process.

    Schedules stop where they are: they depend on the length of a run, which a branch has not.
    """
    if config.lag_iterations:
        raise NotMeasurableError(
            f"Branches are trained by turns, and actors={config.actors} with max_lag={config.max_lag} is not: measure "
            "a run without max_lag."
        )
    rate = config.hypers.learning_rate * float(schedule_of(config.lr_schedule)(iteration / config.num_iterations))
    if rate <= 0:
        raise NotMeasurableError(
            f"The learning rate is {rate:g} after {iteration} iterations (lr_schedule={config.lr_schedule}), so that "
            "nothing would be learned in any branch: measure an earlier checkpoint."
        )
    schedule = ADAPTIVE if config.lr_schedule == ADAPTIVE else "constant"
    ranges = ranges_at(config, config.hypers, iteration / config.num_iterations)
    config = config.replace(**ranges, clip_schedule="constant", value_clip_schedule="constant")
    return config.replace(
        lr_schedule=schedule, learning_rate=rate, noise_scale=False, vectorization="sync", actors=0, max_lag=0
    )


def branch_plan(config: Config, iteration: int, options: LabOptions) -> BranchPlan:
    """Sizes and samples for a run at an iteration; NotMeasurableError unless there are two sizes to compare."""
    base = base_config(config, iteration)
    sizes, left_out = list[BranchSize](), list[str]()
    for factor in sorted(set(options.branch_factors)):
        try:
            size = branch_size(base, factor)
        except UsageError as error:
            left_out.append(f"{times_the_batch(factor)}: left out. {error}")
            continue
        if all(size.factor != other.factor for other in sizes):
            sizes.append(size)
    sizes.sort(key=lambda size: size.factor)
    samples = 0
    while len(sizes) > 1:
        unit = math.lcm(*(size.unit for size in sizes))
        least = -(-FEWEST_ITERATIONS * sizes[-1].batch // unit) * unit
        samples = options.branch_samples // unit * unit or max(
            least, round(SHARE_OF_RUN * base.env_steps / unit) * unit
        )
        if least <= (options.branch_samples or MOST_OF_RUN * base.env_steps):
            break
        too_long = f"more than half of the run's {base.env_steps:,}"
        given = f"more than branch_samples={options.branch_samples:,}"
        left_out.append(
            f"{times_the_batch(sizes.pop().factor)}: left out. {FEWEST_ITERATIONS} iterations of each size would be "
            f"{least:,} samples, {given if options.branch_samples else too_long}: use --branch-samples {least}."
        )
    if len(sizes) < 2:
        raise NotMeasurableError(
            f"branch_factors={','.join(f'{f:g}' for f in options.branch_factors)} leave fewer than two batch sizes to "
            f"compare: name others that num_envs={base.num_envs} can be multiplied by. {' '.join(left_out)}"
        )
    return BranchPlan(tuple(sizes), samples, tuple(left_out))


def branch_size(base: Config, factor: float) -> BranchSize:
    """UsageError where the sizes do not work. Fewer environments than one there cannot be, nor parts of one."""
    wanted = base.num_envs * factor
    num_envs = max(1, math.floor(wanted + 1e-9)) if factor < 1 else wanted
    if factor < 1 and num_envs == base.num_envs:
        raise UsageError(f"num_envs={base.num_envs} cannot shrink further: branch from a run with more environments.")
    after = with_iterations(base)
    if num_envs != base.num_envs:
        after = with_iterations(rescale(after, factor=base.num_envs / num_envs).after)
    phase = max(1, after.policy_iterations_per_phase)
    before = after.staleness + -(-MEASURED_STEPS // (after.geometry.gradient_steps * phase)) * phase
    return BranchSize(after.num_envs / base.num_envs, after, before)


def with_iterations(config: Config) -> Config:
    iterations = config.staleness + ITERATIONS * max(1, config.policy_iterations_per_phase)
    return config.replace(total_timesteps=iterations * config.geometry.iteration_batch)


def times_the_batch(factor: float) -> str:
    """`4 times the batch`, `1/4 of the batch`."""
    if factor >= 1:
        return f"{factor:g} times the batch"
    whole = 1 / factor
    return f"1/{whole:g} of the batch" if math.isclose(whole, round(whole)) else f"{factor:g} of the batch"
