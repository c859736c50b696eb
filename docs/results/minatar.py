"""Train PureJaxRL's settings on gymnax's MinAtar, in full length, and write docs/results/minatar.md.

    python docs/results/minatar.py [--only GAME] [--out runs/results]

Runs that are finished are kept; a run that was interrupted goes on. A game whose run is not there keeps its line.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from training import train

from isobatch.training.curves import learning_curves
from isobatch.training.run_directory import RunDirectory

HERE = Path(__file__).parent
PAGE = HERE / "minatar.md"
SEEDS = 2
BEGIN, END = "<!-- measured -->", "<!-- end of what was measured -->"


class Published(NamedTuple):
    """A return that others published for a game, at about 10 million steps."""

    score: float
    where: str


PUREJAXRL = "PureJaxRL's {}, read from the picture"
GYMNAX = "README of gymnax 1.0.1, other settings"
GAMES = {
    "Breakout": Published(40, PUREJAXRL.format("README")),
    "SpaceInvaders": Published(168, PUREJAXRL.format("brax_minatar.ipynb, one seed")),
    "Asterix": Published(15, GYMNAX),
    "Freeway": Published(58, GYMNAX),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=GAMES, help="train this game alone")
    parser.add_argument("--out", type=Path, default=Path("runs/results"))
    args = parser.parse_args()
    for game in [args.only] if args.only else GAMES:
        train(command(game), run_of(args.out, game))
    write_page(args.out)


def command(game: str) -> list[str]:
    words = ["isobatch", "train", "--preset", "minatar-ppo", "--env", f"{game}-MinAtar", "--num-seeds", str(SEEDS)]
    return [*words, "--checkpoint-interval", "200"]


def run_of(out: Path, game: str) -> Path:
    return out / f"minatar-{game}"


def write_page(out: Path) -> None:
    """The lines of the games that were trained; those of the others stay."""
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    kept, after = rest.split(END)
    lines = {line.split(" | ")[0].strip("| "): line for line in kept.splitlines() if line.startswith("| ")}
    for game in GAMES:
        run = run_of(out, game)
        if (run / "result.json").exists():
            lines[game] = line_of(game, json.loads((run / "result.json").read_text()))
            metrics = RunDirectory.open(run).metrics()
            env = f"{game}-MinAtar"
            learning_curves({"minatar-ppo": metrics}, HERE / f"minatar-{game}.png", env, env=env)
    table = ["| game | steps per seed | returns of the seeds | mean | published | of it | where |"]
    table += ["|---|---:|---:|---:|---:|---:|---|", *(lines[game] for game in GAMES if game in lines)]
    pictures = [f"![Learning curves on {game}](minatar-{game}.png)" for game in GAMES if game in lines]
    missing = [game for game in GAMES if game not in lines]
    left = ["", f"Not trained yet: {', '.join(missing)}."] if missing else []
    PAGE.write_text("\n".join([before + BEGIN, *table, *left, "", *pictures, END + after]))


def line_of(game: str, result: dict) -> str:
    ends, published = np.array(result["final_return"], dtype=float), GAMES[game]
    seeds = ", ".join(f"{end:.1f}" for end in sorted(ends))
    share = f"{ends.mean() / published.score:.0%}"
    cells = [f"{result['env_steps']:,}", seeds, f"{ends.mean():.1f}", f"{published.score:g}", share, published.where]
    return f"| {game} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
