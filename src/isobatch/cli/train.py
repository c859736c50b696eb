"""Train an algorithm on an environment. The run directory holds settings, metrics and checkpoints."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from isobatch.cli import console
from isobatch.cli.flags import Parser, add_config, add_dataclass, config_from, given, given_settings
from isobatch.errors import UsageError
from isobatch.settings.accounting import batch_accounting
from isobatch.settings.config import Config
from isobatch.settings.options import Options
from isobatch.settings.presets import with_stale_objective


def add_flags(parser: Parser) -> None:
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="where the run is kept (default: under runs/)")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --run-dir, bit for bit")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    add_config(parser)
    add_dataclass(parser, "the run", Options)


def run(args: argparse.Namespace) -> int:
    config, options, run_dir = settings_from(args)
    from isobatch.training.devices import use_cores
    from isobatch.training.trainer import train

    use_cores(options.num_seeds, config)
    head = console.err if args.json else console.out
    seeds = f"seed {options.seed}" if options.num_seeds == 1 else f"seeds {options.seed} to {options.seeds[-1]}"
    head.print(f"[bold]{config.algo}[/] on [bold]{config.env}[/], {seeds}")
    lines = batch_accounting(config)
    if config.policy_iterations_per_phase:
        from isobatch.envs.registry import environment_of
        from isobatch.training.memory import in_words, phase_bytes

        lines.append(("phase memory", in_words(phase_bytes(config, environment_of(config), options.num_seeds))))
    head.print(console.pairs([*lines, ("files", str(run_dir))]), markup=False)
    with console.training_bar(config.env_steps, args.quiet) as watch:
        result = train(
            config, run_dir=run_dir, resume=args.resume, watch=watch, say=console.say, **vars(options)
        )  # fmt: skip
    if args.json:
        console.print_json(result.to_json())
    else:
        show(result)
    return 130 if result.interrupted else 0


def settings_from(args: argparse.Namespace) -> tuple[Config, Options, Path]:
    """Config, options and directory of the run that the flags ask for."""
    options = given(args, Options)
    if not args.resume:
        config = config_from(args)
        run_dir = args.run_dir or default_directory(config, options.get("seed", 0))
        if run_dir.exists():
            raise UsageError(f"run_dir={str(run_dir)!r} exists: add --resume to go on with it, or name another one.")
        return config, Options(**options), run_dir
    if args.run_dir is None:
        raise UsageError("--resume needs --run-dir, the directory of the run to go on with.")
    changes = given_settings(args)
    if "preset" in changes:
        raise UsageError(f"preset={changes['preset']!r} cannot be given to a run that has begun: leave it out.")
    from isobatch.training.run_directory import RunDirectory

    directory = RunDirectory.open(args.run_dir)
    about = directory.about
    kept = {name: about[name] for name in ("seed", "num_seeds", "log_interval")}
    config = directory.config
    if "stale_objective" in changes:
        config = with_stale_objective(config, changes.pop("stale_objective"))
    return config.replace(**changes), Options(**(kept | options)), args.run_dir


def default_directory(config: Config, seed: int) -> Path:
    """Named as CleanRL names its runs."""
    env = config.env.replace("/", "-").replace(":", "-")
    return Path("runs") / f"{env}__{config.algo}__{seed}__{time.strftime('%Y%m%d-%H%M%S')}"


def show(result: Any) -> None:
    """The table at the end of a run."""
    rows = [
        [str(seed), console.number(value)]
        for seed, value in zip(result.options.seeds, result.final_return, strict=True)
    ]
    console.out.print()
    console.out.print(console.table("", ["seed", "final return"], rows))
    console.out.print(
        f"\n{result.env_steps:,} steps per seed, {result.steps_per_second:,.0f} steps/s in all, "
        f"{result.compile_seconds:.1f} s to compile."
    )
    if result.interrupted:
        console.out.print(f"Interrupted and kept: isobatch train --resume --run-dir {result.run_dir}", markup=False)
    else:
        console.out.print(f"isobatch eval {result.run_dir}\nisobatch plot {result.run_dir}", markup=False)
