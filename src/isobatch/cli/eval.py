"""Play episodes with the policies of a run, one per seed, and report their returns."""

from __future__ import annotations

import argparse
from pathlib import Path

from isobatch.cli import console
from isobatch.cli.flags import Parser
from isobatch.errors import UsageError
from isobatch.parsing import parse_value


def add_flags(parser: Parser) -> None:
    parser.add_argument("run_dir", type=Path, metavar="RUN", help="directory of a run")
    parser.add_argument("--episodes", default="100", metavar="N", help="episodes per seed (default 100)")
    parser.add_argument(
        "--sampled", action="store_true", help="sample actions as in training; default: the most likely one"
    )
    parser.add_argument("--checkpoint", default="newest", metavar="WHICH", help="newest, best or an iteration")
    parser.add_argument("--seed", default="0", metavar="N", help="seed of the episodes")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(args: argparse.Namespace) -> int:
    episodes, seed = parse_value("episodes", args.episodes, int), parse_value("seed", args.seed, int)
    if episodes < 1:
        raise UsageError(f"episodes={episodes} must be at least 1.")
    from isobatch.evaluation import evaluate
    from isobatch.loading import load_run

    loaded = load_run(args.run_dir, args.checkpoint, console.say)
    returns, lengths = evaluate(loaded.config, loaded.states, episodes, not args.sampled, seed)
    how = "sampled" if args.sampled else "most likely"
    if args.json:
        console.print_json(
            {
                "run_dir": str(args.run_dir),
                "env": loaded.config.env,
                "algo": loaded.config.algo,
                "iteration": loaded.iteration,
                "episodes": episodes,
                "deterministic": not args.sampled,
                "seeds": loaded.seeds,
                "return_mean": returns.mean(axis=1),
                "return_std": returns.std(axis=1),
                "length_mean": lengths.mean(axis=1),
            }
        )
        return 0
    rows = [
        [str(s), *(console.number(float(v)) for v in (r.mean(), r.std(), r.min(), r.max(), n.mean()))]
        for s, r, n in zip(loaded.seeds, returns, lengths, strict=True)
    ]
    title = (
        f"{loaded.config.algo} on {loaded.config.env}, iteration {loaded.iteration}, {how} actions, {episodes} episodes"
    )
    console.out.print(console.table(title, ["seed", "return", "std", "min", "max", "length"], rows))
    return 0
