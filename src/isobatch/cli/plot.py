"""Draw learning curves of one or several runs into one picture."""

from __future__ import annotations

import argparse
from pathlib import Path

from isobatch.cli import console
from isobatch.cli.flags import Parser
from isobatch.training.metrics import RETURN


def add_flags(parser: Parser) -> None:
    parser.add_argument("run_dirs", type=Path, nargs="+", metavar="RUN", help="directories of runs")
    parser.add_argument("--metric", default=RETURN, metavar="NAME", help=f"what to draw (default {RETURN})")
    parser.add_argument("--out", type=Path, metavar="FILE", help="picture to write, .png .svg or .pdf")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(args: argparse.Namespace) -> int:
    from isobatch.training.curves import Run, draw_runs
    from isobatch.training.run_directory import RunDirectory

    directories = {path.resolve(): RunDirectory.open(path) for path in args.run_dirs}.values()
    out = args.out or args.run_dirs[0] / "learning_curve.png"
    draw_runs([Run(each.path, each.settings, each.metrics()) for each in directories], out, args.metric)
    if args.json:
        console.print_json({"picture": str(out)})
    else:
        console.out.print(f"drawn: {out}")
    return 0
