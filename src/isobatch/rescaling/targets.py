"""From what a person asks for (environments, steps, a minibatch, devices, a factor) to whole sizes.

Unless asked otherwise N changes and T stays, as in Hilton, Cobbe & Schulman (2021), section 5.2; the number of
minibatches stays, so both batches change by the same factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from isobatch.errors import UsageError, brief
from isobatch.settings.config import Config
from isobatch.settings.fields import LARGEST_INDEX
from isobatch.settings.geometry import cuts_evenly, divisors
from isobatch.settings.parsing import parse_value

TARGETS = ("num_envs", "num_steps", "optimization_batch", "devices", "factor")
SEARCHED_SIZES = 100_000  # in each direction, before giving up on naming a neighbor


@dataclass(frozen=True)
class Target:
    """What was asked for. Exactly one of these, or num_envs and num_steps together."""

    num_envs: int | None = None
    num_steps: int | None = None
    optimization_batch: int | None = None
    devices: int | None = None
    factor: float | None = None
    devices_before: int = 1

    def __post_init__(self) -> None:
        given = self.given
        sizes = {"num_envs", "num_steps"}
        if not given:
            raise UsageError(f"no target was given: use one of {', '.join(TARGETS[:-1])} or {TARGETS[-1]}.")
        if len(given) > 1 and not set(given) <= sizes:
            raise UsageError(
                f"{self.text} cannot go together: give one target (only num_envs and num_steps may be given at once)."
            )
        for name, value in (*given.items(), ("devices_before", self.devices_before)):
            kind, allowed = (float, "a positive number") if name == "factor" else (int, "a positive whole number")
            number = parse_value(name, value, kind)
            if not (0 < number < math.inf):
                raise UsageError(f"{name}={brief(value)} is not a target: use {allowed}.")
            object.__setattr__(self, name, number)

    @property
    def given(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in TARGETS if getattr(self, name) is not None}

    @property
    def text(self) -> str:
        return " and ".join(f"{name}={brief(value)}" for name, value in self.given.items())

    def sizes(self, config: Config) -> tuple[float, float]:
        """N' and T' as asked for, perhaps not whole, and not beyond what can be counted."""
        n, t = config.num_envs, config.num_steps
        try:
            if self.factor is not None:
                sizes = n / self.factor, t
            elif self.devices is not None:
                sizes = n * self.devices / self.devices_before, t
            elif self.optimization_batch is not None:
                sizes = self.optimization_batch * config.num_minibatches / t, t
            else:
                sizes = self.num_envs or n, self.num_steps or t
        except OverflowError:  # of a quotient of whole numbers
            sizes = math.inf, t
        if max(sizes) > LARGEST_INDEX:
            too_large = f"a size would be above {LARGEST_INDEX}; ask for a smaller one."
            raise UsageError(f"{self.text} does not work: {too_large}")
        return sizes


def resolve(config: Config, target: Target, *, hold_minibatch: bool) -> tuple[int, int]:
    """N' and T' of the target, or a UsageError that names the nearest ones that work.

    `hold_minibatch`: the number of minibatches follows the iteration batch, their size stays.
    """
    if hold_minibatch and target.optimization_batch is not None:
        raise UsageError(
            f"optimization_batch={target.optimization_batch} is what the rule iteration-batch-only holds constant; "
            "give num_envs, num_steps or factor instead, or drop the rule."
        )
    num_envs, num_steps = target.sizes(config)

    def misfit(n: int, t: int) -> str:
        return _misfit(config, n, t, hold_minibatch=hold_minibatch)

    n, t = round(num_envs), round(num_steps)
    whole = n >= 1 and math.isclose(n, num_envs, rel_tol=1e-6)
    trouble = misfit(n, t) if whole else f"it needs num_envs={num_envs:.6g}, which is not whole"
    if not trouble:
        return n, t
    vary_steps = "num_steps" in target.given and "num_envs" not in target.given
    if vary_steps:
        near = [f"num_steps={k}" for k in _nearest(num_steps, lambda k: not misfit(n, k))]
    else:
        near = [_describe(config, target, k, t) for k in _nearest(num_envs, lambda k: not misfit(k, t))]
    fix = f"the nearest that {'work are' if len(near) > 1 else 'works is'} {' and '.join(near)}"
    raise UsageError(f"{target.text} does not work: {trouble}; {fix if near else 'no size near it works'}.")


def same_iteration_batch(config: Config, target: Target) -> Target:
    """The target with the rollout length that leaves the iteration batch as it is, or a UsageError with near ones."""
    if target.num_steps is not None or target.optimization_batch is not None:
        raise UsageError(
            f"{target.text} changes the iteration batch, which keep=iteration-batch holds: give num_envs, devices or "
            "factor, and the rollout length follows."
        )
    batch, wanted = config.geometry.iteration_batch, target.sizes(config)[0]
    envs = round(wanted)
    if envs < 1 or not math.isclose(envs, wanted, rel_tol=1e-6) or batch % envs:
        near = sorted(sorted(divisors(batch), key=lambda n: abs(n - wanted))[:2])
        raise UsageError(
            f"{target.text} cannot share an iteration batch of {batch} equally: the nearest num_envs that can are "
            f"{' and '.join(map(str, near))}."
        )
    return Target(num_envs=envs, num_steps=batch // envs)


def _misfit(config: Config, n: int, t: int, *, hold_minibatch: bool) -> str:
    """Why N x T cannot be had, in words, or nothing."""
    old, new = config.geometry.iteration_batch, n * t
    if n % config.num_shards:
        return f"{n} environments cannot be divided among {config.num_shards} shards"
    cuts = {"minibatches": config.num_minibatches}
    if config.policy_iterations_per_phase:
        cuts["auxiliary minibatches"] = config.aux_minibatches
    for kind, count in cuts.items():
        if hold_minibatch and count * new % old:
            return f"an iteration batch of {new} is not a multiple of {old // count}, the size of the {kind} to be held"
        cuts[kind] = count * new // old if hold_minibatch else count
        if not cuts[kind] or new % cuts[kind]:
            return f"an iteration batch of {new} cannot be cut into {cuts[kind]} equal {kind}"
        part = new // cuts[kind] // config.num_shards
        if config.optimizer == "adam-micro" and part % config.micro_batch_size:
            return f"{part} samples of one of its {kind} cannot be cut into micro-batches of {config.micro_batch_size}"
    count = cuts["minibatches"]
    if not cuts_evenly(count, n // config.num_shards, t, config.minibatch_scheme):
        return f"{n} environments x {t} steps cannot be cut into {count} minibatches of whole environment rows"
    return ""


def _nearest(size: float, works: Callable[[int], bool]) -> list[int]:
    """The largest whole number below `size` and the smallest above it that work."""

    def first(candidates: Iterator[int]) -> list[int]:
        return next(([k] for k in candidates if works(k)), [])

    below, above = math.ceil(size) - 1, math.floor(size) + 1
    down = first(iter(range(below, max(0, below - SEARCHED_SIZES), -1)))
    return down + first(iter(range(max(1, above), above + SEARCHED_SIZES)))


def _describe(config: Config, target: Target, n: int, t: int) -> str:
    """A neighbor in the words of the request."""
    if target.factor is not None:
        return f"factor={config.num_envs / n:.6g} (num_envs={n})"
    if target.optimization_batch is not None:
        return f"optimization_batch={n * t // config.num_minibatches} (num_envs={n})"
    return f"num_envs={n}"
