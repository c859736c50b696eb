"""The search itself: groups of trials until the budget is spent, then the best ones once more on other seeds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

from isobatch.executors.cores import available_cores
from isobatch.executors.interface import Executor
from isobatch.formatting import counted
from isobatch.settings.config import Config
from isobatch.settings.parsing import SettingsByName
from isobatch.studies.grid import digest
from isobatch.studies.jobs import Devices
from isobatch.studies.result_files import now
from isobatch.studies.rows import log_interval_of
from isobatch.tuning.directory import Asked, Confirmed, Group, TuneDirectory
from isobatch.tuning.group import GroupResult, TrainGroup
from isobatch.tuning.halving import Halving
from isobatch.tuning.ranges import Choice, config_of, settings_of, shape_names
from isobatch.tuning.samplers import Sampler, sampler_of
from isobatch.tuning.search_plan import FINALISTS, SearchPlan
from isobatch.tuning.trials import Trial, ranked, seed_returns, trial_of


class Watch(Protocol):
    """Is told how far the search is: what is being done, the share of the budget, and all trials so far."""

    def __call__(self, label: str, share: float, trials: Sequence[Trial]) -> None: ...


@dataclass
class Search:
    """A plan at work in a directory."""

    plan: SearchPlan
    directory: TuneDirectory
    budget: int
    reserve: int
    executor: Executor
    watch: Watch

    def __post_init__(self) -> None:
        self.sampler: Sampler = sampler_of(self.plan.sampler, self.plan.ranges, self.plan.seed)
        self.devices = Devices(self.plan.config, len(available_cores()))
        self.trials: list[Trial] = []

    @property
    def spent(self) -> int:
        """Environment steps of everything: all seeds, stopped trials, and what was confirmed."""
        done = [each.env_steps for each in self.directory.all_confirmed()]
        return sum(trial.env_steps for trial in self.trials) + sum(done)

    def run(self) -> list[Trial]:
        """All trials that the budget allows; those that are on disk are not trained again."""
        begun = self.directory.asked()
        rounds = number = 0
        while True:
            groups = [asked for asked in begun if asked.round == rounds] or self.ask(rounds, number)
            if not groups:
                return self.trials
            for asked in groups if groups[0] in begun else []:  # the sampler comes to where it was
                self.sample(asked.number, len(asked.settings), asked.first == 0)
            self.train(groups)
            rounds, number = rounds + 1, groups[-1].number + 1

    def sample(self, number: int, count: int, first: bool) -> list[SettingsByName]:
        """The settings of a group. The first one begins with those that the search starts from."""
        base = self.base() if first else None
        if base is None:
            return self.sampler.ask(number, count, None)
        shape = {name: base[name] for name in shape_names(self.plan.ranges)}
        return [base, *(self.sampler.ask(number, count - 1, shape) if count > 1 else [])]

    def base(self) -> SettingsByName | None:
        """What the config has of the settings that are searched, unless it has a value that is no choice."""
        settings = settings_of(self.plan.config, self.plan.ranges)
        choices = [each for each in self.plan.ranges.values() if isinstance(each, Choice)]
        return settings if all(settings[each.name] in each.values for each in choices) else None

    def ask(self, rounds: int, number: int) -> list[Asked]:
        """The groups of a new round that the budget allows, written down; `number` is that of the first."""
        left = self.budget - self.reserve - self.spent
        first, groups = len(self.trials), list[Asked]()
        for _ in range(self.executor.places):
            count = self.affordable(left, first == 0)
            if not count:
                break
            settings = self.sample(number, count, first == 0)
            while settings and self.plan.cost(config_of(self.plan.config, settings[0]), len(settings)) > left:
                settings.pop()  # another shape can be dearer
            if not settings:
                break
            groups.append(Asked(number, rounds, first, settings))
            left -= self.plan.cost(config_of(self.plan.config, settings[0]), len(settings))
            number, first = number + 1, first + len(settings)
        for asked in groups:
            self.directory.save_asked(asked)
        return groups

    def affordable(self, left: int, first: bool) -> int:
        """How many trials a group may have; fewer than a program trains at once are worth it in the first one only."""
        least = 1 if first else min(self.plan.together, self.plan.group)
        counts = range(self.plan.group, least - 1, -1)
        return next((count for count in counts if self.plan.cost(self.plan.config, count) <= left), 0)

    def train(self, groups: list[Asked]) -> None:
        """What is not finished of a round; then the sampler learns from all of it."""
        earlier = self.earlier()
        waiting = [asked for asked in groups if self.directory.group(asked.number) is None]
        jobs = [self.job([config_of(self.plan.config, each) for each in asked.settings], earlier) for asked in waiting]
        spent, shares = self.spent, [0.0] * len(jobs)
        sizes = [self.plan.cost(job.configs[0], len(job.configs)) for job in jobs]

        def progress(index: int, part: float) -> None:
            shares[index] = part
            done = spent + sum(size * share for size, share in zip(sizes, shares, strict=True))
            self.watch(self.label(waiting[index]), min(1.0, done / self.budget), self.trials)

        with closing(self.executor.run(jobs, progress)) as results:
            for index, result in results:
                self.save(waiting[index], jobs[index], result)
        for asked in groups:
            group = self.directory.group(asked.number)
            assert group is not None
            self.trials += group.trials
            self.sampler.tell(asked.number, [(trial.settings, trial.worth) for trial in group.trials])
        self.watch(self.label(groups[-1]), min(1.0, self.spent / self.budget), self.trials)

    def label(self, asked: Asked) -> str:
        shape = {name: asked.settings[0][name] for name in shape_names(self.plan.ranges)}
        values = "".join(f", {name} {value}" for name, value in shape.items())
        return f"group {asked.number + 1}: {counted(len(asked.settings), 'trial')}{values}"

    def earlier(self) -> list[list[float]]:
        """The scores at each rung of all trials of earlier rounds."""
        rungs = max((len(trial.scores) for trial in self.trials), default=0)
        return [[t.scores[rung] for t in self.trials if len(t.scores) > rung] for rung in range(rungs)]

    def job(self, configs: list[Config], earlier: list[list[float]]) -> TrainGroup:
        plan = self.plan
        return TrainGroup(configs, plan.seeds, plan.halving, plan.together, earlier, self.devices)

    def save(self, asked: Asked, job: TrainGroup, result: GroupResult) -> None:
        rungs = job.halving.rungs(job.configs[0], log_interval_of(job.configs[0]))
        trials = [
            trial_of(asked.first + place, asked.number, settings, config, outcome, scores, rungs, job.seeds)
            for place, (settings, config, outcome, scores) in enumerate(
                zip(asked.settings, job.configs, result.outcomes, result.scores, strict=True)
            )
        ]
        group = Group(trials, result.seconds, result.compile_seconds)
        self.directory.save_group(asked.number, group, [outcome.table for outcome in result.outcomes])

    def confirm(self, configs: Sequence[Config], what: str, together: bool = False) -> list[Confirmed]:
        """Train each on seeds of its own, unless that was done; those of one shape `together`, or each by itself, so
        that their speeds can be compared."""
        names = {config: digest([config.to_dict(), self.plan.confirm_seeds]) for config in configs}
        seeds = list(self.plan.new_seeds)
        missing = [config for config in names if self.directory.confirmed(names[config]) is None]
        shapes = dict.fromkeys(config.static for config in missing)
        parts = [[config] for config in missing]
        if together:
            parts = [[config for config in missing if config.static == shape] for shape in shapes]
        jobs = [TrainGroup(part, seeds, Halving(()), len(part), [], self.devices) for part in parts]

        def progress(index: int, part: float) -> None:
            self.watch(what, min(1.0, self.spent / self.budget), self.trials)

        with closing(self.executor.run(jobs, progress)) as results:
            for index, result in results:
                count = len(parts[index])
                seconds, compiling = result.seconds / count, result.compile_seconds / count
                for config, outcome in zip(parts[index], result.outcomes, strict=True):
                    returns, steps = seed_returns(outcome, seeds, config.env_steps), config.env_steps * len(seeds)
                    self.directory.save_confirmed(names[config], Confirmed(returns, steps, seconds, compiling, now()))
        confirmed = [self.directory.confirmed(names[config]) for config in configs]
        return [each for each in confirmed if each is not None]


def finalists(trials: Sequence[Trial]) -> list[Trial]:
    """The best trials, which are trained once more: the best of many scores is partly luck."""
    best = [trial for trial in ranked(trials) if trial.finished and trial.has_return]
    return best[:FINALISTS]
