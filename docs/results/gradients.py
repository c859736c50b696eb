"""Measure policy gradients on several environments and write docs/results/gradients.md: a blog post, and beyond.

    python docs/results/gradients.py [--only ENV|post] [--out runs/gradients]

What is measured is kept; a run that was interrupted goes on. What is not measured now keeps its part of the page.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from isobatch.formatting import TO, with_interval
from isobatch.laboratory.results import from_json
from isobatch.statistics.bootstrap import Estimate

HERE = Path(__file__).parent
ENVIRONMENTS = {
    "CartPole-v1": ("discrete actions, ends when the pole falls", 128, (10, 100, 488)),
    "Acrobot-v1": ("discrete actions, ends when the goal is reached", 128, (10, 50, 244)),
    "Breakout-MinAtar": ("images, a convolutional network, ends when the ball is lost", 64, (10, 50, 146)),
}  # what it is like, chains to measure on, and iterations after which the policy is measured
POST = "https://iclr-blogposts.github.io/2026/blog/2026/ppo-batch-size/"
SECTIONS = "geometries,lambdas,lags,minibatches,trust-region,aggregations"
POST_PICTURES = (
    *(f"figure-{n}.png" for n in ("1", "1-means", *range(2, 7))),
    *("000000440-geometries.png", "000000440-lambdas.png", "000000440-lags.png", "training-time.png"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["post", *ENVIRONMENTS], help="measure this alone")
    parser.add_argument("--out", type=Path, default=Path("runs/gradients"))
    args = parser.parse_args()
    if args.only in (None, "post"):
        run(post_command(args.out))
    for env in ENVIRONMENTS:
        if args.only in (None, env):
            folder = args.out / env
            if not (folder / "run.json").is_file():
                run(train_command(env, folder))
            result = run(diagnose_command(env, folder))
            (args.out / f"{env}.json").write_text(json.dumps(result) + "\n")
    write_page(args.out)


def post_command(out: Path) -> list[str]:
    return ["isobatch", "study", "run", "pendulum-post", "--out", str(out / "post")]


def train_command(env: str, folder: Path) -> list[str]:
    kept = ["--checkpoint-interval", "10", "--keep-checkpoints", "50", "--run-dir", str(folder)]
    return ["isobatch", "train", "--env", env, "--algo", "ppo", *kept]


def diagnose_command(env: str, folder: Path) -> list[str]:
    _, chains, iterations = ENVIRONMENTS[env]
    words = ["isobatch", "diagnose", str(folder), "--budget", "1024", "--chains", str(chains)]
    return [*words, "--sections", SECTIONS, "--checkpoint", ",".join(map(str, iterations))]


def run(words: list[str]) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", *words, "--json"], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def write_page(out: Path) -> None:
    page = [
        "# How noisy, how biased, how correlated is the policy gradient?",
        "",
        "**Do long rollouts make policy gradients noisy, because their samples are correlated? Or are short ones",
        "worse, because they are biased?** Every number has its 95 % interval, from a bootstrap over independent",
        "environments or batches, never over time steps. What the quantities are: [the gradient",
        "laboratory](../gradients.md). Made by `python docs/results/gradients.py`.",
        "",
    ]
    page += write_post(out) if (out / "post" / "claims.json").is_file() else part_of_page("## The blog post")
    found = {env: json.loads(path.read_text()) for env in ENVIRONMENTS if (path := out / f"{env}.json").is_file()}
    page += write_summary(found)
    for env, (kind, *_) in ENVIRONMENTS.items():
        page += write_environment(env, kind, found[env]) if env in found else part_of_page(f"## {env}: ")
    (HERE / "gradients.md").write_text("\n".join(page).rstrip() + "\n")


def part_of_page(heading: str) -> list[str]:
    """The lines of the page as it is, from a heading to the next one of its rank."""
    kept: list[str] = []
    for line in (HERE / "gradients.md").read_text().split("\n"):
        if line.startswith(heading) or (kept and not line.startswith("## ")):
            kept.append(line)
        elif kept:
            break
    return kept


def write_post(out: Path) -> list[str]:
    claims = json.loads((out / "post" / "claims.json").read_text())["claims"]
    for name in POST_PICTURES:
        shutil.copy(out / "post" / name, HERE / f"gradients-post-{name.removeprefix('000000440-')}")
    page = [
        "## The blog post on Pendulum-v1",
        "",
        f"PPO with 4 environments x 256 steps, as in [the post]({POST}), measured after 450,560 steps. A claim *holds*",
        "or *does not hold* where its intervals say so. Cosines are means over 16 batches.",
        "",
        "```",
        " ".join(post_command(out)),
        "```",
        "",
        "| claim | | measured |",
        "|---|---|---|",
        *(f"| {c['claim']} | **{c['verdict']}** | {c['evidence'].replace('|', '&#124;')} |" for c in claims),
        "",
        VERDICT,
        "",
        "### The post's six figures, repeated",
        "",
    ]
    for n in range(1, 7):
        page += [f"![Figure {n} of the post, repeated](gradients-post-figure-{n}.png)", ""]
        if n == 1:
            page += ["![Mean cosine against lag, signed and absolute](gradients-post-figure-1-means.png)", ""]
    page += ["### Beyond the post: the variance itself", ""]
    for name, caption in BEYOND:
        page += [f"![{caption}](gradients-post-{name}.png)", "", caption + ".", ""]
    return page


VERDICT = """\
In plain words: gradients of neighboring steps lie along the same line far more often than gradients of two
trajectories, at both checkpoints. In direction the difference is smaller, and it depends on the policy: at step 399,360
the mean cosine is +.32 at lag 1 and +.29 at lag 40, and +.25 across trajectories; at step 450,560 it is +.07, +.04 and
+.05. Neighbors point in the same direction more often than in opposite ones, but so do gradients that have nothing to
do with each other. A cosine weighs a small gradient like a large one. Var(G_B) is made of products, in which large
gradients count most, and there the correlation of neighbors is below .03 at this policy, .04 to .08 at three of 22
checkpoints and not to be told from zero at the others (figure 2): a rollout of 256 steps is worth about as many
independent samples as it has steps.

Long rollouts *are* noisier at equal data: a little at 4 x 256 against 16 x 64 here, up to 3.5 times at 2 x 512 against
128 x 8 on Pendulum [at another policy](geometry.md), and about half as noisy at a third. Here the reason is not
correlation but the advantage of each single step, which sums more rewards: the variance grows with T while the number
of effective samples does not fall. Acrobot's gradients are like that too; those of Breakout-MinAtar become correlated
as training goes on (below). And what makes very short rollouts bad is bias."""
BEYOND = (
    ("geometries", "Variance, squared bias and error over N x T at equal data, effective samples, and time"),
    ("lambdas", "The effect of lambda at three rollout lengths"),
    ("lags", "Correlation against lag in covariance form, and what each lag adds to the variance of a rollout"),
    ("training-time", "Error, effective samples and critical batch size over training"),
)


def write_summary(found: dict[str, dict[str, Any]]) -> list[str]:
    """What a long rollout is worth, for each environment and age of the policy, in one table."""
    page = [
        "## Are the samples of a long rollout correlated? It depends on the task and the policy",
        "",
        "How many independent samples 1,024 samples of 4 x 256 are worth, the share of a rollout's variance that",
        "single samples account for, and where the lowest error was.",
        "",
        "| environment | after steps | effective samples of 4x256 | share of single samples | lowest error |",
        "|---|---:|---:|---:|---|",
    ]
    for env in ENVIRONMENTS:
        if env not in found:
            summary = part_of_page("## Are the samples of a long rollout correlated?")
            page += [line for line in summary if line.startswith(f"| {env} |")]
            continue
        for checkpoint in found[env]["checkpoints"]:
            rows = checkpoint["geometries"]["rows"]
            long = next(row for row in rows if row["num_steps"] == 256)
            best = min(rows, key=lambda row: row["error"]["value"])
            alone = checkpoint["lags"]["shares"][0]["estimate"]
            page.append(
                f"| {env} | {checkpoint['env_steps']:,} | {number(long['effective_samples'])} | {number(alone)} "
                f"| {best['num_envs']}x{best['num_steps']} |"
            )
    return [*page, ""]


def write_environment(env: str, kind: str, result: dict[str, Any]) -> list[str]:
    folder = Path(result["out"])
    picture = f"gradients-{env}.png"
    shutil.copy(folder / "training-time.png", HERE / picture)
    last = result["checkpoints"][-1]
    geometry = f"gradients-{env}-geometries.png"
    shutil.copy(folder / f"{last['iteration']:09d}-geometries.png", HERE / geometry)
    page = [f"## {env}: {kind}", "", "```"]
    page += [" ".join(train_command(env, Path(result["run_dir"])))]
    page += [" ".join(diagnose_command(env, Path(result["run_dir"]))), "```", ""]
    page += [
        "| after steps | N x T | variance | squared bias | error | effective samples of 1,024 | variance, direct |"
    ]
    page += ["|---:|---|---:|---:|---:|---:|---:|"]
    for checkpoint in result["checkpoints"]:
        for row in checkpoint["geometries"]["rows"][::2]:
            cells = [number(row[name]) for name in ("variance", "squared_bias", "error", "effective_samples")]
            direct = number(row["measured_variance"]) if "measured_variance" in row else ""
            name = f"{row['num_envs']}x{row['num_steps']}"
            page.append(f"| {checkpoint['env_steps']:,} | {name} | {' | '.join(cells)} | {direct} |")
    page += ["", f"![Over training, {env}]({picture})", "", f"![The last policy, {env}]({geometry})", ""]
    for checkpoint in result["checkpoints"]:
        page += [f"After {checkpoint['env_steps']:,} steps:", ""]
        page += [f"- {sentence}" for sentence in checkpoint["sentences"]]
        page.append("")
    return page


def number(estimate: dict[str, float | None]) -> str:
    return with_interval(from_json(Estimate, estimate), ends=TO)


if __name__ == "__main__":
    main()
