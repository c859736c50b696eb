"""Measure the policy gradient of a run: variance, bias, correlation and noise at N environments x T steps.

With a run directory its checkpoints are measured; without one a policy is trained first, with the flags of `train`.
Results are kept in the run directory, and a diagnosis that was interrupted goes on where it stopped. With --sb3 the
policy is that of a model which Stable-Baselines3 saved.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from isobatch.cli import console
from isobatch.cli.flags import Parser, add_config, add_dataclass, construct, given, given_settings
from isobatch.cli.train import train_first
from isobatch.errors import UsageError
from isobatch.files import check_folder
from isobatch.formatting import counted
from isobatch.laboratory.options import LabOptions
from isobatch.settings.config import Config
from isobatch.settings.options import Options
from isobatch.settings.parsing import SettingsByName, parse_value, plain_json

if TYPE_CHECKING:
    from isobatch.laboratory.diagnosis import Diagnosis
    from isobatch.laboratory.sections.section import TextTable

# Settings of a run that may be changed to measure its policy; the others made the policy what it is.
CHANGEABLE = (
    *("num_envs", "num_steps", "num_minibatches", "update_epochs", "minibatch_scheme", "staggered_resets"),
    *("gae_lambda", "learning_rate", "clip_eps", "kl_coef"),
)
DEFAULT_MINUTES = 4.0
SIZES = ("chains", "batches", "direct", "geometries", "branch_samples", "branch_seeds")  # that --time may reduce


def add_flags(parser: Parser) -> None:
    parser.add_argument(
        "run_dir", type=Path, nargs="?", metavar="RUN", help="directory of a run; without one, train first"
    )
    parser.add_argument(
        "--sb3", type=Path, metavar="FILE", help="a saved model of Stable-Baselines3, with --env; it is unpickled"
    )
    parser.add_argument(
        "--vecnormalize", type=Path, metavar="FILE", help="with --sb3: what VecNormalize.save wrote; it is unpickled"
    )
    parser.add_argument(
        "--checkpoint", default="newest", metavar="WHICH", help="newest, best, all, or iterations separated by commas"
    )
    parser.add_argument("--policy-seed", type=int, metavar="N", help="which of the run's seeds (default: the first)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where results are kept (default: RUN/diagnosis)")
    parser.add_argument(
        "--time",
        metavar="MINUTES",
        help="measure less where it would take longer; 0: no limit "
        f"(default: {DEFAULT_MINUTES:g}, and no limit where one of --{', --'.join(SIZES).replace('_', '-')} is given)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    add_dataclass(parser, "what to measure, and how well", LabOptions)
    add_config(parser)
    add_dataclass(parser, "the run, if it has to be trained first", Options)


def run(args: argparse.Namespace) -> int:
    asked = given(args, LabOptions)
    options, minutes = construct(LabOptions, asked), _minutes(args.time, asked)
    if args.sb3 is not None:
        return _run_sb3(args, options)
    if args.vecnormalize is not None:
        raise UsageError(
            f"vecnormalize={str(args.vecnormalize)!r} is for a model of Stable-Baselines3: add --sb3 FILE."
        )
    run_dir = args.run_dir or train_first(args, "diagnose")
    config, changes = _settings(args, run_dir)
    timeout = getattr(args, "env_timeout", Options.env_timeout)
    if "branches" in options.chosen:  # which trains: each seed on a core
        from isobatch.training.devices import use_cores

        use_cores(config=config)
    from isobatch.laboratory.diagnosis import diagnose
    from isobatch.laboratory.known import critical_batches
    from isobatch.laboratory.over_training import draw_critical_batches, table_over_training
    from isobatch.laboratory.sections.geometries import draw_over_training

    out = args.out or run_dir / "diagnosis"
    check_folder(out, f"out={str(out)!r}")
    pictures: list[Path] = []
    with console.progress_bar(args.quiet) as watch:
        diagnoses = diagnose(
            run_dir, options, args.checkpoint, args.policy_seed, out, changes, watch, console.say, timeout, minutes,
            ready=lambda part: pictures.extend(part.draw(out)),
        )  # fmt: skip
    if len(diagnoses) > 1 and "geometries" in diagnoses[0].sections:
        pictures.append(out / "training-time.png")
        draw_over_training(diagnoses, pictures[-1])
    known = critical_batches(run_dir, out) if "branches" in options.chosen else []
    if known:
        pictures.append(out / "critical-batch.png")
        draw_critical_batches(known, config.geometry.optimization_batch, pictures[-1], diagnoses[0].title)
    if args.json:
        measured: dict[str, object] = {"run_dir": str(run_dir), "env": config.env, "algo": config.algo, "out": str(out)}
        measured["checkpoints"] = [diagnosis.to_json() for diagnosis in diagnoses]
        if known:
            measured["critical_batches"] = [plain_json(entry) for entry in known]
        console.print_json({**measured, "pictures": [str(path) for path in pictures]})
        return 0
    for diagnosis in diagnoses:
        show(diagnosis)
    if known:
        show_table(table_over_training(known))
    console.out.print(f"\n{counted(len(pictures), 'picture')} and the numbers: {out}")
    return 0


def _run_sb3(args: argparse.Namespace, options: LabOptions) -> int:
    """Measure the policy of a model of Stable-Baselines3."""
    if args.run_dir is not None:
        raise UsageError(f"run_dir={str(args.run_dir)!r} and sb3={str(args.sb3)!r}: give one of them.")
    changes = given_settings(args)
    if "env" not in changes:
        raise UsageError(f"env is missing: the model {str(args.sb3)!r} does not say it; give --env LunarLander-v3.")
    env = parse_value("env", changes.pop("env"), str)
    possible = (*CHANGEABLE, "env_kwargs", "vectorization")
    for name in (*changes, *(option for option in given(args, Options) if option != "env_timeout")):
        if name not in possible:
            raise UsageError(f"{name} was fixed when the model was trained: use some of {', '.join(possible)}.")
    try:
        from isobatch.laboratory.sb3_source import diagnose_sb3
    except ModuleNotFoundError as missing:
        raise UsageError(f"sb3={str(args.sb3)!r} needs {missing.name}: pip install 'isobatch[sb3]'.") from None

    out = args.out or args.sb3.with_name(f"{args.sb3.stem}-diagnosis")
    check_folder(out, f"out={str(out)!r}")
    timeout = getattr(args, "env_timeout", Options.env_timeout)
    pictures: list[Path] = []
    with console.progress_bar(args.quiet) as watch:
        diagnosis = diagnose_sb3(
            args.sb3, env, options, args.vecnormalize, out, changes, watch, console.say, timeout,
            ready=lambda part: pictures.extend(part.draw(out)),
        )  # fmt: skip
    if args.json:
        measured = {"sb3": str(args.sb3), "env": env, "out": str(out), "checkpoints": [diagnosis.to_json()]}
        console.print_json({**measured, "pictures": [str(path) for path in pictures]})
        return 0
    show(diagnosis)
    console.out.print(f"\n{counted(len(pictures), 'picture')} and the numbers: {out}")
    return 0


def _minutes(text: str | None, asked: SettingsByName) -> float:
    """Of the flag; sizes that were asked for are kept."""
    if text is None:
        return 0.0 if asked.keys() & set(SIZES) else DEFAULT_MINUTES
    minutes: float = parse_value("time", text, float)
    if not 0 <= minutes < math.inf:
        raise UsageError(f"time={text} is not valid: use minutes, or 0 for no limit.")
    return minutes


def _settings(args: argparse.Namespace, run_dir: Path) -> tuple[Config, SettingsByName]:
    """The run's settings, and those of them that the flags change for the measurement."""
    from isobatch.training.run_directory import RunDirectory

    config = RunDirectory.open(run_dir).config
    if args.run_dir is None:
        return config, {}
    for name, value in given(args, Options).items():
        if name == "env_timeout":  # which holds while measuring too
            continue
        raise UsageError(
            f"{name}={value} is for training, and {str(run_dir)!r} is trained: leave it out. (--policy-seed chooses "
            "one of its seeds, --measure-seed what is drawn while measuring.)"
        )
    changes = given_settings(args)
    if changes.get("env", config.env) != config.env:
        raise UsageError(
            f"env={changes['env']!r} is not the environment of {str(run_dir)!r}, {config.env!r}: leave it out, or "
            "name a run that was trained on it."
        )
    changes = {name: value for name, value in changes.items() if getattr(config, name, None) != value}
    for name in changes:
        if name not in CHANGEABLE:
            raise UsageError(
                f"{name}={changes[name]} was fixed when {str(run_dir)!r} was trained: leave it out, or train anew. "
                f"What can be changed to measure is {', '.join(CHANGEABLE)}."
            )
    return config, changes


def show(diagnosis: Diagnosis) -> None:
    """The tables of one checkpoint, and what they mean."""
    console.out.print(console.heading(f"\n{diagnosis.title}", f" after {diagnosis.env_steps:,} steps"))
    for table in diagnosis.tables():
        show_table(table)
    console.out.print(console.heading("\nWhat it means"))
    for sentence in diagnosis.sentences():
        console.out.print(console.bullet(sentence))


def show_table(table: TextTable) -> None:
    console.out.print(console.table(f"\n{table.title}", table.columns, table.rows))
