"""The directory of a run that is about to train: a new one, or one that goes on, perhaps for longer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from isobatch.errors import UsageError
from isobatch.settings.config import Config
from isobatch.settings.fields import fields_of, parse_fields
from isobatch.settings.options import Options
from isobatch.settings.parsing import SettingsByName
from isobatch.settings.schedules import falling_ranges, ranges_at, schedule_of
from isobatch.training.lock import locked
from isobatch.training.run_directory import RunDirectory

INIT_FROM: Final = "init_from"
CONTINUES: Final = "continues"
SOURCES = (INIT_FROM, CONTINUES)  # runs that a run starts from
EVALUATION = ("eval_interval", "eval_threshold", "eval_episodes")  # a run that goes on is evaluated as it was


@contextmanager
def opened(
    path: Path, config: Config, options: Options, resume: bool, sources: Mapping[str, str | None]
) -> Iterator[tuple[RunDirectory, Options]]:
    """The directory, in which nobody else writes meanwhile, and the options as the run has them.

    With `resume` it is the one that the run was begun in, if the settings agree but for a larger `total_timesteps`.
    """
    directory = RunDirectory.open(path) if resume else RunDirectory.make(path)
    with locked(path):
        if resume:
            options = agreed(directory, config, options)
        else:
            info = identity(config, options) | dict(sources)
            directory.describe(config, info | {name: getattr(options, name) for name in EVALUATION})
        yield directory, options


def identity(config: Config, options: Options) -> SettingsByName:
    """What a run is besides its settings."""
    return {
        "seed": options.seed,
        "num_seeds": options.num_seeds,
        "log_interval": options.line_iterations(config.num_iterations),
        "replay": None if options.replay is None else str(Path(options.replay).absolute()),
    }


def agreed(directory: RunDirectory, config: Config, options: Options) -> Options:
    """The options of a run that goes on; UsageError where it was begun with other settings."""
    before, run = directory.config, directory.info
    if not options.log_interval:  # the default depends on the length of the run, and lines go on as they were
        options = dataclasses.replace(options, log_interval=run["log_interval"])
    if options.replay is None:
        options = dataclasses.replace(options, replay=run.get("replay"))
    if not options.eval_interval:
        kept = {name: value for name, value in run.items() if name in EVALUATION}
        options = dataclasses.replace(options, **parse_fields(kept, fields_of(Options), "option"))
    was, now = {"eval_interval": 0} | before.to_dict() | dict(run), config.to_dict() | identity(config, options)
    if not was["eval_interval"]:  # its metrics.csv has no columns for evaluations
        now["eval_interval"] = options.eval_interval
    if config.env_steps >= before.env_steps:
        was["total_timesteps"] = now["total_timesteps"]
    differ = [f"{name} ({was.get(name)} there, {now[name]} now)" for name in now if was.get(name) != now[name]]
    if differ:
        raise UsageError(
            f"run_dir={str(directory.path)!r} was begun with other settings: {', '.join(differ)}; "
            "resume with the same ones, or start a new run."
        )
    return options


def extend(directory: RunDirectory, config: Config, iteration: int, say: Callable[[str], None]) -> None:
    """Note that the run is to be longer than it was, and say what that means for what it has left to do."""
    before = directory.config
    if config == before:
        return
    directory.update(config)
    sentence = f"extended from {before.env_steps:,} to {config.env_steps:,} steps"
    if config.lr_schedule != "constant":
        schedule = schedule_of(config.lr_schedule)
        was, now = (float(schedule(iteration / each.num_iterations)) for each in (before, config))
        sentence += (
            f"; the learning rate follows its schedule ({config.lr_schedule}) over all of them, so it goes on at "
            f"{now:.1%} of its first value, where the shorter run had come to {was:.1%}"
        )
    for name in falling_ranges(config):
        sizes = (ranges_at(each, each.hypers, iteration / each.num_iterations)[name] for each in (config, before))
        sentence += "; {} goes on at {:.3g}, where the shorter run had come to {:.3g}".format(name, *sizes)
    say(sentence + ".")
