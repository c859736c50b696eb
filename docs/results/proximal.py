"""Compare proximal policies on fresh and stale data and write docs/results/proximal.md: returns and speed side by side.

    python docs/results/proximal.py [--out runs/proximal]
    python docs/results/proximal.py --page      train nothing: write the page of proximal.json

CartPole-v1 under the settings of FIGURE, which keep the KL per iteration small. Finished runs are kept.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TypedDict

import numpy as np

from isobatch.formatting import with_interval
from isobatch.statistics.aggregates import contrast
from isobatch.statistics.bootstrap import Estimate
from isobatch.statistics.comparisons import difference
from isobatch.statistics.normalization import normalize
from isobatch.studies.result_files import typed
from isobatch.studies.scores import FINAL, MEAN, scores
from isobatch.training.curves import learning_curves
from isobatch.training.metrics import RETURN
from isobatch.training.run_directory import RunDirectory

HERE = Path(__file__).parent
NUMBERS, PAGE = HERE / "proximal.json", HERE / "proximal.md"
ENV = "CartPole-v1"
FIGURE = f"--env {ENV} --num-envs 16 --num-steps 64 --num-minibatches 8 --update-epochs 1 --learning-rate 1e-3"
RUN = "--lr-schedule constant --total-timesteps 600000 --num-seeds 8"
STALENESS = (0, 4, 8)
POLICIES = {
    "behavior": "--algo ppo --importance-policy behavior --proximal-policy behavior",
    "recent": "--algo ppo --importance-policy behavior --proximal-policy recent",
    "loglinear": "--algo ppo --importance-policy behavior --proximal-policy loglinear",
    "ewma": "--algo ppo-ewma",
}
OBJECTIVES = {"behavior": "PPO's usual objective", "recent": "decoupled"}  # what the paper calls them
REPEATS = 2  # of the speed measurement, in turn


class Run(TypedDict):
    """Of one proximal policy and staleness."""

    mean_return: list[float]  # over the run, of each seed
    kl: float


class Numbers(TypedDict):
    """What proximal.json holds."""

    runs: dict[str, Run]  # by policy and staleness
    steps_per_second: dict[str, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/proximal"))
    parser.add_argument("--page", action="store_true", help="train nothing")
    args = parser.parse_args()
    if not args.page:
        NUMBERS.write_text(json.dumps(measure(args.out), indent=1) + "\n")
        tables = {name: RunDirectory.open(args.out / f"{name}-8").metrics() for name in POLICIES}
        learning_curves(tables, HERE / "proximal.png", f"{ENV}, staleness 8", env=ENV)
    PAGE.write_text(page_of(json.loads(NUMBERS.read_text())))


def measure(out: Path) -> Numbers:
    runs, speeds = dict[str, Run](), {name: list[float]() for name in POLICIES}
    for staleness in STALENESS:
        for name in POLICIES:
            train(command(name, staleness), out / f"{name}-{staleness}")
            table = RunDirectory.open(out / f"{name}-{staleness}").metrics()
            means = [float(np.nanmean(table[RETURN][table["seed"] == seed])) for seed in np.unique(table["seed"])]
            kl = float(np.nanmean(table["losses/approx_kl"]))
            runs[f"{name}-{staleness}"] = {"mean_return": [round(mean, 2) for mean in means], "kl": round(kl, 5)}
    for repeat in range(REPEATS):
        for name in list(POLICIES)[:: 1 if repeat % 2 == 0 else -1]:
            speeds[name].append(round(train(command(name, 4), out / f"speed-{repeat}-{name}")))
    return {"runs": runs, "steps_per_second": speeds}


def command(name: str, staleness: int) -> list[str]:
    return ["isobatch", "train", *f"{POLICIES[name]} {FIGURE} --staleness {staleness} {RUN}".split()]


def train(words: list[str], run_dir: Path) -> float:
    """Steps per second."""
    kept = run_dir / "result.json"
    if not kept.exists():
        more = ["--resume"] if run_dir.exists() else []
        call = [sys.executable, "-m", *words, "--run-dir", str(run_dir), *more, "--quiet", "--json"]
        kept.write_text(subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return float(json.loads(kept.read_text())["steps_per_second"])


def page_of(numbers: Numbers) -> str:
    lines = [
        "# Proximal policies on fresh and stale data",
        "",
        paragraph(
            "**Which policy should the clip range be centered on when data is stale?** PPO's clipped objective on "
            f"{ENV}, with the importance ratio to the behavior policy throughout; only the policy that the clip range "
            "is centered on differs. Mean episodic return over the whole run, with 95 % intervals over 8 seeds, and "
            "the mean KL from the behavior policy. Made by `python docs/results/proximal.py`."
        ),
        "",
        paragraph(" ".join(beside_staleness(numbers))),
        "",
        "| proximal policy | " + " | ".join(f"staleness {s}" for s in STALENESS) + " | steps/s at staleness 4 |",
        "|---|" + "---:|" * (len(STALENESS) + 1),
    ]
    speeds = numbers["steps_per_second"]
    decoupled = float(np.median(speeds["recent"]))
    for name in POLICIES:
        cells = [cell(numbers["runs"][f"{name}-{staleness}"]) for staleness in STALENESS]
        rate, which = float(np.median(speeds[name])), f" ({OBJECTIVES[name]})" if name in OBJECTIVES else ""
        beside = "" if name == "recent" else f" ({rate / decoupled - 1:+.0%} to `recent`)"
        lines.append(f"| `{name}`{which} | {' | '.join(cells)} | {rate:,.0f}{beside} |")
    lines += ["", f"Speed: medians of {REPEATS} runs of each, in turn, all seeds together.", ""]
    lines += ["![Learning curves at staleness 8](proximal.png)", "", "```"]
    lines += [" ".join(command(name, 8)) for name in POLICIES] + ["```"]
    return "\n".join(lines) + "\n"


def beside_staleness(numbers: Numbers) -> list[str]:
    """What the study of stale data says of the same question, on the same environment with other settings."""
    here = {name: normalized(numbers["runs"][f"{name}-8"]) for name in OBJECTIVES}
    gap = contrast([(1.0, here["recent"]), (-1.0, here["behavior"])])[0]
    lost = contrast([(1.0, normalized(numbers["runs"]["behavior-0"])), (-1.0, here["behavior"])])[0]
    there = {column: study_gap(column) for column in (MEAN, FINAL)}
    lost_there = difference(stale(MEAN, "fresh data", 0), stale(MEAN, "behavior", 8))[1].value
    return [
        "With CartPole's usual settings (gamma .98, lambda .8, no entropy bonus), at a staleness of 8, the decoupled "
        f"objective minus PPO's usual one is {text(gap)} of normalized return over the run, and the usual one loses "
        f"{text(lost)} against fresh data.",
        "[Stale data](staleness.md), with settings that were searched on fresh data, has for the same environment "
        f"{text(there[MEAN])} over the run and {text(there[FINAL])} in the end, where the usual objective loses "
        f"{text(lost_there)} over the run.",
        "So the sign is the same, and "
        + ("both can be told from 0." if there[MEAN].high < 0 else "there it cannot be told from 0."),
        "The settings differ in learning rate (7.3e-3 there, 1e-3 here) and with it in how far the policy moves (KL "
        ".023 and .002 with fresh data), and in entropy bonus, gamma, lambda, minibatches and steps. Which of these "
        "differences counts was not tested one by one.",
    ]


def normalized(run: Run) -> np.ndarray:
    return normalize(ENV, np.array(run["mean_return"]))


def study_gap(column: str) -> Estimate:
    """Decoupled minus behavior at staleness 8, in the committed rows."""
    return difference(stale(column, "decoupled", 8), stale(column, "behavior", 8))[1].value


def stale(column: str, treatment: str, staleness: int) -> dict[str, np.ndarray]:
    with gzip.open(HERE / "staleness-rows.csv.gz", "rt", newline="") as file:
        rows = [{name: typed(value) for name, value in row.items()} for row in csv.DictReader(file)]
    return scores(rows, column, env=ENV, treatment=treatment, staleness=staleness)


def cell(run: Run) -> str:
    mean = contrast([(1.0, np.array(run["mean_return"]))])[0]
    return f"{with_interval(mean, '{:.0f}'.format)} (KL {run['kl']:.3f})"


def text(estimate: Estimate) -> str:
    return with_interval(estimate, "{:.2f}".format)


def paragraph(words: str) -> str:
    return textwrap.fill(words, 120, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    main()
