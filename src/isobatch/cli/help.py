"""Help of a command: one screen with an example first, everything with --help-all.

The values shown are those that the command would use with the other flags given: those of the preset of this algorithm
and environment.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from isobatch.cli.flags import Parser, config_from
from isobatch.errors import UsageError


class Formatter(argparse.RawDescriptionHelpFormatter):
    """argparse's, without line breaks inside names such as ppo-ewma."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class Brief(NamedTuple):
    """What stands on the first screen: examples, and the flags that matter most (all of them if none are named)."""

    examples: tuple[str, ...]
    flags: tuple[str, ...] = ()


TITLES = {"options": "flags", "positional arguments": "arguments"}  # argparse's names, and ours
GEOMETRY = ("env", "algo", "num_envs", "num_steps", "num_minibatches", "update_epochs")
BRIEF = {
    "train": Brief(
        ("train --algo ppo-ewma --env CartPole-v1 --num-seeds 4", "train --resume runs/my-run"),
        (
            *GEOMETRY, "total_timesteps", "learning_rate", "gamma", "gae_lambda", "clip_eps", "ent_coef", "seed",
            "num_seeds", "run_dir", "resume", "config", "preset", "json",
        ),
    ),
    "launch": Brief(("launch --num-processes 2 -- train --env CartPole-v1 --num-envs 64",)),
    "eval": Brief(("eval runs/my-run --episodes 20", "eval runs/my-run --video episode.gif")),
    "play": Brief(("play runs/my-run --episodes 2",)),
    "export": Brief(("export runs/my-run --out policy.npz",)),
    "rescale": Brief(
        (
            "rescale runs/my-run --to-num-envs 64",
            "rescale --algo ppo-ewma --num-envs 8 --num-steps 256 --to-num-envs 1",
            "rescale --from-zoo ppo.yml --env CartPole-v1 --factor 4",
        ),
        (
            "run_dir", "to_num_envs", "to_num_steps", "to_optimization_batch", "factor", "use", "without",
            *GEOMETRY, "config", "out", "json",
        ),
    ),
    "advise": Brief(
        ("advise --env CartPole-v1 --num-envs 64", "advise runs/my-run"), ("run_dir", *GEOMETRY, "plot", "json")
    ),
    "diagnose": Brief(
        ("diagnose runs/my-run", "diagnose runs/my-run --sections geometries,lags --chains 64"),
        (
            "run_dir", "checkpoint", "time", "budget", "geometries", "lambdas", "chains", "batches", "sections", "out",
            "json", "env", "algo",
        ),
    ),
    "tune": Brief(
        (
            "tune --env CartPole-v1 --budget 2e7",
            "tune --env Acrobot-v1 --search learning_rate --search gae_lambda=0.8:0.99",
            "tune --at-num-envs 8 --for-num-envs 64 --num-steps 32",
        ),
        (
            "env", "algo", "config", "search", "also", "budget", "num_seeds", "sampler", "at_num_envs",
            "for_num_envs", "total_timesteps", "from_defaults", "out", "on", "json",
        ),
    ),
    "plan": Brief(
        ("plan runs/my-run", "plan runs/my-run --score 450 --out plan.png", "plan --env CartPole-v1 --num-seeds 4"),
        ("run_dir", "score", "critical_batch", "plan_seeds", "out", "json", *GEOMETRY, "total_timesteps", "num_seeds"),
    ),
    "study": Brief(
        (
            "study list",
            "study run adam-rule --scale laptop",
            "study run adam-rule --scale laptop --on ray --address 10.0.0.1:6379",
            "study run pendulum-post --measure-seed 0",
            "study report runs/study-adam-rule-laptop",
        )
    ),
    "plot": Brief(("plot runs/one runs/two --out curves.png",)),
    "verify": Brief(
        ("verify --algo ppo --env CartPole-v1 --total-timesteps 20480",),
        (*GEOMETRY, "total_timesteps", "seed", "num_seeds", "json"),
    ),
    "envs": Brief(("envs lunar", "envs --json")),
    "demo": Brief(("demo",)),
}  # fmt: skip


def help_text(name: str, parser: Parser, words: list[str], everything: bool) -> str:
    """Help on a command, with the values that it would use with these words."""
    _show_values(parser, words)
    brief = BRIEF[name]
    everything = everything or not brief.flags
    formatter = Formatter(parser.prog, max_help_position=30)
    description = (parser.description or "").strip()
    formatter.add_text(description if everything else description.partition("\n\n")[0])
    formatter.add_text("\n".join(["for example", *(f"  isobatch {example}" for example in brief.examples)]))
    formatter.add_text(f"usage: {usage(parser)}")
    if everything:
        for group in parser._action_groups:
            actions = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
            formatter.start_section(TITLES.get(str(group.title), group.title))
            formatter.add_arguments(actions)
            formatter.end_section()
        return formatter.format_help()
    by_name = {action.dest: action for action in reversed(parser._actions) if action.help != argparse.SUPPRESS}
    formatter.start_section("what matters most")
    for dest in brief.flags:
        by_name[dest].help = _first_clause(by_name[dest].help or "")
        formatter.add_argument(by_name[dest])
    formatter.end_section()
    return f"{formatter.format_help()}\nEvery flag: {parser.prog} --help-all\n"


def usage(parser: Parser) -> str:
    """What must be given and what may be."""
    return " ".join([parser.prog, *_usage_words(parser), "[flags]"])


def _usage_words(parser: Parser) -> Iterator[str]:
    for action in parser._actions:
        metavar = str(action.metavar or action.dest.upper())
        if not action.option_strings:
            yield {"?": f"[{metavar}]", "+": f"{metavar} [{metavar} ...]", "*": f"[{metavar} ...]"}.get(
                str(action.nargs), metavar
            )
        elif action.required:
            yield f"{action.option_strings[0]} {metavar}"


def _show_values(parser: Parser, words: list[str]) -> None:
    """Of the preset that the words name, if they name one that there is."""
    if not parser.fields:
        return
    try:
        args, _ = parser.parse_known_args([*words])
        values = config_from(args, any_env=True).to_dict() if hasattr(args, "config") else {}
    except UsageError:
        values = {}
    parser.show_values(values)


def _first_clause(text: str) -> str:
    """The beginning of a help text, up to a semicolon or a full stop; what its value means; and the value."""
    value = re.search(r" \[([^\[\]]*)\]$", text)
    whole = text.removesuffix(value[0]) if value else text
    first, *others = re.split(r"; |(?<!\.)\.(?: |$)| \(", whole)
    if value is None:
        return first
    meant = [clause for clause in others if clause.startswith(f"{value[1]}: ")]
    return "; ".join([first, *meant]) + value[0]
