"""`tune`: from settings and a budget to better settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from isobatch.envs.registry import environment_of
from isobatch.errors import RunError, check_keywords
from isobatch.executors.interface import Executor
from isobatch.executors.processes import LocalProcesses
from isobatch.formatting import counted
from isobatch.rescaling import MINIBATCH_COUNT
from isobatch.settings.config import Config
from isobatch.settings.files import dump_settings
from isobatch.studies.result_files import write
from isobatch.tuning.directory import BEST, Confirmed, Group, TuneDirectory
from isobatch.tuning.ranges import config_of
from isobatch.tuning.report import write_page
from isobatch.tuning.search import Search, Watch, finalists
from isobatch.tuning.search_plan import SearchPlan, SearchTask, TransferTarget, prepare
from isobatch.tuning.transfer import TransferResult
from isobatch.tuning.trials import ranked
from isobatch.tuning.tuned import Finalist, Tuned


@check_keywords
def tune(
    config: Config,
    *,
    out: str | Path,
    budget: float | None = None,
    search: Sequence[str] = (),
    also: Sequence[str] = (),
    given: Iterable[str] = (),
    sampler: str | None = None,
    num_seeds: int = SearchPlan.num_seeds,
    seed: int = SearchPlan.seed,
    group: int = SearchPlan.group,
    lanes: int = SearchPlan.lanes,
    confirm_seeds: int = SearchPlan.confirm_seeds,
    at_num_envs: int | None = None,
    for_num_envs: int | None = None,
    keep: str = MINIBATCH_COUNT,
    watch: Watch = lambda label, share, trials: None,
    executor: Executor | None = None,
) -> Tuned:
    """Search for better hyperparameters. A kill loses no trial: the same call goes on.

    Trials of equal shape are lanes of one compiled program. They are compared after 1/9 and 1/3 of their steps, the
    best third goes on (successive halving, https://arxiv.org/abs/1502.07943). The best three are trained once more on
    seeds of their own, and the best of those wins.

    Args:
        config: where the search starts; its own settings are the first trial.
        out: directory of the search; one that was begun goes on, also with a larger budget.
        budget: environment steps of everything: all seeds, all trials, stopped ones too, and the runs that confirm
            the best. By default those of 100 runs of one seed.
        search: what to search, instead of the defaults: names of settings with default ranges, `name=LOW:HIGH` or
            `name=A,B,C`. `proximal_age` is the age of an averaged proximal policy in environment steps.
        also: what to search besides, or in other ranges.
        given: settings that keep their value, though they have a default range.
        sampler: tpe or cma-es, which need the extra `tune`, or random. By default tpe where Optuna is installed.
        num_seeds: of each trial.
        seed: the first seed of trials, and that of the sampler.
        group: trials that are compared with each other.
        lanes: trials x seeds that one program trains at once; more on a GPU.
        confirm_seeds: seeds on which the best are trained once more.
        at_num_envs: search at this number of environments, to which `rescale` moves the config.
        for_num_envs: move the winner to this number of environments, and confirm it there.
        keep: what stays when it moves, as in `rescale`.
        watch: gets a label of the current work, the share of the budget that is spent, and all trials so far.
        executor: who trains the groups; by default this process.

    Returns:
        The best settings, all trials, and what it took.

    Example:
        >>> import isobatch as ib
        >>> ib.tune(ib.preset("ppo", "CartPole-v1"), out="runs/tune", search=["gama"])
        Traceback (most recent call last):
        isobatch.errors.UsageError: search 'gama' is no setting that can be searched; did you mean gamma?
    """
    task = prepare(
        config, budget=budget, search=search, also=also, given=given, sampler=sampler, num_seeds=num_seeds, seed=seed,
        group=group, lanes=lanes, confirm_seeds=confirm_seeds, at_num_envs=at_num_envs, for_num_envs=for_num_envs,
        keep=keep,
    )  # fmt: skip
    return run(task, Path(out), watch, executor or LocalProcesses())


def run(task: SearchTask, path: Path, watch: Watch, executor: Executor) -> Tuned:
    """Do it, or go on with it."""
    work = Search(task.plan, TuneDirectory(path), task.budget, task.reserve, executor, watch)
    work.devices.choose()  # before an environment starts JAX
    environment_of(task.plan.config)  # says what is missing before anything is written
    with work.directory.begun(task.plan.to_json()):
        return finish(work, task.move)


def finish(work: Search, move: TransferTarget | None) -> Tuned:
    """All that is left to do of a search, and its files."""
    trials = ranked(work.run())
    work.directory.save_table(trials)
    best = finalists(trials)
    if not best:
        raise RunError(
            f"none of the {counted(len(trials), 'trial')} ended with a finite return: search smaller learning rates, "
            "or give trials more total_timesteps, so that episodes end."
        )
    configs = [config_of(work.plan.config, trial.settings) for trial in best]
    again = work.confirm(configs, f"the best {len(best)} on new seeds", together=move is None)
    confirmed = [Finalist(*each) for each in zip(best, configs, again, strict=True)]
    confirmed.sort(key=lambda each: -each.confirmed.mean)
    groups, moved = work.directory.groups(), None
    if move is not None:
        rescaled = move.of(confirmed[0].config)
        there = work.confirm([rescaled.after], f"the winner at {rescaled.after.num_envs} environments")[0]
        training = sum(each.seconds - each.compile_seconds for each in groups)
        moved = TransferResult(
            rescaled, confirmed[0].confirmed, there, sum(each.env_steps for each in groups), training
        )
    timed: list[Group | Confirmed] = [*groups, *work.directory.all_confirmed()]
    tuned = Tuned(
        path=work.directory.path,
        config=work.plan.config,
        ranges=dict(work.plan.ranges),
        trials=trials,
        finalists=confirmed,
        moved=moved,
        budget=work.budget,
        env_steps=work.spent,
        seconds=sum(each.seconds for each in timed),
        compile_seconds=sum(each.compile_seconds for each in timed),
    )
    write(work.directory.path / BEST, dump_settings(tuned.settings))
    write_page(tuned, work.directory.curves())
    work.watch("finished", min(1.0, tuned.env_steps / tuned.budget), trials)
    return tuned
