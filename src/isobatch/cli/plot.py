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
    from isobatch.training.curves import distinct_labels, learning_curves
    from isobatch.training.run_directory import RunDirectory

    runs = list({path.resolve(): RunDirectory.open(path) for path in args.run_dirs}.values())
    settings = [run.config.to_dict() | {name: run.about.get(name) for name in ("seed", "num_seeds")} for run in runs]
    envs, algos = ({each[name] for each in settings} for name in ("env", "algo"))
    out = args.out or args.run_dirs[0] / "learning_curve.png"
    title = f"{', '.join(sorted(algos))} on {', '.join(sorted(envs))}"
    labels = distinct_labels([run.path for run in runs], settings)
    curves = {label: run.metrics() for label, run in zip(labels, runs, strict=True)}
    learning_curves(curves, out, title, args.metric)
    if args.json:
        console.print_json({"picture": str(out)})
    else:
        console.out.print(f"drawn: {out}", markup=False)
    return 0
