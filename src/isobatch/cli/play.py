"""Watch a trained policy, in the terminal or in a window."""

from __future__ import annotations

import argparse
from pathlib import Path

from isobatch.cli import console
from isobatch.cli.flags import Parser, add_limits, add_policy, chosen_seed, limits
from isobatch.settings.fields import COUNT, POSITIVE, SEED
from isobatch.settings.parsing import parse_value


def add_flags(parser: Parser) -> None:
    parser.add_argument("run_dir", type=Path, metavar="RUN", help="directory of a run")
    parser.add_argument(
        "--episodes", default="3", metavar="N", help="episodes to watch (default 3); Ctrl-C ends earlier"
    )
    parser.add_argument("--speed", default="1", metavar="X", help="times as fast as the environment is meant to be")
    parser.add_argument(
        "--sampled", action="store_true", help="sample actions as in training; default: the most likely one"
    )
    add_policy(parser)
    parser.add_argument("--seed", default="0", metavar="N", help="seed of the episodes")
    add_limits(parser)
    parser.add_argument("--window", action="store_true", help="in a window instead of the terminal (extra: window)")


def run(args: argparse.Namespace) -> int:
    policy_seed = chosen_seed(args)
    episodes, seed = parse_value("episodes", args.episodes, int), parse_value("seed", args.seed, int)
    speed, (timeout, longest) = parse_value("speed", args.speed, float), limits(args)
    COUNT.check("episodes", episodes)
    SEED.check("seed", seed)
    POSITIVE.check("speed", speed)
    from isobatch.policies.agent import Agent, learned_of
    from isobatch.rendering.open_scene import open_scene
    from isobatch.rendering.scenes import frames, watch
    from isobatch.rendering.terminal import terminal
    from isobatch.rendering.window import window
    from isobatch.training.loading import load_run

    learned = learned_of(load_run(args.run_dir, args.checkpoint, console.say), policy_seed)
    config = learned.config
    scene = open_scene(config, timeout)
    try:
        with window(config.env) if args.window else terminal(console.out, config.env) as show:
            returns = watch(frames(scene, Agent(learned), episodes, not args.sampled, seed, longest), show, speed)
    finally:
        scene.close()
    title = f"{config.algo} on {config.env}, seed {learned.seed}, iteration {learned.iteration}"
    rows = [[str(i + 1), console.number(value)] for i, value in enumerate(returns)]
    console.out.print(console.table(title, ["episode", "return"], rows) if rows else title)
    return 0
