"""Train twice with the same settings, each time in a process of its own, and compare every bit.

Takes the flags of `isobatch train`. Exit code 0: identical; 1: different, and where.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from isobatch.cli import console
from isobatch.cli.flags import Parser, add_config, add_dataclass, config_from, construct, given
from isobatch.errors import RunError, UsageError
from isobatch.formatting import counted
from isobatch.settings.files import dump_config
from isobatch.settings.options import Options


def add_flags(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    add_config(parser)
    add_dataclass(parser, "the run", Options)


def run(args: argparse.Namespace) -> int:
    config, options = config_from(args), construct(Options, given(args, Options))
    if config.lag_iterations and config.schedule == "free":
        raise UsageError("schedule='free' lets time decide the order of actors, run by run: use schedule=fixed.")
    with tempfile.TemporaryDirectory(prefix="isobatch-verify-") as folder:
        settings = Path(folder) / "config.yaml"
        settings.write_text(dump_config(config))
        runs = [Path(folder) / name for name in ("first", "second")]
        for path in runs:
            console.say(f"training {config.algo} on {config.env}: {path.name} run ...")
            _train(settings, options, path)
        from isobatch.training.metrics import read_metrics
        from isobatch.training.verification import first_difference, parameter_total

        difference = first_difference(*runs)
        table, numbers = read_metrics(runs[0]), parameter_total(runs[0])
    compared = len(table["seed"]) * (len(table) - 3)
    if args.json:
        verdict = {"identical": difference is None, "first_difference": difference}
        console.print_json(verdict | {"metrics_compared": compared, "state_numbers_compared": numbers})
    elif difference is None:
        console.out.print(
            f"identical: {compared:,} metric values and {numbers:,} numbers of the final state, "
            f"{counted(config.env_steps, 'environment step')}, {counted(options.num_seeds, 'seed')}."
        )
    else:
        console.out.print(f"different: {difference}.")
    return 0 if difference is None else 1


def _train(settings: Path, options: Options, path: Path) -> None:
    flags = ["--seed", options.seed, "--num-seeds", options.num_seeds, "--log-interval", options.log_interval]
    command = [sys.executable, "-m", "isobatch", "train", "--config", settings, "--run-dir", path, *flags]
    done = subprocess.run([*map(str, command), "--quiet", "--json"], capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1].removeprefix("isobatch: ")
        raise (UsageError if done.returncode == 2 else RunError)(last)
