"""What a diagnosis will take, estimated from a short timing, and what to measure less of where that is too long.

Everything a section does is made of environment steps, passes over samples and inner products of samples. These three
are timed on a small scale; `_section_seconds` says how many of them each section needs at the sizes of the options.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from isobatch.laboratory.batches import batch_gradient, few_batches
from isobatch.laboratory.branch_costs import BranchSpeeds, branch_reductions, branch_seconds, timed_branches
from isobatch.laboratory.chains import horizon_of, num_groups
from isobatch.laboratory.external_policy import ExternalPolicy
from isobatch.laboratory.inner_products import compiled_gram
from isobatch.laboratory.options import LabOptions, chain_length, geometries_of
from isobatch.laboratory.per_sample import vanilla
from isobatch.laboratory.sections.cosines import PAIR_BATCHES
from isobatch.laboratory.sections.geometries import worth_measuring
from isobatch.laboratory.source import PATIENCE, TIMED, median_seconds
from isobatch.laboratory.subject import Subject
from isobatch.rollouts.staleness import seen_dtype
from isobatch.statistics.bootstrap import LEAST_FOR_INTERVAL

TIMED_ENVS, TIMED_STEPS, TIMED_SAMPLES, TIMED_PRODUCTS = 128, 64, 1024, 256
SAFETY = 1.1  # what is not counted: resampling, drawing, other work of the machine
FEWEST_CHAINS = 4 * LEAST_FOR_INTERVAL
FEWEST_BATCHES = LEAST_FOR_INTERVAL


@dataclass(frozen=True)
class Speeds:
    """Seconds of each, where many are done at once."""

    step: float  # of one environment, by the policy
    gradient: float  # of one sample, as part of a mean gradient
    product: float  # of the gradients of two samples
    program: float  # to compile one program
    branches: BranchSpeeds | None = None  # if there are any


@dataclass(frozen=True)
class MeasurementPlan:
    """What will be measured, and what that will take."""

    options: LabOptions
    seconds: float
    wanted_seconds: float  # with nothing reduced

    def sentence(self, wanted: LabOptions, minutes: float, geometry: tuple[int, int]) -> str:
        """What it will take, and what was reduced for that; `geometry` is the run's."""
        takes = f"this will take about {_duration(self.seconds)}"
        sizes = {
            "chains": [wanted.chains, self.options.chains],
            "batches": [wanted.batches, self.options.batches],
            "geometries": [len(geometries_of(options, *geometry)) for options in (wanted, self.options)],
            "geometries measured directly": [wanted.direct, self.options.direct],
            "seeds of branches": [wanted.branch_seeds, self.options.branch_seeds],
        }
        changed = [f"{new} {what} instead of {old}" for what, (old, new) in sizes.items() if new != old]
        if self.options.branch_samples != wanted.branch_samples:
            usual = f"{wanted.branch_samples:,}" if wanted.branch_samples else "a quarter of the run"
            changed.append(f"branches of {self.options.branch_samples:,} environment steps instead of {usual}")
        if not changed:
            return f"{takes}."
        least = "" if self.seconds <= 60 * minutes else " It cannot take less, except with fewer --sections."
        return (
            f"{takes}, with {', '.join(changed)}: all of it would take about {_duration(self.wanted_seconds)}, and "
            f"there are {minutes:g} minutes (--time; 0 is no limit).{least}"
        )


def plan(subject: Subject, minutes: float) -> MeasurementPlan:
    """At full size where that fits into `minutes` (0: no limit), else with less of what costs most."""
    speeds, options = timed(subject), subject.options
    wanted = seconds = seconds_of(subject, options, speeds)
    shorter = list(branch_reductions(subject)) if "branches" in options.chosen else []
    for smaller in (*shorter, *reductions([options, *shorter][-1], subject.own_geometry)):
        if not minutes or seconds <= 60 * minutes:
            break
        options, seconds = smaller, seconds_of(subject, smaller, speeds)
    return MeasurementPlan(options, seconds, wanted)


def reductions(options: LabOptions, geometry: tuple[int, int]) -> Iterator[LabOptions]:
    """Less and less: first the direct measurements, which are a check; then fewer geometries, batches and chains."""
    options = dataclasses.replace(options, direct=0)
    yield options
    if options.geometries == "auto":  # every second; the longest and the run's own stay
        shapes = geometries_of(options, *geometry)
        kept = [g for i, g in enumerate(shapes) if (len(shapes) - i) % 2 or g == geometry]
        options = dataclasses.replace(options, geometries=",".join(f"{n}x{t}" for n, t in kept))
        yield options
    while options.chains > FEWEST_CHAINS or options.batches > FEWEST_BATCHES:
        options = dataclasses.replace(options, batches=_half(options.batches, FEWEST_BATCHES))
        yield options
        options = dataclasses.replace(options, chains=_half(options.chains, FEWEST_CHAINS))
        yield options


def _half(number: int, least: int) -> int:
    return max(number // 2, min(number, least))


def timed(subject: Subject) -> Speeds:
    config, source, policy = subject.config, subject.source, subject.policy
    assert not isinstance(policy, ExternalPolicy)  # whose sections are measured as they were asked for
    begin = time.perf_counter()
    obs = jnp.zeros((TIMED_SAMPLES, *source.env.obs_shape), seen_dtype(config, source.env))
    samples = (obs, policy(obs).sample(jax.random.key(0)), jnp.ones(TIMED_SAMPLES))
    jax.block_until_ready(batch_gradient(policy, samples))
    compiled = time.perf_counter() - begin
    gradient = median_seconds(lambda: batch_gradient(policy, samples))
    few = jax.tree.map(lambda leaf: leaf[:TIMED_PRODUCTS], samples)
    product = median_seconds(lambda: compiled_gram(vanilla)(policy, few))
    return Speeds(
        step=source.seconds(TIMED_ENVS, TIMED_STEPS) / (TIMED_ENVS * TIMED_STEPS),
        gradient=gradient / TIMED_SAMPLES,
        product=product / TIMED_PRODUCTS**2,
        program=max(compiled - gradient, 0.0),
        branches=timed_branches(subject) if "branches" in subject.options.chosen else None,
    )


def seconds_of(subject: Subject, options: LabOptions, speeds: Speeds) -> float:
    """Of all the sections that were chosen."""
    sized = dataclasses.replace(subject, options=options)
    return SAFETY * sum(
        seconds for section, seconds in _section_seconds(sized, speeds) if section in ("chains", *options.chosen)
    )


def _section_seconds(subject: Subject, speeds: Speeds) -> Iterator[tuple[str, float]]:
    config, source, options = subject.config, subject.source, subject.options
    shapes, (own_envs, own_steps), (n, t) = subject.geometries, subject.own_geometry, subject.batch_shape
    length = chain_length(shapes)
    groups = num_groups(source.time_limit, length)
    chains = max(options.chains, 2 * groups)
    begin = (1.5 - 0.5 / groups) * source.time_limit  # of the chains, on average: see `chains.begins`
    wait, budget = 1.5 * source.time_limit, subject.budget
    one_pass = chains * length * speeds.gradient

    def collected(count: int, envs: int, steps: int) -> float:
        """Batches, each of environments that first run for one to two time limits."""
        return count * envs * (wait + steps) * speeds.step

    def products(count: int) -> float:
        return count * (n * t) ** 2 * speeds.product

    after = min(horizon_of(config.hypers.gamma, source.time_limit), source.time_limit)
    if {"geometries", "lambdas", "lags", "branches"} & set(options.chosen):
        yield "chains", chains * (begin + length + after) * speeds.step + speeds.program
    shown = min(3, len(shapes)) * len({*options.lambdas, config.hypers.gae_lambda})
    timing = min(PATIENCE, TIMED * budget * speeds.step) + 2 * min(budget, TIMED_ENVS * TIMED_STEPS) * speeds.step
    direct = sum(collected(options.batches, *shape) for shape in worth_measuring(subject))
    yield "geometries", (len(shapes) + 3) * one_pass + len(shapes) * (timing + speeds.program) + direct
    yield "lambdas", (shown + 3) * one_pass + 3 * speeds.program
    yield "lags", 3 * one_pass + chains * length**2 * speeds.product + 3 * speeds.program
    pairs = min(PAIR_BATCHES, options.batches)
    yield "cosines", collected(pairs + options.batches, n, t) + products(pairs) + 3 * speeds.program
    few = few_batches(options.batches)
    yield "minibatches", collected(few, n, t) + products(few) + 2 * speeds.program
    updates = few * (3 * config.update_epochs + 3) * own_envs * own_steps * speeds.gradient
    yield "trust-region", collected(few, own_envs, own_steps) + updates + 4 * speeds.program
    episodes = max(4 * config.num_envs, options.chains) * (options.horizon or source.time_limit)
    yield "aggregations", episodes * (speeds.step + speeds.gradient) + 2 * speeds.program
    if speeds.branches is not None:
        yield "branches", branch_seconds(subject, speeds.branches, speeds.step) + 4 * one_pass + 3 * speeds.program


def _duration(seconds: float) -> str:
    return f"{max(seconds, 1):.0f} seconds" if seconds < 90 else f"{seconds / 60:.0f} minutes"
