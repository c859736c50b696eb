"""Change the batch size and let the other hyperparameters follow, each with its reason.

The settings before come from a run, the flags below, a YAML file or another library's file; say what to change with one
of the --to flags or with --factor. What stays beside it, --keep says: unless told otherwise, what was measured to keep
most of the return of tuned settings.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from isobatch.cli import console, critical_batch
from isobatch.cli.flags import Parser, add_config, config_from, given
from isobatch.cli.library_settings import SOURCES, add_sources, asked_algorithm, library_settings_from, show_remarks
from isobatch.errors import UsageError
from isobatch.files import write_file
from isobatch.formatting import counted, rounded
from isobatch.rescaling import KEEPS, MEASURED, SAMPLES_USED, Rescaled, rescale
from isobatch.rescaling.alternatives import HELD, Alternative, alternatives
from isobatch.rescaling.evidence import sentence
from isobatch.rescaling.rules import RULES
from isobatch.settings.accounting import surely_used
from isobatch.settings.command import train_command
from isobatch.settings.config import Config, Hypers
from isobatch.settings.files import dump_settings
from isobatch.settings.parsing import parse_value
from isobatch.settings.presets import changed_settings

if TYPE_CHECKING:
    from isobatch.interop import Answer, LibrarySettings

TARGETS = {
    "num_envs": "environments, of all devices together",
    "num_steps": "steps per environment and iteration; environments stay",
    "optimization_batch": "samples per gradient step",
    "devices": "devices; each keeps its environments",
}
OURS = "isobatch"
EVIDENCE_PAGE = "docs/results/transfer.md"


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
    group.add_argument(
        "--keep",
        default=MEASURED,
        metavar="{" + ",".join(KEEPS) + "}",
        help=f"what stays beside the target: {'; '.join(f'{name}: {text}' for name, text in HELD.items())}; "
        f"{MEASURED}, the default: the first where that was measured to be better than the last, else the last",
    )
    names = ", ".join(RULES)
    group.add_argument("--use", action="append", default=[], metavar="RULE", help=f"apply this rule; one of {names}")
    group.add_argument("--without", action="append", default=[], metavar="RULE", help="leave this rule out")
    group.add_argument(
        "--critical-batch",
        metavar="B",
        help=critical_batch.HELP,
    )
    names = ", ".join([*SOURCES, OURS])
    add_sources(parser).add_argument("--as", dest="library", metavar="NAME", help=f"write as one of {names}")
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
    given_critical = critical_batch.critical_batch_from(args.critical_batch, args.run_dir)
    critical = given_critical.value if given_critical else None
    before = source.config if source else config_before(args)
    remarks: tuple[str, ...] = ()
    algo = asked_algorithm(args)
    if source and algo is not None and algo != before.algo:
        from isobatch.interop.conversion import as_algorithm

        made = as_algorithm(before, algo)
        before, remarks = made.config, made.remarks
    time_limit = time_limit_of(before)
    result = rescale(
        before,
        **{name: getattr(args, f"to_{name}") for name in TARGETS},
        factor=args.factor,
        devices_before=1 if args.devices is None else args.devices,
        keep=args.keep,
        use=args.use,
        without=args.without,
        critical_batch=critical,
        time_limit=time_limit,
    )
    after = result.after
    if args.library == OURS and source:
        from isobatch.interop.conversion import for_isobatch

        converted = for_isobatch(source, after)
        after, remarks = converted.config, (*remarks, *converted.remarks)
    answer = answer_in(args.library, after, source)
    text = answer.text if answer else dump_settings(changed_settings(after))
    others = []
    if after.num_envs != before.num_envs:
        others = alternatives(before, after.num_envs, critical, args.use, args.without, time_limit)
    control = _control_sentences(source, before, after)
    doubtful = _doubtful(source, before, after)
    if args.out:
        write_file(args.out, text)
    if args.json:
        extra: dict[str, object] = {"alternatives": [other.to_json() for other in others]} if others else {}
        extra |= {"critical_batch": vars(given_critical)} if given_critical else {}
        extra |= {"remarks": [*doubtful, *remarks], "kl_control": control} if source else {}
        extra |= {"isobatch": changed_settings(after)} if source and args.library == OURS else {}
        console.print_json(result.to_json() | extra | (_library_json(answer) if answer else {}))
        return 0
    show(result, time_limit)
    if given_critical:
        console.out.print(console.bullet(critical_batch.sentence(given_critical), ""))
        console.out.print()
    show_remarks("mind", doubtful)
    show_remarks("the learning rate follows the KL divergence" if _adapts(source) else "epochs end early", control)
    show_alternatives(others, result.keep)
    show_remarks("per device, or in all", device_sentences(before, after, args.devices or 1, args.to_devices))
    show_remarks("what changes on the way to isobatch" if args.library == OURS else "converted", remarks)
    if answer:
        show_answer(answer)
    else:
        show_settings(after, text)
    return 0


def time_limit_of(config: Config) -> int | None:
    """Steps of the longest episode, asked of the environment where only whole episodes are used."""
    if not config.complete_episodes:
        return None
    from isobatch.training.known_facts import known_facts

    return known_facts(config, console.say).time_limit


def device_sentences(before: Config, after: Config, devices_before: int, devices: int | None) -> list[str]:
    """What more devices do to the batch, and how to keep it."""
    if devices is None:
        return []
    each, kept = before.num_envs / devices_before, before.num_envs / devices
    grown = f"every device keeps {rounded(each, 6)} environments, so there are {after.num_envs:,} in all"
    keep = f"--num-envs {before.num_envs} --devices {devices}" if before.num_envs % devices == 0 else ""
    return [
        f"above, {grown}; isobatch counts all of them: --num-envs {after.num_envs} --devices {devices}.",
        f"with {before.num_envs:,} in all as before ({rounded(kept, 6)} a device) the batch and all else stays"
        + (f": {keep}." if keep else ", if that were a whole number: take a number of devices that divides it."),
        "rsl_rl, Isaac Lab and RLlib count per device: with the same number there, more devices are the larger batch.",
    ]


def _control_sentences(source: LibrarySettings | None, before: Config, after: Config) -> list[str]:
    if source is None or source.control is None:
        return []
    from isobatch.advice.kl_control import kl_sentences

    return kl_sentences(source.control, before, after)


def _doubtful(source: LibrarySettings | None, before: Config, after: Config) -> list[str]:
    """What is not known of another library's settings, or what no rule moves."""
    if source is None:
        return []
    from isobatch.interop.optimizer_cautions import optimizer_cautions

    cautions = optimizer_cautions(source.settings, before, after)
    return list(dict.fromkeys([*source.doubtful, *source.remarks, *cautions]))


def _adapts(source: LibrarySettings | None) -> bool:
    return bool(source and source.control and source.control.kind == "adaptive")


def show_alternatives(others: list[Alternative], keep: str) -> None:
    """The ways to the same number of environments side by side."""
    if not others:
        return
    envs = next(other.result.after.num_envs for other in others if other.result)
    console.out.print(console.heading(f"ways to have {counted(envs, 'environment')}"))
    columns = ["--keep", "num_steps", "minibatches", "learning rate", "gradient steps", "iterations", "in memory"]
    measured = [other.kept for other in others if other.kept]
    if measured:
        console.out.print(console.bullet(f"{sentence(measured)} ({EVIDENCE_PAGE})"))
    whole = any(other.time_limit is not None for other in others)
    columns += ["used, at least"] if whole else []
    rows = []
    for other in others:
        costs = other.to_json()
        cells = (
            [
                f"{costs['num_steps']:,}",
                f"{costs['num_minibatches']:,} x {costs['optimization_batch']:,}",
                rounded(costs["learning_rate"], 6),
                rounded(1000 * costs["gradient_steps_per_env_step"]),
                "-" if costs["iterations"] is None else f"{costs['iterations']:,}",
                f"{costs['samples_in_memory']:,}",
            ]
            if other.result
            else ["-"] * 6
        )
        cells += [_used(other)] if whole else []
        rows.append([f"{other.keep}{' *' if other.keep == keep else ''}", *cells])
    console.out.print(console.table("", columns, rows))
    for other in others:
        what = other.trouble or f"cautions: {', '.join(other.cautions) or 'none'}"
        console.out.print(console.bullet(f"{other.keep} holds {HELD[other.keep]}; {what}"))
    note = "* the one above; gradient steps: per 1,000 environment steps; in memory: samples of a rollout"
    if whole:
        note += "; used: samples of an iteration that whole episodes use, however long they are"
    if any(other.collapses for other in others):
        note += "; ! far less of what is collected than before"
    console.out.print(console.bullet(note, "  "))
    console.out.print()


def _used(other: Alternative) -> str:
    """Samples and their share of the iteration, marked where the share collapses."""
    if other.result is None or other.samples_used is None:
        return "-"
    share = other.samples_used / other.result.after.geometry.iteration_batch
    return f"{other.samples_used:,} ({share:.0%}){' !' if other.collapses else ''}"


def config_before(args: argparse.Namespace) -> Config:
    """The settings of a run, if one was named, under those set by flags; else those of flags and files."""
    if args.run_dir is None:
        return config_from(args, any_env=True)
    for flag in ("config", "preset", "stale_objective"):
        if getattr(args, flag, None) is not None:
            raise UsageError(f"--{flag.replace('_', '-')} and a run cannot go together: give one of them.")
    from isobatch.training.run_directory import RunDirectory

    return RunDirectory.open(args.run_dir).config.replace(**given(args, Config, Hypers))


def answer_in(name: str | None, after: Config, source: LibrarySettings | None) -> Answer | None:
    """The answer in the words of a library: the one asked for, or else the one that the settings came from."""
    if name == OURS:
        return None
    from isobatch import interop

    library = interop.library(name) if name else source.library if source else None
    return interop.answer(after, source, library) if library else None


def show(result: Rescaled, time_limit: int | None = None) -> None:
    """What changed and why, what did not, and where the theory stops."""
    out, after = console.out, result.after
    out.print(console.subject(after.algo, after.env, f", batches divided by c = {rounded(result.factor, 6)}\n"))
    if result.evidence:
        out.print(console.bullet(result.evidence, ""))
        out.print()
    if result.changes:
        rows = [[c.name, _shown(c.before), _shown(c.after), c.rule, c.reason] for c in result.changes]
        out.print(console.text_table(["quantity", "before", "after", "rule", "why"], rows, right=(1, 2)))
    else:
        out.print("Nothing changes.")
    out.print()
    out.print(console.bullet(", ".join(held(result, time_limit)), "held  "))
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
    out.print(train_command(changed_settings(after)))


def show_answer(answer: Answer) -> None:
    out, title = console.out, answer.library.title
    out.print(console.heading(title, f": {answer.library.batch_size}"))
    out.print(answer.excerpt.rstrip("\n"))
    for heading, sentences in (
        ("kept as they were, without a counterpart here", answer.kept),
        ("left behind, without a counterpart here", answer.left_behind),
        ("changed too, since they take settings from this one", answer.also_changed),
        ("computed otherwise there", answer.differences),
    ):
        if sentences:
            out.print()
            out.print(
                console.bullet(("; " if heading.startswith("computed") else ", ").join(sentences), f"{heading}: ")
            )
    if answer.unsaid:
        out.print(f"\nnot said above, {title} has no setting for it:")
        for consequence in dict.fromkeys(answer.consequences.values()):
            names = [name for name in answer.unsaid if answer.consequences[name] == consequence]
            values = ", ".join(f"{name}={_shown(answer.unsaid[name])}" for name in names)
            out.print(console.bullet(f"{values}, {consequence}"))


def held(result: Rescaled, time_limit: int | None = None) -> list[str]:
    """What did not change, in words."""
    before, after = result.before, result.after
    names = ("num_envs", "num_steps", "num_minibatches", "update_epochs")
    same = [f"{n} {after.to_dict()[n]}" for n in names if before.to_dict()[n] == after.to_dict()[n]]
    old, new = before.geometry, after.geometry
    if old.optimization_batch == new.optimization_batch:
        same.append(f"optimization batch {new.optimization_batch:,}")
    if after.complete_episodes and time_limit is not None:
        used = [surely_used(config, time_limit) for config in (before, after)]
        same += [f"{SAMPLES_USED} {used[0]:,}"] if used[0] == used[1] else []
    age = [c.geometry.proximal_age(c.hypers.beta_prox) for c in (before, after)]
    if after.proximal_policy == "ewma" and round(age[0]) == round(age[1]):
        same.append(f"proximal age {age[0]:,.0f} steps")
    if new.phase_batch and old.phase_batch == new.phase_batch:
        same.append(f"phase batch {new.phase_batch:,}")
    return same


def _library_json(answer: Answer) -> dict[str, object]:
    names = ("settings", "kept", "left_behind", "unsaid", "consequences", "also_changed", "differences")
    return {"library_settings": {"library": answer.library.name} | {name: getattr(answer, name) for name in names}}


def _shown(value: object) -> str:
    if isinstance(value, float):
        return rounded(value, 6 if not 0.999999 < value < 1 else 10)  # a decay is not 1
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _number(name: str, kind: type[float]) -> Callable[[str], float]:
    return lambda text: parse_value(name, text, kind)
