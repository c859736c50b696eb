"""Flags for settings of other libraries, and what is said about them; `rescale` and `train` share them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from isobatch.cli import console
from isobatch.cli.flags import Parser, given
from isobatch.errors import UsageError
from isobatch.files import read_text
from isobatch.settings.config import Config, Hypers

if TYPE_CHECKING:
    from isobatch.interop.conversion import Converted
    from isobatch.interop.library import LibrarySettings

SOURCES = {
    "zoo": ("FILE", "Stable-Baselines3 settings as rl-zoo3 keeps them (with --env, and --algo unless the file says)"),
    "cleanrl": ("FLAGS", "a CleanRL command line, in quotes"),
    "rllib": ("FILE", "RLlib PPO settings"),
    "torchrl": ("FILE", "TorchRL PPO settings"),
    "skrl": ("FILE", "skrl PPO settings (with --num-envs)"),
    "rsl-rl": ("FILE", "rsl_rl, Isaac Lab or mjlab settings, YAML or Python that is not executed (with --num-envs)"),
    "rl-games": ("FILE", "rl_games PPO settings (with --num-envs if they leave it to a script)"),
    "brax": ("FILE", "Brax or MuJoCo Playground PPO settings, YAML, JSON or Python that is not executed"),
    "pufferlib": ("FILE", "PufferLib's .ini settings"),
    "ml-agents": ("FILE", "Unity ML-Agents PPO settings"),
}


def add_sources(parser: Parser) -> argparse._ArgumentGroup:
    """A flag for each library; returns their group."""
    group = parser.add_argument_group("other libraries")
    for name, (metavar, help_text) in SOURCES.items():
        group.add_argument(f"--from-{name}", dest=f"from_{name}", metavar=metavar, help=f"read {help_text}")
    group.add_argument(
        "--entry", metavar="NAME", help="environment, behavior, class or function in a file that has several [--env]"
    )
    return group


def library_settings_from(args: argparse.Namespace) -> LibrarySettings | None:
    """The settings of another library, if some were named; flags override them."""
    named = [name for name in SOURCES if getattr(args, f"from_{name}") is not None]
    if not named:
        if args.entry is not None:
            raise UsageError(f"--entry {args.entry} is of a file of another library: give one with --from-...")
        return None
    if len(named) > 1:
        raise UsageError(f"--from-{named[0]} and --from-{named[1]} cannot go together: give one of them.")
    for flag in ("config", "preset", "stale_objective"):
        if getattr(args, flag, None) is not None:
            raise UsageError(f"--{flag.replace('_', '-')} and --from-{named[0]} cannot go together: give one of them.")
    if getattr(args, "run_dir", None) is not None and not hasattr(args, "resume"):
        raise UsageError(f"--from-{named[0]} and the run {args.run_dir} cannot go together: give one of them.")
    from isobatch import interop

    name, source = named[0], getattr(args, f"from_{named[0]}")
    text = source if name == "cleanrl" else read_text(Path(source), f"--from-{name}")
    overrides = {name: value for name, value in given(args, Config, Hypers).items() if name not in ("env", "algo")}
    env, algo = getattr(args, "env", None), getattr(args, "algo", None)
    if algo not in ("ppo", "a2c"):  # ppo-ewma is made of PPO's
        stem = Path(source).stem if name == "zoo" and algo is None else "ppo"
        algo = next((known for known in ("a2c", "ppo") if known in stem.lower()), None)
    if algo is None:
        raise UsageError(f"--from-zoo {source!r} does not say the algorithm: add --algo ppo or --algo a2c.")
    try:
        return interop.read(interop.library(name), text, env=args.entry or env, algo=algo, overrides=overrides)
    except UsageError as error:
        raise UsageError(f"--from-{name} {source!r}: {error}") from None


def asked_algorithm(args: argparse.Namespace) -> str | None:
    """An algorithm that settings of another library are to be made into."""
    algo = getattr(args, "algo", None)
    return None if algo in ("ppo", "a2c") else algo


def to_train(args: argparse.Namespace) -> Converted | None:
    """Settings of another library for a run here, on an environment of this package."""
    there = library_settings_from(args)
    if there is None:
        return None
    from isobatch.envs.matching import matched_env
    from isobatch.interop.conversion import Converted, for_isobatch

    converted = for_isobatch(there, algo=asked_algorithm(args))
    name = getattr(args, "env", None) or converted.config.env
    env, remark = matched_env(name)
    return Converted(converted.config.replace(env=env), (*filter(None, [remark]), *converted.remarks))


def show_remarks(title: str, remarks: tuple[str, ...] | list[str], out: console.Output | None = None) -> None:
    """Sentences under a heading, if there are any."""
    if remarks:
        place = out or console.out
        place.print(console.heading(title))
        for remark in remarks:
            place.print(console.bullet(remark))
        place.print()
