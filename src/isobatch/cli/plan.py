"""Which number of environments, rollout length and minibatches reach a score soonest on this machine?

Takes the directory of a run that has learned something, best one with --noise-scale, or the flags of `train`: then such
a run is trained first. A few sizes are timed; what other sizes need is predicted, with what is not known of it.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from isobatch.cli import console
from isobatch.cli.flags import (
    Parser,
    add_config,
    add_dataclass,
    given,
    given_settings,
)
from isobatch.cli.library_settings import show_remarks
from isobatch.cli.train import train_first
from isobatch.errors import UsageError
from isobatch.files import check_writable
from isobatch.settings.command import train_command
from isobatch.settings.fields import COUNT
from isobatch.settings.options import Options
from isobatch.settings.parsing import parse_value

if TYPE_CHECKING:
    from isobatch.planning.planned import Plan


def add_flags(parser: Parser) -> None:
    parser.add_argument(
        "run_dir", type=Path, nargs="?", metavar="RUN", help="directory of a run; without one, train first"
    )
    parser.add_argument(
        "--score", type=partial(parse_value, "score", kind=float), metavar="X",
        help="a return that the run reached [its final one, short of 5 %% of what it gained]",
    )  # fmt: skip
    parser.add_argument(
        "--critical-batch", type=partial(parse_value, "critical_batch", kind=float), metavar="B",
        help="critical batch size, if known [the run's noise scale, else measured on its checkpoints]",
    )  # fmt: skip
    parser.add_argument(
        "--plan-seeds", type=partial(parse_value, "plan_seeds", kind=int), default=1, metavar="N",
        help="seeds that the planned run trains at once [1]",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="FILE", help="draw time over environments, .png .svg or .pdf")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    add_config(parser)
    add_dataclass(parser, "the run, if it has to be trained first", Options)


def run(args: argparse.Namespace) -> int:
    check_picture(args.out)
    COUNT.check("plan_seeds", args.plan_seeds)
    if args.run_dir is not None and (given_settings(args) or given(args, Options)):
        raise UsageError(f"run {str(args.run_dir)!r} has its own settings: give a run or settings, not both.")
    run_dir = args.run_dir or train_first(args, "plan", noise_scale=True)
    from isobatch.planning.plan import plan

    with console.progress_bar(args.quiet) as watch:
        made = plan(run_dir, args.score, args.critical_batch, args.plan_seeds, watch, console.say)
    if args.out is not None:
        from isobatch.planning.figure import draw_plan

        draw_plan(made, args.out)
    if args.json:
        picture = {"picture": str(args.out)} if args.out else {}
        command = {"command": train_command(made.settings)}
        console.print_json({"run_dir": str(run_dir)} | made.to_json() | command | picture)
    else:
        show(made)
        if args.out is not None:
            console.out.print(f"\ndrawn: {args.out}")
    return 0


def check_picture(path: Path | None) -> None:
    """Before anything is measured for it."""
    from isobatch.drawing import FORMATS

    if path is None:
        return
    if path.suffix not in FORMATS:
        raise UsageError(f"out={str(path)!r} has no picture's ending: use {', '.join(FORMATS)}.")
    check_writable(path, f"out={str(path)!r}")


def show(plan: Plan) -> None:
    from isobatch.planning.planned import COLUMNS, TITLE

    out, run = console.out, plan.run
    out.print(console.subject(run.algo, run.env))
    out.print(console.pairs(plan.summary))
    out.print(console.table(f"\n{TITLE}", COLUMNS, plan.table()))
    out.print(console.heading("\nWhat to use, and why"))
    for sentence in plan.sentences():
        out.print(console.bullet(sentence))
    show_remarks("\nfaster on paper, and left out", plan.left_out)
    show_remarks("\nwhere the theory stops", plan.cautions)
    out.print(console.heading("\nflags"))
    out.print(train_command(plan.settings))
