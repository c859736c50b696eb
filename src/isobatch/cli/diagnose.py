"""Measure the policy gradient of a run: variance, bias, correlation and noise at N environments x T steps.

With a run directory its checkpoints are measured; without one a policy is trained first, with the flags of `train`.
Results are kept in the run directory, and a diagnosis that was interrupted goes on where it stopped.
`--preset pendulum-post` makes everything that a blog post shows, and more.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from isobatch.cli import console
from isobatch.cli.flags import Parser, add_config, add_dataclass, config_from, given, given_settings
from isobatch.cli.train import default_directory
from isobatch.errors import RunError, UsageError
from isobatch.laboratory.options import LabOptions
from isobatch.settings.config import Config, Hypers
from isobatch.settings.options import Options
from isobatch.settings.published import PUBLISHED

# Settings of a run that may be changed to measure its policy; the others made the policy what it is.
CHANGEABLE = (
    *("num_envs", "num_steps", "num_minibatches", "update_epochs", "minibatch_scheme", "staggered_resets"),
    *("gae_lambda", "learning_rate", "clip_eps", "kl_coef"),
)
COLUMNS = ("variance", "squared_bias", "error")
TERMS = ("individual", "within", "across")


def add_flags(parser: Parser) -> None:
    parser.add_argument(
        "run_dir", type=Path, nargs="?", metavar="RUN", help="directory of a run; without one, train first"
    )
    parser.add_argument(
        "--checkpoint", default="newest", metavar="WHICH", help="newest, best, all, or iterations separated by commas"
    )
    parser.add_argument("--policy-seed", type=int, metavar="N", help="which of the run's seeds (default: the first)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where results are kept (default: RUN/diagnosis)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    add_dataclass(parser, "what to measure, and how well", LabOptions)
    add_config(parser)
    add_dataclass(parser, "the run, if it has to be trained first", Options)


def run(args: argparse.Namespace) -> int:
    options = LabOptions(**given(args, LabOptions))
    if getattr(args, "preset", None) not in (None, *PUBLISHED):
        return _post(args, options)
    run_dir = args.run_dir or _train(args)
    config, changes = _settings(args, run_dir)
    timeout = given(args, Options).get("env_timeout", Options.env_timeout)
    from isobatch.laboratory.diagnosis import diagnose
    from isobatch.laboratory.plots_old import draw_all, training_time
    from isobatch.laboratory.words_old import sentences

    out = args.out or run_dir / "diagnosis"
    with console.progress_bar(args.quiet) as watch:
        results = diagnose(
            run_dir, options, args.checkpoint, args.policy_seed, out, changes, watch, console.say, timeout
        )
    title = f"{config.algo} on {config.env}"
    pictures = []
    for result in results:
        pictures += draw_all(result, out, f"{title}, {result['env_steps']:,} steps")
    if len(results) > 1 and "geometries" in results[0]:
        training_time(results, out / "training-time.png", title)
        pictures.append(out / "training-time.png")
    if args.json:
        said = [{**result, "sentences": sentences(result)} for result in results]
        about = {"run_dir": str(run_dir), "env": config.env, "algo": config.algo, "out": str(out)}
        console.print_json({**about, "checkpoints": said, "pictures": [str(path) for path in pictures]})
        return 0
    for result in results:
        show(result, title)
    console.out.print(f"\n{len(pictures)} pictures and the numbers: {out}", markup=False)
    return 0


def _settings(args: argparse.Namespace, run_dir: Path) -> tuple[Config, dict[str, Any]]:
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


def _train(args: argparse.Namespace) -> Path:
    """Train the policy that is to be measured."""
    config, options = config_from(args), Options(**given(args, Options))
    run_dir = default_directory(config, options.seed)
    from isobatch.training.devices import use_cores
    from isobatch.training.trainer import train

    use_cores(options.num_seeds)
    console.say(f"training {config.algo} on {config.env} first, into {run_dir}")
    with console.training_bar(config.env_steps, args.quiet) as watch:
        result = train(config, run_dir=run_dir, watch=watch, say=console.say, **vars(options))
    if result.interrupted:
        raise RunError(f"interrupted: isobatch train --resume --run-dir {run_dir}, then isobatch diagnose {run_dir}")
    return run_dir


def _post(args: argparse.Namespace, options: LabOptions) -> int:
    if args.preset != "pendulum-post":
        raise UsageError(
            f"preset={args.preset!r} is unknown: use pendulum-post, or to train first {', '.join(PUBLISHED)}."
        )
    ignored = [*given(args, LabOptions, Config, Hypers, Options), *(["run_dir"] if args.run_dir else [])]
    for name in ignored:
        if name != "measure_seed":
            raise UsageError(
                f"preset={args.preset!r} has a run and settings of its own, and {name} is given: leave it out. What "
                "can be chosen are measure_seed and out."
            )
    from isobatch.studies.blog_post import reproduce

    out = args.out or Path("runs") / "pendulum-post"
    with console.progress_bar(args.quiet) as watch:
        found = reproduce(out, options.measure_seed, watch, console.say)
    if args.json:
        console.print_json({"out": str(out), **found})
        return 0
    for claim in found["claims"]:
        console.out.print(console.bullet(f"{claim['claim']}: {claim['verdict']}. {claim['evidence']}."))
    console.out.print(f"\n{len(found['pictures'])} pictures and the numbers: {out}", markup=False)
    return 0


def show(result: dict[str, Any], title: str) -> None:
    """The tables of one checkpoint, and what they mean."""
    from isobatch.laboratory.words_old import sentences

    console.out.print(f"\n[bold]{title}[/] after {result['env_steps']:,} steps")
    if "geometries" in result:
        _show_geometries(result["geometries"])
    if "lambdas" in result:
        _show_lambdas(result["lambdas"])
    if "restraint" in result:
        _show_restraint(result["restraint"])
    console.out.print("\n[bold]What it means[/]")
    for sentence in sentences(result):
        console.out.print(console.bullet(sentence))


def _show_geometries(found: dict[str, Any]) -> None:
    rows, resets = found["rows"], "staggered" if found["staggered_resets"] else "together"
    unit = _unit([row["error"]["value"] for row in rows])
    table = []
    for row in rows:
        cells = [f"{row['num_envs']}x{row['num_steps']}", *(_with_interval(row[name], unit) for name in COLUMNS)]
        measured = _with_interval(row["measured_variance"], unit) if "measured_variance" in row else "-"
        samples = _with_interval(row["effective_samples"], 1.0, 0)
        table.append([*cells, measured, samples, f"{1e3 * row['seconds_per_batch']:.1f}"])
    console.out.print(
        console.table(
            f"\nBatches of {found['budget']:,} samples, lambda {found['gae_lambda']:g}, environments reset {resets}; "
            f"{_in_units(unit)}with 95 % intervals",
            ["N x T", "variance", "squared bias", "error", "variance, direct", "effective samples", "ms/batch"],
            table,
        )
    )
    terms = [
        [f"{row['num_envs']}x{row['num_steps']}", *(_with_interval(row[name], unit) for name in TERMS)] for row in rows
    ]
    title = f"\nThe variance is the sum of ({_in_units(unit)}from {found['chains']} chains)"
    heading = ["N x T", "single samples", "pairs within an environment", "pairs of two environments"]
    console.out.print(console.table(title, heading, terms))


def _show_lambdas(found: dict[str, Any]) -> None:
    unit = _unit([row["error"]["value"] for row in found["rows"]])
    rows = [
        [
            f"{row['num_envs']}x{row['num_steps']}, {row['gae_lambda']:g}",
            *(_with_interval(row[n], unit) for n in COLUMNS),
        ]
        for row in found["rows"]
    ]
    heading = ["N x T, lambda", "variance", "squared bias", "error"]
    console.out.print(console.table(f"\nThe effect of lambda, {_in_units(unit)}with 95 % intervals", heading, rows))


def _show_restraint(found: dict[str, Any]) -> None:
    rows = [
        [
            str(row["epoch"]),
            *(_with_interval(row[name], 1.0, 3) for name in ("cosine", "length_ratio", "clip_fraction", "kl")),
        ]
        for row in found["rows"]
    ]
    heading = ["epochs", "cosine", "ratio of lengths", "out of range", "KL"]
    title = f"\nThe gradient with the restraint ({found['objective']}) against the one without"
    console.out.print(console.table(title, heading, rows))


def _unit(values: list[float]) -> float:
    """The power of ten just below the smallest of these."""
    import math

    positive = [value for value in values if value > 0]
    return 10.0 ** math.floor(math.log10(min(positive))) if positive else 1.0


def _in_units(unit: float) -> str:
    return "" if unit == 1 else f"in units of {unit:.0e}, "


def _with_interval(found: dict[str, Any], unit: float, digits: int = 2) -> str:
    if found["value"] is None:
        return "-"
    value, low, high = ("inf" if x is None else f"{x / unit:z,.{digits}f}" for x in found.values())
    return value if found["low"] is None else f"{value} [{low}, {high}]"
