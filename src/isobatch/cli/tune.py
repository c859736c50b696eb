"""Search for better hyperparameters: many trials in one compiled program, the best third goes on.

The search starts from the settings of the preset, the flags or a file. What is given as a flag keeps its value; of the
rest the settings that matter most are searched, or those named by --search. A search that was interrupted goes on where
it stopped: give the same command again, with a larger --budget to go on for longer.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live

from isobatch.cli import console
from isobatch.cli.executors import add_executor, executor_of
from isobatch.cli.flags import Parser, add_config, config_from, construct, given, given_settings
from isobatch.cli.library_settings import add_sources, show_remarks, to_train
from isobatch.envs.catalog import check_env_id
from isobatch.errors import UsageError
from isobatch.formatting import counted
from isobatch.rescaling import KEEPS, MINIBATCH_COUNT
from isobatch.settings.command import train_command
from isobatch.settings.config import Config, Hypers
from isobatch.settings.files import dump_settings
from isobatch.settings.parsing import parse_value
from isobatch.settings.presets import without_environment
from isobatch.tuning.samplers import SAMPLERS
from isobatch.tuning.search_plan import FINALISTS, SearchTask, prepare

if TYPE_CHECKING:
    from isobatch.tuning.search import Watch
    from isobatch.tuning.trials import Trial
    from isobatch.tuning.tuned import Tuned

NUMBERS = {  # flags of `tune` that are whole numbers
    "budget": ("STEPS", "environment steps of everything: all seeds, all trials [those of 100 runs of one seed]"),
    "num_seeds": ("N", "seeds of each trial [3]"),
    "seed": ("N", "the first of them, and the seed of the sampler [0]"),
    "group": ("N", "trials that are compared with each other [24]"),
    "lanes": ("N", "trials x seeds that one program trains at once; more on a GPU [18]"),
    "confirm_seeds": ("N", "new seeds on which the best three are trained once more [6]"),
    "at_num_envs": ("N", "search at this number of environments; the settings are moved there by rule"),
    "for_num_envs": ("N", "move the winner to this number of environments by rule, and confirm it there"),
}
SHOWN_TRIALS = 10  # trials of a table


def add_flags(parser: Parser) -> None:
    parser.add_argument(
        "--search", action="append", default=[], metavar="WHAT",
        help="what to search, instead of the defaults: NAME, NAME=LOW:HIGH or NAME=A,B; repeat it for more",
    )  # fmt: skip
    parser.add_argument(
        "--also", action="append", default=[], metavar="WHAT", help="search this too, or in another range"
    )
    parser.add_argument("--sampler", metavar="{" + ",".join(SAMPLERS) + "}", help="tpe and cma-es need isobatch[tune]")
    for name, (metavar, help_text) in NUMBERS.items():
        flag, convert = "--" + name.replace("_", "-"), partial(parse_value, name, kind=int)
        parser.add_argument(flag, dest=name, type=convert, metavar=metavar, help=help_text)
    parser.add_argument(
        "--keep", default=MINIBATCH_COUNT, metavar="{" + ",".join(KEEPS) + "}",
        help="what stays where the number of environments changes, as in `isobatch rescale` [minibatch-count]",
    )  # fmt: skip
    parser.add_argument(
        "--from-defaults", action="store_true",
        help="start from the algorithm's defaults, not from settings that are known to work on the environment",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="DIR", help="where results go (default runs/tune-ENV-ALGO)")
    add_executor(parser, "groups")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--quiet", action="store_true", help="no table while it searches")
    add_config(parser)
    add_sources(parser)


def run(args: argparse.Namespace) -> int:
    config = start_of(args)
    fixed = given(args, Config, Hypers).keys() - {"env", "algo"}
    asked = {name: getattr(args, name) for name in NUMBERS if getattr(args, name) is not None}
    out = args.out or Path("runs") / f"tune-{config.env}-{config.algo}".replace("/", "-").replace(":", "-")
    task = prepare(
        config, search=args.search, also=args.also, given=fixed, sampler=args.sampler, keep=args.keep, **asked
    )
    try:
        with executor_of(args) as executor:
            introduce(task, out, console.err if args.json else console.out)
            with board(task.plan.ranges, args.quiet) as watch:
                from isobatch.tuning import tune  # with JAX

                tuned = tune.run(task, out, watch, executor)
    except KeyboardInterrupt:
        console.say("interrupted: what is finished is kept; the same command goes on from there.")
        return 130
    if args.json:
        console.print_json(tuned.to_json())
    else:
        show(tuned)
    return 0


def start_of(args: argparse.Namespace) -> Config:
    """Where the search starts."""
    converted = to_train(args)
    if converted is not None:
        show_remarks("settings of another library", converted.remarks, console.err)
    if args.from_defaults:
        settings = given_settings(args)
        if converted is not None or "preset" in settings:
            raise UsageError("--from-defaults starts from the algorithm alone: leave out the other settings.")
        check_env_id(parse_value("env", settings.get("env", Config.env), str))
        return construct(without_environment, {"algo": "ppo", "env": Config.env} | settings)
    return converted.config if converted else config_from(args)


def introduce(task: SearchTask, out: Path, head: console.Output) -> None:
    """What is going to be searched."""
    plan, config = task.plan, task.plan.config
    confirm = f"{FINALISTS} best on {counted(plan.confirm_seeds, 'new seed')}"
    if task.move is not None:
        confirm += f", the winner at {counted(task.move.num_envs, 'environment')}"
    head.print(console.subject(config.algo, config.env, f", {counted(len(plan.ranges), 'setting')} searched"))
    lines = [
        *((name, str(each)) for name, each in plan.ranges.items()),
        ("starts from", f"{config.num_envs} environments x {config.num_steps} steps"),
        ("a trial", f"{counted(plan.num_seeds, 'seed')} x {counted(config.env_steps, 'step')}, if it is not stopped"),
        ("sampler", plan.sampler),
        ("budget", f"{counted(task.budget, 'step')}, of which {task.reserve:,} are for the {confirm}"),
        ("files", str(out)),
    ]
    head.print(console.pairs(lines))


@contextmanager
def board(ranges: Iterable[str], quiet: bool) -> Iterator[Watch]:
    """A table of the best trials that is kept up to date on a terminal; else a line for each group, and every half a
    minute."""
    from isobatch.tuning.trials import ranked
    from isobatch.tuning.tuned import score_text, table_columns, table_row

    labels = set[str]()  # several groups may be trained at once

    def line(label: str, share: float, trials: Sequence[Trial]) -> None:
        done = f"; {counted(len(trials), 'trial')} done" if trials else ""
        best = f", best return {score_text(ranked(trials)[0])}" if trials else ""
        say(f"{math.floor(100 * share):3d} %  {label}{done}{best}", label not in labels)
        labels.add(label)

    if quiet:
        yield lambda label, share, trials: None
    elif not console.err.is_terminal:
        with console.progress_lines() as say:
            yield line
    else:
        with Live(console=console.err, transient=True, refresh_per_second=4) as live:

            def update(label: str, share: float, trials: Sequence[Trial]) -> None:
                rows = [table_row(trial) for trial in ranked(trials)[:SHOWN_TRIALS]]
                head = f"{math.floor(100 * share):3d} %  {label}, {counted(len(trials), 'trial')} done"
                live.update(Group(head, console.table("", table_columns(ranges), rows)))

            yield update


def show(tuned: Tuned) -> None:
    out = console.out
    out.print(console.table("\nThe best trials", tuned.columns(), tuned.rows(SHOWN_TRIALS)))
    out.print(console.heading("\nWhat it found"))
    for sentence in tuned.sentences():
        out.print(console.bullet(sentence))
    if tuned.moved is not None:
        show_remarks("\nwhere the theory stops", tuned.moved.rescaled.warnings)
    out.print(console.heading("\nsettings"))
    out.print(dump_settings(tuned.settings))
    out.print(console.heading("flags"))
    out.print(train_command(tuned.settings))
    out.print(f"\nbest.yaml, trials.csv: {tuned.path}\nReport, to open in a browser: {tuned.path / 'report.html'}")
