"""What branches will take, from the time of an iteration at two batch sizes, and less where that is too long."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from isobatch.formatting import counted
from isobatch.laboratory.branch_sizes import FEWEST_ITERATIONS, BranchPlan, branch_plan
from isobatch.laboratory.branching import MARKS, Branching
from isobatch.laboratory.options import LabOptions
from isobatch.laboratory.partial_results import PartialResults
from isobatch.laboratory.subject import NotMeasurableError, Subject
from isobatch.statistics.bootstrap import LEAST_FOR_INTERVAL


@dataclass(frozen=True)
class BranchSpeeds:
    """Seconds: of a program to compile, and of an iteration of one seed, which are a + b x its environment steps."""

    program: float
    iteration: float
    step: float


def timed_branches(subject: Subject) -> BranchSpeeds:
    """From the two smallest sizes, whose programs the branches will use."""
    branching = Branching(subject, PartialResults(None, {}))
    small, large = branching.plan.sizes[:2]
    seeds = len(branching.seeds)
    (compiled, of_small), (_, of_large) = (branching.seconds(size) for size in (small, large))
    step = max(of_large - of_small, 0.1 * of_large) / (large.batch - small.batch) / seeds
    return BranchSpeeds(compiled, max(of_small / seeds - step * small.batch, 0.0), step)


def branch_seconds(subject: Subject, speeds: BranchSpeeds, env_step: float) -> float:
    """`env_step`: seconds of a step of one environment, by a policy that does not learn."""
    options, plan, limit = subject.options, plan_of(subject), subject.source.time_limit
    seconds = 2 * len(plan.sizes) * speeds.program
    for size in plan.sizes:
        iterations = plan.samples / size.batch + size.before
        learning = iterations * (speeds.iteration + size.batch * speeds.step)
        playing = env_step * limit * (1.5 * size.config.num_envs + MARKS * options.branch_episodes)
        seconds += options.branch_seeds * (learning + playing)
    return seconds


def plan_of(subject: Subject) -> BranchPlan:
    return branch_plan(subject.config, int(subject.state.iteration), subject.options)


def branch_reductions(subject: Subject) -> Iterator[LabOptions]:
    """Fewer seeds first, then shorter branches, as long as there are two sizes."""
    options = subject.options
    while options.branch_seeds > LEAST_FOR_INTERVAL:
        options = dataclasses.replace(options, branch_seeds=max(options.branch_seeds // 2, LEAST_FOR_INTERVAL))
        yield options
    try:
        while True:
            plan = plan_of(dataclasses.replace(subject, options=options))
            shorter = max(plan.samples // 2, FEWEST_ITERATIONS * plan.sizes[-2].batch)
            if shorter >= plan.samples:
                return
            options = dataclasses.replace(options, branch_samples=shorter)
            plan_of(dataclasses.replace(subject, options=options))
            yield options
    except NotMeasurableError:
        return


def branch_sentence(subject: Subject) -> str:
    """What will be trained."""
    plan, seeds = plan_of(subject), subject.options.branch_seeds
    batches = [size.config.geometry.optimization_batch for size in plan.sizes]
    total = plan.samples * len(batches) * seeds
    return (
        f"branches of {plan.samples:,} environment steps at {len(batches)} batch sizes, {batches[0]:,} to "
        f"{batches[-1]:,} samples a gradient step, on {counted(seeds, 'seed')}: {total:,} steps to learn from."
    )
