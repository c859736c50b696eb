"""Claims as experiments: list them, run one, or make its tables, figures and page again.

A study that was interrupted goes on where it stopped: give the same command again.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from isobatch.cli import console
from isobatch.cli.executors import add_executor, executor_of
from isobatch.cli.flags import Parser
from isobatch.errors import UsageError, unknown_name
from isobatch.formatting import counted

if TYPE_CHECKING:
    from isobatch.studies.grid import GridSizes

BLOG_POST = "pendulum-post"  # figures and claims of a blog post, which has one size
BLOG_POST_MINUTES = 3  # 2 min 40 s on two quiet cores: `python docs/results/gradients.py --only post`
BLOG_POST_CLAIM = "Samples of one trajectory are alike, so long rollouts are noisy (the figures of a blog post, again)."
BY_ITSELF = "asynchrony"  # measured without `--processes 2`, since its actors are processes already
# Studies that were trained beside other work: by the speed that each run has by itself (docs/results/transfer.md).
HOURS_IN_A_ROW = {"transfer": 1.7}
ACTIONS = {"list": None, "run": "the name of a study (`isobatch study list`)", "report": "the directory of a study"}


def add_flags(parser: Parser) -> None:
    parser.add_argument("action", metavar="list|run|report", help="what to do")
    parser.add_argument("target", nargs="?", metavar="NAME|DIR", help="the study to run, or the directory to report on")
    parser.add_argument("--scale", metavar="{quick,laptop,paper}", help="how large (default quick)")
    parser.add_argument("--preset", help=argparse.SUPPRESS)
    parser.add_argument(
        "--envs", metavar="ID,...", help="some of its environments, also of another backend: gymnasium/CartPole-v1"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where results go (default runs/study-NAME-SCALE)")
    add_executor(parser, "parts")
    parser.add_argument("--measure-seed", type=int, metavar="N", help=f"for {BLOG_POST}: what is drawn (default 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    if args.action not in ACTIONS:
        raise unknown_name(f"action {args.action!r}", args.action, ACTIONS)
    if ACTIONS[args.action] and args.target is None:
        raise UsageError(f"`isobatch study {args.action}` needs {ACTIONS[args.action]}.")
    if not ACTIONS[args.action] and args.target is not None:
        raise UsageError(f"`isobatch study list` takes no name, but {args.target!r} was given: leave it out.")
    if args.preset is not None:
        raise UsageError(f"--preset names published settings: for the size of a study use --scale {args.preset}.")
    return {"list": _list, "run": _run, "report": _report}[args.action](args)


def _list(args: argparse.Namespace) -> int:
    from isobatch.studies.claims import STUDIES
    from isobatch.studies.grid import SCALES

    sizes = {study.name: {scale: study.grid(scale).sizes() for scale in SCALES} for study in STUDIES.values()}
    if args.json:
        studies = [
            {"name": name, "claim": study.claim, "laptop_minutes": study.minutes, **sizes[name]}
            for name, study in STUDIES.items()
        ]
        studies.append({"name": BLOG_POST, "claim": BLOG_POST_CLAIM, "laptop_minutes": BLOG_POST_MINUTES})
        console.print_json({"studies": studies})
        return 0
    console.out.print(
        "settings x seeds, and environment steps of all of them, at each scale; minutes of training on 2 cores,"
    )
    console.out.print(
        f"of laptop, measured with `--processes 2` ({BY_ITSELF} without); quick takes one to three, paper a cluster\n"
    )
    rows = [
        [name, *map(_size, sizes[name].values()), str(study.minutes or "-"), study.claim]
        for name, study in STUDIES.items()
    ]
    rows.append([BLOG_POST, *("-" for _ in SCALES), str(BLOG_POST_MINUTES), BLOG_POST_CLAIM])
    console.out.print(console.text_table(["study", *SCALES, "minutes", "claim"], rows))
    minutes = BLOG_POST_MINUTES + sum(study.minutes or 0 for study in STUDIES.values())
    untimed = [name for name, study in STUDIES.items() if study.minutes is None]
    others = "".join(f"; {name}, which is not in it: {_in_a_row(name)}" for name in untimed)
    console.out.print(f"\nminutes of all: {minutes}{others}")
    return 0


def _in_a_row(name: str) -> str:
    hours = HOURS_IN_A_ROW.get(name)
    return f"{hours} hours, one run after the other" if hours else "not measured"


def _size(sizes: GridSizes) -> str:
    steps = sizes["env_steps"]
    short = f"{steps / 1e9:.0f}G" if steps >= 1e9 else f"{steps / 1e6:.0f}M"
    return f"{sizes['cells']} x {sizes['seeds']}, {short}"


def _run(args: argparse.Namespace) -> int:
    if args.target == BLOG_POST:
        return _run_blog_post(args)
    if args.measure_seed is not None:
        raise UsageError(f"measure_seed={args.measure_seed} is for {BLOG_POST} alone: leave it out.")
    from isobatch.studies.claims import study_of
    from isobatch.studies.grid import check_scale, on_environments

    study, scale = study_of(args.target), args.scale or "quick"
    check_scale(scale)
    name = f"study-{study.name}-{scale}"
    if args.envs:
        envs = [word.strip() for word in args.envs.split(",")]
        study = on_environments(study, envs)
        name = "-".join([name, *envs]).replace("/", "-")
    out = args.out or Path("runs") / name
    from isobatch.studies.runner import run_study

    try:
        with executor_of(args) as executor, console.progress_bar(args.quiet) as watch:
            run_study(study, scale, out, watch, executor)
    except KeyboardInterrupt:
        console.say("interrupted: what is finished is kept; the same command goes on from there.")
        return 130
    return show(out, args.json)


def _run_blog_post(args: argparse.Namespace) -> int:
    if args.on != "local" or args.address is not None or args.processes is not None:
        raise UsageError(f"on, address and processes: {BLOG_POST} is one run and no grid: leave them out.")
    if args.envs:
        raise UsageError(f"envs={args.envs!r}: {BLOG_POST} has one environment: leave it out.")
    if args.scale is not None:
        raise UsageError(f"scale={args.scale!r}: {BLOG_POST} has one size: leave it out.")
    from isobatch.studies.blog_post import reproduce

    out = args.out or Path("runs") / BLOG_POST
    with console.progress_bar(args.quiet) as watch:
        report = reproduce(out, args.measure_seed or 0, watch, console.say)
    if args.json:
        from isobatch.laboratory.results import to_json

        claims, pictures = [to_json(claim) for claim in report.results.claims], [str(path) for path in report.pictures]
        console.print_json({"out": str(out), "claims": claims, "pictures": pictures})
        return 0
    for claim in report.results.claims:
        console.out.print(console.bullet(f"{claim.claim}: {claim.verdict}. {claim.measured}."))
    console.out.print(f"\n{counted(len(report.pictures), 'picture')} and the numbers: {out}")
    return 0


def _report(args: argparse.Namespace) -> int:
    return show(Path(args.target), args.json)


def show(path: Path, as_json: bool) -> int:
    """Tables, verdict, pictures and page of what is on disk."""
    from isobatch.studies.report import make_report
    from isobatch.studies.summary_table import COLUMNS

    report = make_report(path)
    if as_json:
        console.print_json(dict(report))
        return 0
    console.out.print(console.heading(f"\n{report['study']}", f" ({report['scale']}): {report['claim']}"))
    for env in dict.fromkeys(line["env"] for line in report["table"]):
        lines = [line["cells"] for line in report["table"] if line["env"] == env]
        console.out.print(console.table(f"\n{env}", COLUMNS, lines))
    if report["verdict"]:
        console.out.print(console.heading("\nWhat it shows"))
    for sentence in report["verdict"]:
        console.out.print(console.bullet(sentence))
    console.out.print(f"\nrows.csv, curves.csv.gz and {counted(len(report['pictures']), 'picture')}: {path}")
    console.out.print(f"Report, to open in a browser: {report['page']}")
    return 0
