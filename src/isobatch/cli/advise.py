"""See where the samples of a run go, how its sizes compare with rules of thumb, and what its metrics say.

Takes the same flags as `isobatch train`, or the directory of a run, whose metrics are then looked at too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table as RichTable
from rich.text import Text

from isobatch.advice import Advice, advise
from isobatch.advice.facts import Facts
from isobatch.advice.findings import Finding
from isobatch.advice.geometry_text import diagram
from isobatch.cli import console
from isobatch.cli.flags import Parser, add_config, config_from, given_settings
from isobatch.errors import UsageError
from isobatch.settings.config import Config
from isobatch.settings.parsing import parse_value

if TYPE_CHECKING:
    from isobatch.training.metrics import Table

STYLES = {"warn": "bold yellow", "pass": "green", "note": "dim"}
FACTS = {
    "devices": (int, "D", "devices that share the run"),
    "action_dim": (int, "N", "numbers in an action, or actions to choose from"),
    "critical_batch": (float, "B", "critical batch size, if measured"),
    "env_seconds": (float, "S", "time of one step of one environment"),
    "update_seconds": (float, "S", "time of one gradient step"),
}


def add_flags(parser: Parser) -> None:
    parser.add_argument("run_dir", type=Path, nargs="?", metavar="RUN", help="directory of a run")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the geometry, .png .svg or .pdf")
    for name, (kind, metavar, help_text) in FACTS.items():
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=_positive(name, kind), metavar=metavar, help=help_text)
    parser.add_argument("--measure", action="store_true", help="time the environment: how many of them are of use")
    parser.add_argument("--continuous", action=argparse.BooleanOptionalAction, help="actions are real numbers")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    add_config(parser)


def run(args: argparse.Namespace) -> int:
    from isobatch.training.known_facts import known_facts

    config, metrics = subject(args)
    facts = {name: getattr(args, name) for name in (*FACTS, "continuous")}
    if args.measure:
        from isobatch.laboratory.throughput import throughput

        facts["throughput"] = throughput(config)
    if metrics is not None and "noise/trace" in metrics and not args.critical_batch:
        from isobatch.training.metrics import critical_batch

        facts["critical_batch"] = critical_batch(metrics)
    known = known_facts(config, console.say, Facts(**facts))
    advice = advise(config, known, metrics)
    if args.plot:
        from isobatch.advice.geometry_figure import plot_geometry

        plot_geometry(config, args.plot, known.time_limit)
    if args.json:
        console.print_json(advice.to_json() | ({"picture": str(args.plot)} if args.plot else {}))
    else:
        show(advice, diagram(config, known.time_limit), measured=metrics is not None)
        if args.plot:
            console.out.print(f"\ndrawn: {args.plot}")
    return 0


def subject(args: argparse.Namespace) -> tuple[Config, Table | None]:
    """The config that advice is asked about, and its metrics if it was run."""
    if args.run_dir is None:
        return config_from(args, any_env=True), None
    if given_settings(args):
        raise UsageError(f"run {str(args.run_dir)!r} has its own settings: give a run or settings, not both.")
    from isobatch.training.run_directory import RunDirectory

    directory = RunDirectory.open(args.run_dir)
    return directory.config, directory.metrics()


def show(advice: Advice, drawing: str, measured: bool) -> None:
    out, config = console.out, advice.config
    out.print(console.subject(config.algo, config.env, "\n"))
    out.print(drawing)
    if measured:
        out.print(console.heading("\nwhat the run's metrics say"))
        out.print(_table(advice.monitors))
    out.print(console.heading("\nwhat rules of thumb say"))
    out.print(_table(advice.checks))
    if advice.conflicts:
        out.print(console.heading("\nwhere they differ"))
        for conflict in advice.conflicts:
            out.print(console.bullet(f"{conflict.winner} wins over {conflict.loser}: {conflict.why}."))


def _table(findings: Iterable[Finding]) -> RichTable:
    order = list(STYLES)
    rows: list[list[str | Text]] = []
    for finding in sorted(findings, key=lambda f: order.index(f.status)):
        text = Text(finding.text)
        if finding.tries:
            text.append(f" {finding.tries}", style="bold")
        text.append(f" [{finding.source}]", style="dim")
        rows.append([Text(finding.status, style=STYLES[finding.status]), finding.name, text])
    return console.text_table(["", "rule", "finding"], rows)


def _positive(name: str, kind: type[float]) -> Callable[[str], float]:
    def convert(text: str) -> float:
        value = parse_value(name, text, kind)
        if not 0 < value < float("inf"):
            raise UsageError(f"{name}={text} is out of range: use a number above 0.")
        return value

    return convert
