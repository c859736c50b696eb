"""Train PPO-EWMA on CartPole-v1 at one batch size, then at 1/16 and 1/64 of it: rescaled, and unchanged.

Prints one table and draws one picture. Run it again and it goes on where it was.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from isobatch.cli import console
from isobatch.cli.flags import Parser
from isobatch.errors import RunError
from isobatch.settings.parsing import parse_value


def add_flags(parser: Parser) -> None:
    parser.add_argument("--out", type=Path, default=Path("demo"), metavar="DIR", help="where to put it (default demo/)")
    parser.add_argument("--num-seeds", default="4", metavar="N", help="seeds per run (default 4)")
    parser.add_argument("--total-timesteps", default="300000", metavar="N", help="steps per seed (default 300000)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(args: argparse.Namespace) -> int:
    seeds = parse_value("num_seeds", args.num_seeds, int)
    from isobatch.studies.demo import conclusion, demo_runs, outcome
    from isobatch.training.curves import learning_curves
    from isobatch.training.run_directory import RunDirectory
    from isobatch.training.trainer import train

    runs = demo_runs(parse_value("total_timesteps", args.total_timesteps, int))
    tables, outcomes = {}, {}
    for number, each in enumerate(runs, start=1):
        config, run_dir = each.config, args.out / "-".join(re.findall(r"\w+", each.name))
        console.say(f"({number}/{len(runs)}) {each.name}: {config.num_envs} x {config.num_steps} steps")
        failed = False
        with console.training_bar(config.env_steps, quiet=False) as watch:
            try:
                result = train(config, num_seeds=seeds, run_dir=run_dir, resume=run_dir.exists(), watch=watch)
            except RunError as error:
                expected = "as settings that stayed the same may: " if each.name.endswith("unchanged") else ""
                console.say(f"{expected}{error}")
                failed = True
        if not failed and result.interrupted:
            console.say("Interrupted and kept: run it again to go on.")
            return 130
        tables[each.name] = RunDirectory.open(run_dir).metrics()
        outcomes[each.name] = outcome(tables[each.name], config, failed)
    picture = args.out / "batch-size.png"
    dashed = [c.name for c in runs if not c.rescaled]
    env = runs[0].config.env
    learning_curves(tables, picture, f"PPO-EWMA on {env} at three batch sizes", dashed=dashed, env=env)
    if args.json:
        console.print_json({"outcomes": outcomes, "picture": str(picture), "says": conclusion(runs, outcomes)})
        return 0
    rows = []
    for each in runs:
        g, h = each.config.geometry, each.config.hypers
        sizes = [f"{g.iteration_batch:,}", f"{g.optimization_batch:,}"]
        numbers = [f"{h.learning_rate:.3g}", f"{h.beta_prox:.4f}", f"{h.adv_norm_decay:.4f}"]
        rows.append([each.name, *sizes, *numbers, outcomes[each.name]])
    columns = ["run", "iteration", "minibatch", "learning rate", "beta_prox", "adv. decay", "final return"]
    console.out.print(console.table("", columns, rows))
    console.out.print(f"\n{conclusion(runs, outcomes)}\nThe picture: {picture}")
    return 0
