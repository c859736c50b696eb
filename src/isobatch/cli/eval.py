"""Play episodes with the policies of a run, one per seed, and report their returns."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from isobatch.cli import console
from isobatch.cli.flags import Parser, add_limits, chosen_seed, limits
from isobatch.formatting import counted
from isobatch.settings.fields import COUNT, SEED
from isobatch.settings.parsing import parse_value

if TYPE_CHECKING:
    from rich.table import Table

    from isobatch.rollouts.evaluation import Episodes
    from isobatch.training.loading import LoadedRun

TRAINED, HELD_OUT = "training levels", "all levels"


class Film(TypedDict):
    file: str
    policy_seed: int
    returns: list[float]


def add_flags(parser: Parser) -> None:
    parser.add_argument("run_dir", type=Path, metavar="RUN", help="directory of a run")
    parser.add_argument("--episodes", default="100", metavar="N", help="episodes per seed (default 100)")
    parser.add_argument(
        "--sampled", action="store_true", help="sample actions as in training; default: the most likely one"
    )
    parser.add_argument("--checkpoint", default="newest", metavar="WHICH", help="newest, best or an iteration")
    parser.add_argument("--seed", default="0", metavar="N", help="seed of the episodes")
    parser.add_argument(
        "--held-out", action="store_true", help="Procgen: also on all levels, where num_levels were trained on"
    )
    parser.add_argument("--video", type=Path, metavar="FILE", help="also film episodes: .gif, or .mp4 (extra: video)")
    parser.add_argument("--video-episodes", default="1", metavar="N", help="episodes to film (default 1)")
    parser.add_argument("--policy-seed", metavar="N", help="the run's seed to film; default: the first")
    add_limits(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(args: argparse.Namespace) -> int:
    episodes, seed = parse_value("episodes", args.episodes, int), parse_value("seed", args.seed, int)
    filmed, (timeout, longest) = parse_value("video_episodes", args.video_episodes, int), limits(args)
    COUNT.check("episodes", episodes)
    COUNT.check("video_episodes", filmed)
    SEED.check("seed", seed)
    from isobatch.policies.returns import COLUMNS, Evaluation
    from isobatch.rollouts.evaluation import evaluate, gap, held_out
    from isobatch.training.loading import load_run

    loaded = load_run(args.run_dir, args.checkpoint, console.say)
    configs = {TRAINED: loaded.config} | ({HELD_OUT: held_out(loaded.config)} if args.held_out else {})
    film = prepare_film(args, loaded, filmed, seed)
    played = {
        name: evaluate(config, loaded.states, episodes, not args.sampled, seed, timeout, longest)
        for name, config in configs.items()
    }
    video = film()
    config, iteration = loaded.config, loaded.iteration
    if args.json:
        run = {"run_dir": str(args.run_dir), "env": config.env, "algo": config.algo, "iteration": iteration}
        console.print_json(
            run
            | {"episodes": episodes, "deterministic": not args.sampled, "seeds": loaded.seeds}
            | played[TRAINED].summary()
            | ({"held_out": played[HELD_OUT].summary() | gap(*played.values())} if args.held_out else {})
            | ({"video": video} if video else {})
        )
        return 0
    how = "sampled" if args.sampled else "most likely"
    title = f"{config.algo} on {config.env}, iteration {iteration}, {how} actions, {counted(episodes, 'episode')}"
    if args.held_out:
        console.out.print(side_by_side(title, loaded, played))
    else:
        one = played[TRAINED]
        rows = Evaluation(one.returns, one.lengths, title, loaded.seeds).rows()
        console.out.print(console.table(title, COLUMNS, rows))
    if video:
        shown = ", ".join(console.number(value) for value in video["returns"])
        console.out.print(f"\nfilmed: {video['file']} (seed {video['policy_seed']}, return {shown})")
    return 0


def side_by_side(title: str, loaded: LoadedRun, played: dict[str, Episodes]) -> Table:
    from isobatch.rollouts.evaluation import gap

    gaps = gap(*played.values())
    rows = []
    for i, seed in enumerate(loaded.seeds):
        each = [(one.returns[i].mean(), one.returns[i].std()) for one in played.values()]
        numbers = [*(number for pair in each for number in pair), gaps["gap"][i], gaps["gap_error"][i]]
        rows.append([str(seed), *(console.number(float(value), 2) for value in numbers)])
    columns = [column for name in played for column in (name, "std")]
    return console.table(title, ["seed", *columns, "gap", "+-"], rows)


def prepare_film(args: argparse.Namespace, loaded: LoadedRun, episodes: int, seed: int) -> Callable[[], Film | None]:
    """A function that films and says what; everything that can be wrong is checked before it is called."""
    if args.video is None:
        return lambda: None
    from isobatch.policies.agent import Agent, learned_of
    from isobatch.rendering.open_scene import open_scene
    from isobatch.rendering.scenes import frames
    from isobatch.rendering.video import check_video, record

    check_video(args.video)
    learned = learned_of(loaded, chosen_seed(args))
    timeout, longest = limits(args)
    scene = open_scene(loaded.config, timeout)

    def film() -> Film:
        played = frames(scene, Agent(learned), episodes, not args.sampled, seed, longest)
        try:
            returns = record(args.video, played, loaded.config.env)
        finally:
            scene.close()
        return {"file": str(args.video), "policy_seed": learned.seed, "returns": returns}

    return film
