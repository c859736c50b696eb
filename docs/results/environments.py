"""Train outside JAX and write docs/results/environments.md: one game through three backends, and a game of Procgen.

    python docs/results/environments.py [--only backends|procgen] [--out runs/results]

Runs that are finished are kept; a run that was interrupted goes on. A section whose runs are not there stays as it is.
The game of Procgen takes half an hour on 2 cores.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from scipy import stats
from training import train

from isobatch.training.curves import learning_curves, seed_curves
from isobatch.training.metrics import RETURN
from isobatch.training.run_directory import RunDirectory

HERE = Path(__file__).parent
SEEDS, GOAL = 8, 475
BACKENDS = {"gymnax": "CartPole-v1", "Gymnasium": "gymnasium/CartPole-v1", "EnvPool": "envpool/CartPole-v1"}
GAME = "StarpilotEasy-v0"
PROCGEN = [
    "isobatch", "train", "--preset", "procgen-ppo", "--env", f"envpool/{GAME}",
    "--env-kwargs", "{num_levels: 200, start_level: 0}", "--num-envs", "64", "--num-steps", "32",
    "--num-minibatches", "8", "--update-epochs", "2", "--max-grad-norm", "0.5", "--gamma", "0.99",
    "--lr-schedule", "linear", "--total-timesteps", "200000",
]  # fmt: skip
BACKENDS_TITLE, PROCGEN_TITLE = "## One game, three backends", "## A game of Procgen"
RANDOM_STEPS = 2_000  # of each environment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["backends", "procgen"], help="train this alone")
    parser.add_argument("--out", type=Path, default=Path("runs/results"))
    args = parser.parse_args()
    if args.only != "procgen":
        for name in BACKENDS:
            train(backend_command(name), args.out / f"backend-{name}")
    if args.only != "backends":
        train(PROCGEN, args.out / "procgen")
        evaluate(args.out / "procgen")
    page = HERE / "environments.md"
    backends, procgen = kept_section(page, BACKENDS_TITLE), kept_section(page, PROCGEN_TITLE)
    if all((args.out / f"backend-{name}" / "result.json").exists() for name in BACKENDS):
        backends = backends_section(args.out)
    if (args.out / "procgen" / "held-out.json").exists():
        procgen = procgen_section(args.out / "procgen")
    head = [
        "# Environments outside JAX",
        "",
        "**Do the same settings learn the same through gymnax, Gymnasium and EnvPool, and what does a small run on",
        "Procgen reach?** Made by `python docs/results/environments.py`.",
        "",
    ]
    page.write_text("\n".join([*head, *backends, *procgen]))


def kept_section(page: Path, title: str) -> list[str]:
    """The lines of a section as it is in the page."""
    lines = page.read_text().split("\n") if page.exists() else []
    if title not in lines:
        return []
    later = lines[lines.index(title) + 1 :]
    ends = [place for place, line in enumerate(later) if line.startswith("## ")]
    body = later[: ends[0]] if ends else later
    return [title, *body]


def backend_command(name: str) -> list[str]:
    return ["isobatch", "train", "--env", BACKENDS[name], "--num-seeds", str(SEEDS)]


def backends_section(out: Path) -> list[str]:
    """Whether the same settings learn alike: at the end, and over the whole run."""
    tables = {name: RunDirectory.open(out / f"backend-{name}").metrics() for name in BACKENDS}
    ends = {
        name: np.array(json.loads((out / f"backend-{name}" / "result.json").read_text())["final_return"])
        for name in BACKENDS
    }
    over_run = {name: np.nanmean(seed_curves(table, RETURN, 0.02)[1], axis=1) for name, table in tables.items()}
    title = "CartPole-v1 through three backends"
    learning_curves(tables, HERE / "environments-backends.png", title, env="CartPole-v1")
    ours = over_run["gymnax"]
    lines = [
        BACKENDS_TITLE,
        "",
        f"PPO's preset for CartPole-v1, {SEEDS} seeds, the same initial weights everywhere. Final return: mean of the",
        f"last tenth of the steps. Learned: seeds that reached {GOAL}. Over the run: mean of the learning curve, its",
        "standard deviation over seeds, its difference from gymnax with a 95 % interval (Welch), and the p-value of a",
        "Mann-Whitney test.",
        "",
        "| backend | learned | final, worst | final, median | over the run | difference | p |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, taken in over_run.items():
        found = f"{np.sum(ends[name] >= GOAL)} of {SEEDS} | {ends[name].min():.1f} | {np.median(ends[name]):.1f}"
        compared = "- | -"
        if name != "gymnax":
            interval = stats.ttest_ind(taken, ours, equal_var=False).confidence_interval()
            p = stats.mannwhitneyu(taken, ours).pvalue
            compared = f"{taken.mean() - ours.mean():+.1f} [{interval.low:+.1f}, {interval.high:+.1f}] | {p:.2f}"
        lines.append(f"| {name} | {found} | {taken.mean():.1f} ± {taken.std(ddof=1):.1f} | {compared} |")
    lines += ["", "![Learning curves of the three backends](environments-backends.png)", "", "```"]
    return [*lines, *(" ".join(backend_command(name)) for name in BACKENDS), "```", ""]


def evaluate(run_dir: Path) -> None:
    """Play training levels and all levels, with sampled actions as in training."""
    file = run_dir / "held-out.json"
    if not file.exists():
        words = ["isobatch", "eval", str(run_dir), "--held-out", "--sampled", "--episodes", "200", "--json"]
        done = subprocess.run([sys.executable, "-m", *words], check=True, stdout=subprocess.PIPE, text=True)
        file.write_text(done.stdout)


def procgen_section(run_dir: Path) -> list[str]:
    table = RunDirectory.open(run_dir).metrics()
    result = json.loads((run_dir / "result.json").read_text())
    played = json.loads((run_dir / "held-out.json").read_text())
    learning_curves({GAME: table}, HERE / "environments-procgen.png", f"PPO on Procgen's {GAME}", window=0.05)
    chance, error = random_return()
    held = played["held_out"]
    return [
        PROCGEN_TITLE,
        "",
        f"{GAME} of EnvPool, trained on 200 levels with the paper's network and PPO settings except the batch (64 x",
        "32 in 8 minibatches instead of 256 x 256), two epochs, gradient clipping, gamma 0.99 and a learning rate that",
        f"falls to zero: a small run of {result['env_steps']:,} steps on two cores, where the paper has 100 million.",
        "One seed, so the spread over seeds is not known.",
        "",
        "| | return |",
        "|---|---:|",
        f"| random actions | {chance:.2f} ± {error:.2f} |",
        f"| last tenth of training | {result['final_return'][0]:.2f} |",
        f"| afterwards, training levels, 200 episodes | {played['return_mean'][0]:.2f} |",
        f"| afterwards, all levels, 200 episodes | {held['return_mean'][0]:.2f} |",
        f"| difference | {held['gap'][0]:+.2f} ± {held['gap_error'][0]:.2f} |",
        "",
        f"![Learning curve on {GAME}](environments-procgen.png)",
        "",
        "```",
        " ".join(f"'{word}'" if " " in word else word for word in PROCGEN) + " --run-dir runs/results/procgen",
        "isobatch eval runs/results/procgen --held-out --sampled --episodes 200",
        "```",
        "",
    ]


def random_return() -> tuple[float, float]:
    """Of random actions, and its standard error; episodes that end in time."""
    import envpool

    rng, width = np.random.default_rng(0), 32
    pool = envpool.make_gymnasium(GAME, num_envs=width, seed=0)
    pool.reset()
    total, returns = np.zeros(width), []
    for _ in range(RANDOM_STEPS):
        _, reward, terminated, truncated, _ = pool.step(rng.integers(0, 15, width).astype(np.int32))
        total += reward
        done = terminated | truncated
        returns += list(total[done])
        total[done] = 0
    pool.close()
    return float(np.mean(returns)), float(np.std(returns) / len(returns) ** 0.5)


if __name__ == "__main__":
    main()
