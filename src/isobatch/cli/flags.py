"""Flags made from dataclasses: name, type and help text stand once, at the field.

Every flag is absent unless it was given, so that presets, YAML files and resumed runs can fill in the rest.
Values go through the same `parse_value` as those of a YAML file and fail with the same sentences.
"""

from __future__ import annotations

import argparse
import typing
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import NoReturn, TypeVar

from isobatch.envs.catalog import IN_JAX, check_env_id
from isobatch.errors import UsageError, near_matches, unknown_name
from isobatch.settings.config import Config, Hypers, iterations_of
from isobatch.settings.fields import COUNT, POSITIVE, Field, fields_of
from isobatch.settings.options import LONGEST_EPISODE, Options
from isobatch.settings.parsing import JsonMapping, SettingsByName, parse_value
from isobatch.settings.presets import ALGORITHMS, PUBLISHED, STALE_OBJECTIVES, preset

T = TypeVar("T")
HELP = {"algo": f"Algorithm, which fills the choices below: {', '.join(ALGORITHMS)}."}  # better than at the field


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are one sentence; help is made by `help`."""

    def __init__(self, prog: str, description: str | None = None) -> None:
        self.fields: dict[str, tuple[argparse.Action, Field]] = {}  # those of dataclasses, by name
        super().__init__(prog=prog, description=description, allow_abbrev=False, add_help=False)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message[0].lower()}{message[1:].rstrip('.')}. {self.hint}")

    @property
    def hint(self) -> str:
        return f"`{self.prog} --help-all` lists what there is."

    def show_values(self, values: SettingsByName) -> None:
        """Say after each field's help text what it is: its default unless another value is given."""
        for name, (action, field) in self.fields.items():
            shown = _shown(values.get(name, field.default))
            action.help = f"{HELP.get(name, field.help)} [{shown}]".replace("%", "%%")

    def _get_value(self, action: argparse.Action, arg_string: str) -> object:
        """As argparse does it, but a UsageError keeps its sentence: argparse makes its own of every ValueError."""
        if callable(action.type):
            try:
                return action.type(arg_string)
            except UsageError:
                raise
            except (TypeError, ValueError):
                pass
        return super()._get_value(action, arg_string)

    def flags(self) -> list[str]:
        return [flag for action in self._actions for flag in action.option_strings]


def add_dataclass(parser: Parser, title: str, owner: type) -> None:
    """One flag for each field of a dataclass; `--no-name` also for booleans."""
    group = parser.add_argument_group(title)
    for name, field in fields_of(owner).items():
        flag = "--" + name.replace("_", "-")
        convert = SPECIAL.get(name, partial(parse_value, name, kind=field.kind))
        action = group.add_argument(
            flag, dest=name, default=argparse.SUPPRESS, type=convert, metavar=_metavar(field.kind)
        )
        if field.kind is bool:
            action.nargs, action.const = "?", True
            group.add_argument(
                flag.replace("--", "--no-", 1), dest=name, action="store_const", const=False,
                default=argparse.SUPPRESS, help=argparse.SUPPRESS,
            )  # fmt: skip
        parser.fields[name] = action, field


class ActorCount(int):
    """How many actors, and where they run, if that was said too: `ray:8`."""

    kind: str | None = None


def actor_count(text: str) -> ActorCount:
    kinds = fields_of(Options)["actor_kind"].kind
    if text in typing.get_args(kinds):
        raise UsageError(f"actors={text!r} says where and not how many: use {text}:2.")
    kind, colon, number = text.rpartition(":")
    count = ActorCount(parse_value("actors", number, int))
    if colon:
        count.kind = str(parse_value("actors", kind, kinds))
    return count


def lag(text: str) -> int | str:
    """Environment steps, or a text that says how many iterations."""
    return text if iterations_of(text) is not None else parse_value("max_lag", text, int)


SPECIAL: dict[str, Callable[[str], object]] = {"actors": actor_count, "max_lag": lag}  # besides what their fields take


def add_config(parser: Parser) -> None:
    """The flags of everything that can be trained."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file of settings; flags override it")
    parser.add_argument(
        "--preset", default=argparse.SUPPRESS, metavar="NAME",
        help=f"settings as published: {', '.join(PUBLISHED)}; with --env on another environment",
    )  # fmt: skip
    parser.add_argument(
        "--stale-objective",
        default=argparse.SUPPRESS,
        metavar="{" + ",".join(STALE_OBJECTIVES) + "}",
        help="one of the paper's three ways to treat stale data: sets --importance-policy and --proximal-policy",
    )
    add_dataclass(parser, "what to train, and its structure", Config)
    add_dataclass(parser, "hyperparameters", Hypers)


def add_policy(parser: Parser) -> None:
    """Which of the policies that a run trained."""
    parser.add_argument("--checkpoint", default="newest", metavar="WHICH", help="newest, best or an iteration")
    parser.add_argument("--policy-seed", metavar="N", help="one of the run's seeds; default: the first")


def chosen_seed(args: argparse.Namespace) -> int | None:
    """Whose policy it is."""
    seed = parse_value("policy_seed", args.policy_seed, int | None)
    assert seed is None or isinstance(seed, int)
    return seed


def add_limits(parser: Parser) -> None:
    """Of environments that play."""
    parser.add_argument(
        "--env-timeout", default=f"{Options.env_timeout:g}", metavar="X",
        help=f"Gymnasium and EnvPool: seconds that a step may take [{Options.env_timeout:g}]",
    )  # fmt: skip
    parser.add_argument(
        "--max-episode-steps", default=str(LONGEST_EPISODE), metavar="N",
        help=f"Gymnasium and EnvPool: steps after which an episode counts as one that never ends [{LONGEST_EPISODE}]",
    )  # fmt: skip


def limits(args: argparse.Namespace) -> tuple[float, int]:
    """Seconds of a step and steps of an episode."""
    timeout = parse_value("env_timeout", args.env_timeout, float)
    longest = parse_value("max_episode_steps", args.max_episode_steps, int)
    POSITIVE.check("env_timeout", timeout)
    COUNT.check("max_episode_steps", longest)
    return timeout, longest


def given(args: argparse.Namespace, *owners: type) -> SettingsByName:
    """The fields of these dataclasses that were set by a flag."""
    names = {name for owner in owners for name in fields_of(owner)}
    return {name: value for name, value in vars(args).items() if name in names}


def construct(make: Callable[..., T], values: Mapping[str, object]) -> T:
    """`make` of values by name, which it checks itself."""
    return make(**values)


def given_settings(args: argparse.Namespace) -> SettingsByName:
    """The settings of a YAML file, if one was named, under those set by a flag."""
    from isobatch.settings.files import load_yaml

    settings = load_yaml(args.config) if args.config is not None else {}
    others = {name: getattr(args, name) for name in ("preset", "stale_objective") if hasattr(args, name)}
    return settings | given(args, Config, Hypers) | others


def config_from(args: argparse.Namespace, any_env: bool = False) -> Config:
    """Published settings or the preset of the algorithm and the environment, then the YAML file, then the flags.

    `any_env`: the environment need not be there, since it is only a name.
    """
    settings = given_settings(args)
    if "preset" in settings:
        name = parse_value("preset", settings.pop("preset"), str)
        if name not in PUBLISHED:
            from isobatch.cli.study import BLOG_POST

            if name == BLOG_POST:
                raise UsageError(f"preset={name!r} is no preset but a study: use `isobatch study run {name}`.")
            raise unknown_name(f"preset={name!r}", name, PUBLISHED)
        if "algo" in settings:
            raise UsageError(f"preset={name!r} and algo={settings['algo']!r} cannot go together: give one of them.")
        settings["algo"] = name
    config = construct(preset, settings)
    if not any_env:
        check_env_id(config.env)
    return config


def check_unknown(parser: Parser, unknown: list[str]) -> None:
    """Complain about the first argument that nobody asked for."""
    if unknown:
        from isobatch.interop import called_elsewhere

        word = unknown[0].split("=")[0]
        names = called_elsewhere(word.removeprefix("--").replace("-", "_"))
        ours = [flag for name in names if (flag := "--" + name.replace("_", "-")) in parser.flags()]
        values: dict[str, Collection[str]] = {"--env": IN_JAX, "--algo": ALGORITHMS}
        intended = [f"{flag} {word}" for flag, known in values.items() if word in known and flag in parser.flags()]
        if intended:
            hint = f": use {intended[0]}."
        elif ours:
            hint = f"; what other libraries call so is set by {' and '.join(ours)} here."
        else:
            hint = near_matches(word, parser.flags())
        raise UsageError(f"unknown {'flag' if word.startswith('-') else 'argument'} {word}{hint or f'. {parser.hint}'}")


def _shown(value: object) -> str:
    """A value as one would type it."""
    if isinstance(value, (tuple, list)):
        return ",".join(map(str, value))
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _metavar(kind: object) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return "{" + ",".join(typing.get_args(kind)) + "}"
    metavars = {int: "N", float: "X", bool: "BOOL", JsonMapping: "MAPPING"}
    usual = "N,N" if typing.get_origin(kind) is tuple else "NAME"
    return next((word for known, word in metavars.items() if kind is known), usual)
