"""What is to be searched, how and for how much, checked before JAX is loaded."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict, Unpack

from isobatch.errors import UsageError
from isobatch.rescaling import MINIBATCH_COUNT, Rescaled, rescale
from isobatch.settings.config import Config
from isobatch.settings.fields import COUNT, SEED
from isobatch.settings.options import NUM_SEEDS
from isobatch.settings.parsing import inf_as_text, parse_value
from isobatch.studies.rows import log_interval_of, version
from isobatch.tuning.halving import Halving
from isobatch.tuning.ranges import Choice, SearchRange, chosen_ranges, config_of, shape_names
from isobatch.tuning.samplers import check_sampler, default_sampler

DEFAULT_RUNS = 100  # of one seed each: the budget unless one is given
FINALISTS = 3
FIRST_NEW_SEED = 1_000_000  # the first seed of those that confirm


class PlanSizes(TypedDict, total=False):
    """Fields of a plan that have a usual value."""

    num_seeds: int
    seed: int
    group: int
    lanes: int
    confirm_seeds: int


@dataclass(frozen=True)
class SearchPlan:
    """What is searched, and how. Nothing here changes when a search goes on."""

    config: Config  # where it starts
    ranges: Mapping[str, SearchRange]
    sampler: str
    num_seeds: int = 3
    seed: int = 0
    group: int = 24  # trials that are compared with each other
    lanes: int = 18  # trials x seeds that one program trains at once
    confirm_seeds: int = 6
    halving: Halving = field(default_factory=Halving)

    def __post_init__(self) -> None:
        for name in ("num_seeds", "group", "lanes", "confirm_seeds"):
            NUM_SEEDS.check(name, getattr(self, name))  # trials too have a state of their own
        SEED.check("seed", self.seed)
        SEED.check(f"seed + {FIRST_NEW_SEED:,} + confirm_seeds - 1", self.new_seeds[-1])

    def to_json(self) -> dict[str, object]:
        searched = {name: str(each) for name, each in self.ranges.items()}
        numbers = {name: getattr(self, name) for name in ("num_seeds", "seed", "group", "lanes", "confirm_seeds")}
        stops = {"compared_after": list(self.halving.shares), "kept": self.halving.kept}
        settings = {name: inf_as_text(value) for name, value in self.config.to_dict().items()}
        start = {"version": version(), "settings": settings, "search": searched, "sampler": self.sampler}
        return start | numbers | stops

    @property
    def together(self) -> int:
        """Trials that one program trains: environments outside JAX keep the machine busy with one."""
        from isobatch.envs.registry import host_environment_of  # which loads JAX

        return 1 if host_environment_of(self.config) else max(1, self.lanes // self.num_seeds)

    @property
    def seeds(self) -> list[int]:
        return list(range(self.seed, self.seed + self.num_seeds))

    @property
    def new_seeds(self) -> range:
        """Those that confirm: far from those of trials."""
        return range(FIRST_NEW_SEED + self.seed, FIRST_NEW_SEED + self.seed + self.confirm_seeds)

    @property
    def reserve(self) -> int:
        """Environment steps that confirm the best."""
        return FINALISTS * self.confirm_seeds * self.config.env_steps

    def cost(self, config: Config, trials: int) -> int:
        """Environment steps of a group, at the most."""
        return self.halving.cost(config, log_interval_of(config), trials, self.together, self.num_seeds)

    def check_budget(self, budget: int, reserve: int) -> None:
        one = self.halving.cost(self.config, log_interval_of(self.config), 1, together=1, num_seeds=self.num_seeds)
        least = one + reserve
        if budget < least:
            each = f"{self.num_seeds} seeds x {self.config.env_steps:,} steps"
            raise UsageError(
                f"budget={budget:,} is below one trial ({each}) and the {reserve:,} steps that confirm the best: use "
                f"at least {least:,}, fewer num_seeds or confirm_seeds, or shorter total_timesteps."
            )


@dataclass(frozen=True)
class TransferTarget:
    """Where the winner goes."""

    num_envs: int
    keep: str = MINIBATCH_COUNT  # as `rescale` has it

    def of(self, config: Config) -> Rescaled:
        return rescale(config, num_envs=self.num_envs, keep=self.keep)

    def check(self, config: Config, ranges: Mapping[str, SearchRange]) -> None:
        """Raise if a winner of some shape could not go there: before the search, not after it."""
        names = shape_names(ranges)
        values = [each.values for each in ranges.values() if isinstance(each, Choice) and each.name in names]
        for combination in itertools.islice(itertools.product(*values), 1000):
            self.of(config_of(config, dict(zip(names, combination, strict=True))))


@dataclass(frozen=True)
class SearchTask:
    """What is to be done, checked."""

    plan: SearchPlan
    move: TransferTarget | None
    budget: int  # environment steps
    reserve: int  # those of them that confirm the best


def prepare(
    config: Config,
    *,
    budget: float | None = None,
    search: Sequence[str] = (),
    also: Sequence[str] = (),
    given: Iterable[str] = (),
    sampler: str | None = None,
    at_num_envs: int | None = None,
    for_num_envs: int | None = None,
    keep: str = MINIBATCH_COUNT,
    **numbers: Unpack[PlanSizes],
) -> SearchTask:
    """The arguments of `tune` as a task; raises where they make no sense. `numbers` are fields of `SearchPlan`."""
    if sampler is not None:
        check_sampler(sampler)
    check_move(config.num_envs, at_num_envs, for_num_envs, keep)
    if at_num_envs is not None and at_num_envs != config.num_envs:
        config = rescale(config, num_envs=at_num_envs, keep=keep).after
    plan = SearchPlan(config, chosen_ranges(config, search, also, set(given)), sampler or default_sampler(), **numbers)
    move = None if for_num_envs is None else TransferTarget(for_num_envs, keep)
    reserve = plan.reserve
    if move is not None:
        if "num_envs" in plan.ranges:
            raise UsageError(
                f"num_envs is searched, and for_num_envs={for_num_envs} moves the winner to another one: leave out one "
                "of them."
            )
        move.check(config, plan.ranges)
        reserve += plan.confirm_seeds * move.of(config).after.env_steps
    steps = DEFAULT_RUNS * config.env_steps if budget is None else parse_value("budget", budget, int)
    COUNT.check("budget", steps)
    plan.check_budget(steps, reserve)
    return SearchTask(plan, move, steps, reserve)


def check_move(num_envs: int, at_num_envs: int | None, for_num_envs: int | None, keep: str) -> None:
    """Raise unless these say from where to where the winner moves, or that it does not."""
    if for_num_envs is None:
        if at_num_envs is not None:
            raise UsageError(
                f"at_num_envs={at_num_envs} is where to search for another batch: add for_num_envs, the number of "
                f"environments that the winner is meant for, or use num_envs={at_num_envs} instead."
            )
        if keep != MINIBATCH_COUNT:
            raise UsageError(
                f"keep={keep!r} is what stays where the number of environments changes: add at_num_envs and "
                "for_num_envs, or leave it out."
            )
    elif for_num_envs == (num_envs if at_num_envs is None else at_num_envs):
        raise UsageError(
            f"for_num_envs={for_num_envs} is where the search is made, so nothing would move: leave it out, or use "
            "another at_num_envs."
        )
