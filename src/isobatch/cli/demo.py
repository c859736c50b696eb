"""Train PPO-EWMA on CartPole-v1 with several seeds, print a table and draw the learning curve."""

from __future__ import annotations

import argparse
from pathlib import Path

from isobatch.cli import console, train
from isobatch.cli.flags import Parser


def add_flags(parser: Parser) -> None:
    parser.add_argument("--out", type=Path, default=Path("demo"), metavar="DIR", help="where to put it (default demo/)")


def run(args: argparse.Namespace) -> int:
    from isobatch.plots import learning_curves
    from isobatch.presets import preset
    from isobatch.run_directory import RunDirectory

    run_dir = args.out / "cartpole-ppo-ewma"
    parser = Parser(prog="isobatch demo")
    train.add_flags(parser)
    flags = ["--algo", "ppo-ewma", "--num-seeds", "8", "--run-dir", str(run_dir)]
    done = run_dir.exists()
    if code := train.run(parser.parse_args([*flags, "--resume"] if done else flags)):
        return code
    picture = args.out / "learning_curve.png"
    title = f"ppo-ewma on {preset('ppo-ewma').env}"
    learning_curves({"ppo-ewma": RunDirectory.open(run_dir).metrics()}, picture, title)
    console.out.print(f"\nThe learning curve: {picture}", markup=False)
    return 0
