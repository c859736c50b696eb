"""Train the presets and write docs/results/training.md: commands, a table and a learning curve per environment.

    python docs/results/training.py [--only ENV] [--out runs/results]

Runs that are finished are kept; a run that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from isobatch.training.curves import learning_curves
from isobatch.training.run_directory import RunDirectory

HERE = Path(__file__).parent
FAMILY = ["ppo", "ppo-ewma", "ppg", "ppg-ewma", "a2c", "reinforce"]
RUNS = {
    "CartPole-v1": (FAMILY, 8, 475),
    "Acrobot-v1": (["ppo", "ppo-ewma"], 4, -100),
    "Pendulum-v1": (["ppo", "ppo-ewma"], 4, -250),
    "MountainCarContinuous-v0": (["ppo", "ppo-ewma"], 4, 90),
    "Breakout-MinAtar": (["ppo", "ppo-ewma", "ppg", "ppg-ewma"], 2, 5),
}  # environment -> algorithms, seeds, and a return that counts as learned


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=RUNS, help="train this environment only")
    parser.add_argument("--out", type=Path, default=Path("runs/results"))
    args = parser.parse_args()
    for env in [args.only] if args.only else RUNS:
        for algo in RUNS[env][0]:
            train(command(algo, env), args.out / f"{env}-{algo}")
    write_page(args.out)
    for algo in FAMILY:
        write_result(args.out, algo)


def command(algo: str, env: str) -> list[str]:
    return ["isobatch", "train", "--algo", algo, "--env", env, "--num-seeds", str(RUNS[env][1])]


def train(words: list[str], run_dir: Path) -> None:
    """Run the command, unless its result is there."""
    result = run_dir / "result.json"
    if result.exists():
        return
    more = ["--resume"] if run_dir.exists() else []
    call = [sys.executable, "-m", *words, "--run-dir", str(run_dir), *more, "--json"]
    done = subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True)
    result.write_text(done.stdout)


def row(out: Path, env: str, algo: str) -> str | None:
    """A line of a table: what this run came to, if it is there."""
    path = out / f"{env}-{algo}" / "result.json"
    if not path.exists():
        return None
    result, (_, seeds, goal) = json.loads(path.read_text()), RUNS[env]
    ends = np.array(result["final_return"], dtype=float)
    return (
        f"{result['env_steps']:,} | {np.sum(ends >= goal)} of {seeds} | {np.median(ends):.1f} | {ends.min():.1f} "
        f"| {ends.max():.1f} |"
    )


def write_result(out: Path, algo: str) -> None:
    """The results of one algorithm, below the marker of its page."""
    page = HERE.parent / "algorithms" / f"{algo}.md"
    marker = f"<!-- result:{algo} -->"
    before, _ = page.read_text().split(marker)
    lines = ["", "| environment | steps per seed | learned | median | worst | best |", "|---|---:|---:|---:|---:|---:|"]
    for env, (algos, _, goal) in RUNS.items():
        if algo in algos and (text := row(out, env, algo)):
            lines.append(f"| {env} ({goal}) | {text}")
    lines += ["", "Final return over seeds; learned: seeds that reached the number in brackets. Commands and curves:"]
    page.write_text(before + marker + "\n".join([*lines, "[what the presets learn](../results/training.md)."]) + "\n")


def write_page(out: Path) -> None:
    """One section an environment, of the runs that are there."""
    page = [
        "# What the presets learn",
        "",
        "**Which return does each preset reach, on how many seeds, and with which command?** Final return: mean over",
        "the episodes that ended in the last tenth of the steps, for each seed. Learned: how many seeds reached the",
        "return named in the heading. Made by `python docs/results/training.py`.",
        "",
    ]
    for env, (algos, _, goal) in RUNS.items():
        found = [algo for algo in algos if (out / f"{env}-{algo}" / "result.json").exists()]
        if not found:
            continue
        page += [f"## {env}: {goal}", "", "| algorithm | steps per seed | learned | median | worst | best |"]
        page += ["|---|---:|---:|---:|---:|---:|"]
        page += [f"| `{algo}` | {row(out, env, algo)}" for algo in found]
        picture = f"training-{env}.png"
        tables = {algo: RunDirectory.open(out / f"{env}-{algo}").metrics() for algo in found}
        learning_curves(tables, HERE / picture, env, env=env)
        page += ["", f"![Learning curves on {env}]({picture})", "", "```"]
        page += [" ".join(command(algo, env)) for algo in found] + ["```", ""]
    (HERE / "training.md").write_text("\n".join(page))


if __name__ == "__main__":
    main()
