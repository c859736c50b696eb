"""Change the batch size and let the other hyperparameters follow, each with its reason.

The settings before come from a run, the flags below, a YAML file or another library's file; say what to change with one
of the --to flags or with --factor. Environments change and the rollout length and the number of minibatches stay,
unless --to-num-steps or the rule iteration-batch-only says otherwise.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from isobatch.cli import console
from isobatch.cli.flags import Parser, add_config, config_from, given
from isobatch.errors import UsageError
from isobatch.files import read_text, write_file
from isobatch.formatting import rounded
from isobatch.rescaling import Rescaled, rescale
from isobatch.rescaling.rules import RULES
from isobatch.settings.config import Config, Hypers
from isobatch.settings.files import dump_settings
from isobatch.settings.parsing import SettingsByName, parse_value
from isobatch.settings.presets import changed_settings

if TYPE_CHECKING:
    from isobatch.interop import Answer, LibrarySettings

TARGETS = {
    "num_envs": "environments, of all devices together",
    "num_steps": "steps per environment and iteration; environments stay",
    "optimization_batch": "samples per gradient step",
    "devices": "devices; each keeps its environments",
}
SOURCES = {
    "zoo": ("FILE", "Stable-Baselines3 settings as rl-zoo3 keeps them (with --env, and --algo unless the file says)"),
    "cleanrl": ("FLAGS", "a CleanRL command line, in quotes"),
    "rllib": ("FILE", "RLlib PPO settings"),
    "torchrl": ("FILE", "TorchRL PPO settings"),
    "skrl": ("FILE", "skrl PPO settings (with --num-envs)"),
}


def add_flags(parser: Parser) -> None:
    parser.add_argument("run_dir", type=Path, nargs="?", metavar="RUN", help="directory of a run with the settings")
    group = parser.add_argument_group("what to change")
    for name, help_text in TARGETS.items():
        flag = "--to-" + name.replace("_", "-")
        group.add_argument(flag, dest=f"to_{name}", type=_number(f"to_{name}", int), metavar="N", help=help_text)
    group.add_argument("--factor", type=_number("factor", float), metavar="C", help="divide both batches by this")
    group.add_argument(
        "--devices",
        type=_number("devices", int),
        metavar="N",
        help="devices before, for --to-devices [1]",
    )
    group = parser.add_argument_group("how")
    names = ", ".join(RULES)
    group.add_argument("--use", action="append", default=[], metavar="RULE", help=f"apply this rule; one of {names}")
    group.add_argument("--without", action="append", default=[], metavar="RULE", help="leave this rule out")
    group.add_argument(
        "--critical-batch",
        metavar="B",
        help="critical batch size, or the directory of a run that measured it with --noise-scale",
    )
    group = parser.add_argument_group("other libraries")
    for name, (metavar, help_text) in SOURCES.items():
        group.add_argument(f"--from-{name}", dest=f"from_{name}", metavar=metavar, help=f"read {help_text}")
    group.add_argument("--as", dest="library", metavar="NAME", help=f"write as one of {', '.join(SOURCES)}")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the new settings into this file")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    add_config(parser)


def run(args: argparse.Namespace) -> int:
    source = library_settings_from(args)
    if args.devices is not None and args.to_devices is None:
        raise UsageError(f"--devices {args.devices} says how many there were: add --to-devices, or leave it out.")
    if args.factor is None and all(getattr(args, f"to_{name}") is None for name in TARGETS):
        flags = ", ".join(f"--to-{name.replace('_', '-')}" for name in TARGETS)
        raise UsageError(f"no target was given: use one of {flags} or --factor.")
    result = rescale(
        source.config if source else config_before(args),
        **{name: getattr(args, f"to_{name}") for name in TARGETS},
        factor=args.factor,
        devices_before=1 if args.devices is None else args.devices,
        use=args.use,
        without=args.without,
        critical_batch=critical_batch_from(args.critical_batch),
    )
    answer = answer_in(args.library, result.after, source)
    text = answer.text if answer else dump_settings(changed_settings(result.after))
    if args.out:
        write_file(args.out, text)
    if args.json:
        console.print_json(result.to_json() | (_library_json(answer) if answer else {}))
        return 0
    show(result)
    if answer:
        show_answer(answer)
    else:
        show_settings(result.after, text)
    return 0


def config_before(args: argparse.Namespace) -> Config:
    """The settings of a run, if one was named, under those set by flags; else those of flags and files."""
    if args.run_dir is None:
        return config_from(args, any_env=True)
    for flag in ("config", "preset", "stale_objective"):
        if getattr(args, flag, None) is not None:
            raise UsageError(f"--{flag.replace('_', '-')} and a run cannot go together: give one of them.")
    from isobatch.training.run_directory import RunDirectory

    return RunDirectory.open(args.run_dir).config.replace(**given(args, Config, Hypers))


def library_settings_from(args: argparse.Namespace) -> LibrarySettings | None:
    """The settings of another library, if some were named; flags override them."""
    named = [name for name in SOURCES if getattr(args, f"from_{name}") is not None]
    if not named:
        return None
    if len(named) > 1:
        raise UsageError(f"--from-{named[0]} and --from-{named[1]} cannot go together: give one of them.")
    for flag in ("config", "preset", "stale_objective"):
        if getattr(args, flag, None) is not None:
            raise UsageError(f"--{flag.replace('_', '-')} and --from-{named[0]} cannot go together: give one of them.")
    if args.run_dir is not None:
        raise UsageError(f"--from-{named[0]} and the run {args.run_dir} cannot go together: give one of them.")
    from isobatch import interop

    name, source = named[0], getattr(args, f"from_{named[0]}")
    text = source if name == "cleanrl" else read_text(Path(source), f"--from-{name}")
    overrides = given(args, Config, Hypers)
    env, algo = overrides.pop("env", None), overrides.pop("algo", None)
    if algo is None:
        stem = Path(source).stem if name == "zoo" else "ppo"
        algo = next((known for known in ("a2c", "ppo") if known in stem.lower()), None)
    if algo is None:
        raise UsageError(f"--from-zoo {source!r} does not say the algorithm: add --algo ppo or --algo a2c.")
    try:
        return interop.read(interop.library(name), text, env=env, algo=algo, overrides=overrides)
    except UsageError as error:
        raise UsageError(f"--from-{name} {source!r}: {error}") from None


def answer_in(name: str | None, after: Config, source: LibrarySettings | None) -> Answer | None:
    """The answer in the words of a library: the one asked for, or else the one that the settings came from."""
    from isobatch import interop

    library = interop.library(name) if name else source.library if source else None
    return interop.answer(after, source, library) if library else None


def show(result: Rescaled) -> None:
    """What changed and why, what did not, and where the theory stops."""
    out, after = console.out, result.after
    out.print(console.subject(after.algo, after.env, f", batches divided by c = {rounded(result.factor, 6)}\n"))
    if result.changes:
        rows = [[c.name, _shown(c.before), _shown(c.after), c.rule, c.reason] for c in result.changes]
        out.print(console.text_table(["quantity", "before", "after", "rule", "why"], rows, right=(1, 2)))
    else:
        out.print("Nothing changes.")
    out.print()
    out.print(console.bullet(", ".join(held(result)), "held  "))
    if result.warnings:
        out.print(console.heading("\nwhere the theory stops"))
        for sentence in result.warnings:
            out.print(console.bullet(sentence))
    out.print()


def show_settings(after: Config, text: str) -> None:
    out = console.out
    out.print(console.heading("settings"))
    out.print(text)
    out.print(console.heading("flags"))
    out.print(f"isobatch train {_flags(changed_settings(after))}")


def show_answer(answer: Answer) -> None:
    out, title = console.out, answer.library.title
    out.print(console.heading(title, f": {answer.library.batch_size}"))
    out.print(answer.excerpt.rstrip("\n"))
    for heading, words in (
        ("kept as they were, without a counterpart here", answer.kept),
        ("left behind, without a counterpart here", answer.left_behind),
        ("changed too, since they take settings from this one", answer.also_changed),
    ):
        if words:
            out.print()
            out.print(console.bullet(", ".join(words), f"{heading}: "))
    if answer.unsaid:
        out.print(f"\nnot said above, {title} has no setting for it:")
        for consequence in dict.fromkeys(answer.consequences.values()):
            names = [name for name in answer.unsaid if answer.consequences[name] == consequence]
            values = ", ".join(f"{name}={_shown(answer.unsaid[name])}" for name in names)
            out.print(console.bullet(f"{values}, {consequence}"))


def held(result: Rescaled) -> list[str]:
    """What did not change, in words."""
    before, after = result.before, result.after
    names = ("num_envs", "num_steps", "num_minibatches", "update_epochs")
    same = [f"{n} {after.to_dict()[n]}" for n in names if before.to_dict()[n] == after.to_dict()[n]]
    old, new = before.geometry, after.geometry
    if old.optimization_batch == new.optimization_batch:
        same.append(f"optimization batch {new.optimization_batch:,}")
    age = [c.geometry.proximal_age(c.hypers.beta_prox) for c in (before, after)]
    if after.proximal_policy == "ewma" and round(age[0]) == round(age[1]):
        same.append(f"proximal age {age[0]:,.0f} steps")
    if new.phase_batch and old.phase_batch == new.phase_batch:
        same.append(f"phase batch {new.phase_batch:,}")
    return same


def _library_json(answer: Answer) -> dict[str, object]:
    names = ("settings", "kept", "left_behind", "unsaid", "consequences", "also_changed")
    return {"foreign": {"library": answer.library.name} | {name: getattr(answer, name) for name in names}}


def _flags(settings: SettingsByName) -> str:
    words = []
    for name, value in settings.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            words.append(f"{flag} {shlex.quote(_typed(value))}")
    return " ".join(words)


def _typed(value: object) -> str:
    """A value as a flag takes it."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _shown(value: object) -> str:
    if isinstance(value, float):
        return rounded(value, 6 if not 0.999999 < value < 1 else 10)  # a decay is not 1
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def critical_batch_from(text: str | None) -> float | None:
    """A number as it is, or what a run measured."""
    if text is None:
        return None
    if not Path(text).is_dir():
        return float(parse_value("critical_batch", text, float))
    from isobatch.training.metrics import critical_batch, read_metrics

    return critical_batch(read_metrics(Path(text)))


def _number(name: str, kind: type[float]) -> Callable[[str], float]:
    return lambda text: parse_value(name, text, kind)
