"""Train an algorithm on an environment. The run directory holds settings, metrics and checkpoints."""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from isobatch.cli import console
from isobatch.cli.console import Output
from isobatch.cli.flags import (
    ActorCount,
    Parser,
    add_config,
    add_dataclass,
    config_from,
    construct,
    given,
    given_settings,
)
from isobatch.cli.library_settings import SOURCES, add_sources, show_remarks, to_train
from isobatch.errors import RunError, UsageError
from isobatch.formatting import byte_text, counted, setting_text
from isobatch.settings.accounting import batch_accounting, samples_used
from isobatch.settings.config import Config
from isobatch.settings.fields import COUNT
from isobatch.settings.options import Options
from isobatch.settings.parsing import parse_value
from isobatch.settings.presets import with_stale_objective
from isobatch.settings.team import AUTO, Team

if TYPE_CHECKING:
    from isobatch.training.result import Result
    from isobatch.training.run_directory import RunDirectory
    from isobatch.training.stages import StagesInfo


def add_flags(parser: Parser) -> None:
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="where the run is kept (default: under runs/)")
    parser.add_argument(
        "--resume", nargs="?", const="", metavar="RUN",
        help="go on with this run, or the one in --run-dir, bit for bit; with a larger --total-timesteps for longer",
    )  # fmt: skip
    parser.add_argument(
        "--restart", action="store_true", help="with --resume: start over if none of its checkpoints can be used"
    )
    parser.add_argument(
        "--init-from", metavar="RUN", help="start with the networks and the observation normalizer of another run"
    )
    parser.add_argument(
        "--batch-schedule", metavar="SHARE:N,SHARE:N",
        help="environments from these shares of the run on, as in 0:64,0.2:256: each stage a run from where the one "
        "before it ended, with the settings that the rules of `rescale` give from num_envs",
    )  # fmt: skip
    parser.add_argument(
        "--from-devices", type=partial(parse_value, "from_devices", kind=int), metavar="N",
        help="the settings were tuned on N devices: each keeps its environments, the rules of `rescale` do the rest",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    add_config(parser)
    add_sources(parser)
    add_dataclass(parser, "the run", Options)
    add_dataclass(parser, "several processes", Team)


def run(args: argparse.Namespace) -> int:
    config, options, run_dir = settings_from(args)
    from isobatch.training.devices import use_cores
    from isobatch.training.processes import is_first, joined

    use_cores(options.num_seeds, config, options.devices, actor_kind=options.actor_kind)
    with joined(team_of(args), lambda sentence: console.say(f"isobatch: {sentence}{kept(run_dir)}")):
        return _train(args, config, options, run_dir, is_first())


def _train(args: argparse.Namespace, config: Config, options: Options, run_dir: Path, speaks: bool) -> int:
    """Of several processes one `speaks` for all."""
    from isobatch.training.stages import train_stages
    from isobatch.training.trainer import train

    if speaks:
        introduce(config, options, run_dir, console.err if args.json else console.out)
    stages = train if args.batch_schedule is None else partial(train_stages, schedule=args.batch_schedule)
    with console.training_bar(config.env_steps, args.quiet or not speaks) as watch:
        result = stages(
            config,
            run_dir=run_dir,
            resume=args.resume is not None,
            restart=args.restart,
            init_from=args.init_from,
            watch=watch,
            say=console.say if speaks else lambda sentence: None,
            **vars(options),
        )
    if speaks and args.json:
        console.print_json(result.to_json())
    elif speaks:
        show(result)
    return 130 if result.interrupted else 0


def train_first(args: argparse.Namespace, command: str, **changes: object) -> Path:
    """Train the run that `command` looks at, where none was named; its directory."""
    config, options = config_from(args).replace(**changes), construct(Options, given(args, Options))
    run_dir = default_directory(config, options.seed)
    from isobatch.training.devices import use_cores
    from isobatch.training.run_directory import RunDirectory
    from isobatch.training.trainer import train

    use_cores(options.num_seeds, config, options.devices, actor_kind=options.actor_kind)
    console.say(f"training {config.algo} on {config.env} first, {config.env_steps:,} steps, into {run_dir}")
    with console.training_bar(config.env_steps, args.quiet) as watch:
        result = train(config, run_dir=run_dir, watch=watch, say=console.say, **vars(options))
    if result.interrupted:
        quoted = RunDirectory(run_dir).quoted
        raise RunError(f"interrupted: isobatch train --resume {quoted}, then isobatch {command} {quoted}")
    return run_dir


def introduce(config: Config, options: Options, run_dir: Path, head: Output) -> None:
    """What is going to be trained."""
    from isobatch.envs.registry import environment_of

    time_limit = None
    if config.complete_episodes:  # refused before anything is said of a run that cannot be
        from isobatch.learning.state import check_whole_episodes

        check_whole_episodes(config, environment_of(config))
        time_limit = environment_of(config).max_steps
    seeds = f"seed {options.seed}" if options.num_seeds == 1 else f"seeds {options.seed} to {options.seeds[-1]}"
    head.print(console.subject(config.algo, config.env, f", {seeds}"))
    lines = batch_accounting(config, time_limit)
    if config.policy_iterations_per_phase:
        from isobatch.training.memory import phase_bytes

        lines.append(("phase memory", byte_text(phase_bytes(config, environment_of(config), options.num_seeds))))
    if config.complete_episodes:
        used, batch = samples_used(config, time_limit), config.geometry.iteration_batch
        steps = f"{used.bound}{counted(used.iteration, 'step')}"
        sentence = f"used: {steps} of the {batch:,} ({used.iteration / batch:.0%})"
        lines.insert(1, ("whole episodes", f"{sentence}, those of episodes that end in their row at any length"))
    head.print(console.pairs([*lines, ("files", str(run_dir))]))


def settings_from(args: argparse.Namespace) -> tuple[Config, Options, Path]:
    """Config, options and directory of the run that the flags ask for."""
    from isobatch.training.run_directory import CONFIG, RunDirectory
    from isobatch.training.schedule_file import run_to_replay

    options, team = given(args, Options), team_of(args)
    if args.batch_schedule is not None:
        check_alone(args, team)
    if isinstance(actors := getattr(args, "actors", None), ActorCount):
        args.actors = int(actors)
        if actors.kind is not None:
            options["actor_kind"] = actors.kind
    if args.resume is None:
        replay = getattr(args, "replay", None)
        if replay is not None and args.config is None:  # it is that run, where flags do not say otherwise
            replayed = run_to_replay(Path(replay))
            args.config, options = replayed.path / CONFIG, began_with(replayed) | options
        if args.restart:
            raise UsageError("--restart is for a run that goes on: add --resume, or leave it out.")
        parsed = construct(Options, options)
        converted = to_train(args)
        config = converted.config if converted else config_from(args)
        if converted and team.process_id == 0:
            show_remarks("settings of another library", converted.remarks, console.err)
        if args.from_devices is not None:
            config = moved(config, args.from_devices, max(parsed.devices, team.num_processes))
        config = parsed.sharded(config, team.num_processes)
        run_dir = args.run_dir or default_directory(config, parsed.seed)
        if team.process_id == 0 and team.coordinator != AUTO:
            RunDirectory.check_new(run_dir)
        return config, parsed, run_dir
    if any(getattr(args, f"from_{name}") is not None for name in SOURCES):
        raise UsageError("--resume goes on with the settings of a run: leave the other library's out.")
    if args.init_from is not None:
        raise UsageError("--init-from is for a new run, and --resume goes on with one: leave one of them out.")
    if args.resume and args.run_dir is not None:
        raise UsageError(f"--resume {args.resume} and --run-dir {args.run_dir} both name a run: give one of them.")
    run_dir = Path(args.resume) if args.resume else args.run_dir
    if run_dir is None:
        raise UsageError("--resume needs a run to go on with: --resume RUN.")
    changes = given_settings(args)
    if "preset" in changes:
        raise UsageError(f"preset={changes['preset']!r} cannot be given to a run that has begun: leave it out.")
    stages = stages_in(run_dir)
    if stages is not None:
        args.batch_schedule = stages["batch_schedule"]
        config, kept = Config.from_dict(stages["config"]), stages["options"]
    else:
        directory = RunDirectory.open(run_dir)
        config = directory.config
        kept = began_with(directory)
    if "stale_objective" in changes:
        config = with_stale_objective(config, changes.pop("stale_objective"))
    return config.replace(**changes), construct(Options, kept | options), run_dir


def began_with(directory: RunDirectory) -> dict[str, object]:
    return {name: value for name, value in directory.info.items() if name in ("seed", "num_seeds", "log_interval")}


def stages_in(run_dir: Path) -> StagesInfo | None:
    """What a run in stages was begun with; None for any other."""
    from isobatch.training.run_directory import STAGES
    from isobatch.training.stages import read_stages

    return read_stages(run_dir) if (run_dir / STAGES).is_file() else None


def check_alone(args: argparse.Namespace, team: Team) -> None:
    """Raise where a schedule of environments does not go with other flags."""
    for flag in ("resume", "init_from", "from_devices"):
        if getattr(args, flag) is not None:
            raise UsageError(
                f"--batch-schedule is for a new run of one's own settings: leave --{flag.replace('_', '-')} out"
                + (", it knows its schedule." if flag == "resume" else ".")
            )
    if team.num_processes > 1:
        raise UsageError(f"--batch-schedule is for one process, not num_processes={team.num_processes}: use --devices.")


def team_of(args: argparse.Namespace) -> Team:
    return construct(Team, given(args, Team))


def kept(run_dir: Path) -> str:
    """What to do when another process has failed."""
    from isobatch.training.run_directory import RunDirectory

    quoted = RunDirectory(run_dir).quoted
    return f" The last checkpoint is kept: go on with isobatch train --resume {quoted}, in each process."


def moved(config: Config, before: int, devices: int) -> Config:
    """Settings that were tuned on other devices; what changes is said."""
    from isobatch.rescaling import rescale

    COUNT.check("from_devices", before)
    if devices < 2 and before < 2:
        raise UsageError(f"from_devices={before} needs another number of devices to go to: add --devices.")
    result = rescale(config, devices=devices, devices_before=before)
    for change in result.changes:
        console.say(
            f"{change.name}: {setting_text(change.before, 6)} -> {setting_text(change.after, 6)} ({change.rule})"
        )
    for warning in result.warnings:
        console.say(f"caution: {warning}")
    return result.after


def default_directory(config: Config, seed: int) -> Path:
    """Named as CleanRL names its runs."""
    env = config.env.replace("/", "-").replace(":", "-")
    return Path("runs") / f"{env}__{config.algo}__{seed}__{time.strftime('%Y%m%d-%H%M%S')}"


def show(result: Result) -> None:
    """The table at the end of a run."""
    from isobatch.training.run_directory import RunDirectory

    columns = {"final return": result.final_return}
    if result.options.eval_interval:
        columns["evaluation"] = result.newest_evaluation
    rows = [
        [str(seed), *map(console.number, values)]
        for seed, *values in zip(result.options.seeds, *columns.values(), strict=True)
    ]
    console.out.print()
    console.out.print(console.table("", ["seed", *columns], rows))
    speed = f", {result.steps_per_second:,.0f} steps/s in all, {result.compile_seconds:.1f} s to compile"
    console.out.print(f"\n{result.env_steps:,} steps per seed{speed if result.steps_per_second else ''}.")
    assert result.run_dir is not None  # the command keeps every run
    import numpy as np

    used = result.metrics.get("charts/samples_used")
    if used is not None and len(used):
        share = float(np.nanmean(used)) / result.config.geometry.iteration_batch
        console.out.print(f"{share:.0%} of the steps were learned from: whole episodes.")
    if result.options.eval_interval:
        console.out.print(evaluations_sentence(result))
    quoted = RunDirectory(result.run_dir).quoted
    if result.interrupted:
        console.out.print(f"Interrupted and kept: isobatch train --resume {quoted}")
    else:
        console.out.print(f"isobatch eval {quoted}\nisobatch plot {quoted}")


def evaluations_sentence(result: Result) -> str:
    """How often the run was evaluated, and where that is kept."""
    steps = sorted(set(result.evaluations["env_steps"].tolist()))
    if not steps:
        return f"No seed was evaluated: no training return reached {result.options.eval_threshold:g}."
    times, episodes = counted(len(steps), "evaluation"), counted(result.options.eval_episodes, "episode")
    return f"{times} of {episodes}, from step {steps[0]:,} on: columns eval/ of metrics.csv in the run's directory."
