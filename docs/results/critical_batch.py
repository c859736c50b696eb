"""Measure critical batch sizes by branches, beside the noise scale, and write docs/results/critical-batch.md.

    python docs/results/critical_batch.py [--only ENV] [--out runs/gradients]

The runs are those of docs/results/gradients.py, trained here where there are none. What is measured is kept; a
measurement that was interrupted goes on inside. A page is written of what there is.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from pathlib import Path
from typing import Any

from gradients import run, train_command

from isobatch.formatting import by_magnitude, number, rounded, with_interval
from isobatch.laboratory.results import from_json
from isobatch.statistics.bootstrap import Estimate

HERE = Path(__file__).parent
STAGES = {
    "CartPole-v1": ((10, 100, 250), 8),
    "Acrobot-v1": ((10, 50, 120), 6),
    "Breakout-MinAtar": ((10, 50, 100), 4),
}  # iterations after which the policy is measured, and seeds of each branch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(STAGES), help="measure this alone")
    parser.add_argument("--out", type=Path, default=Path("runs/gradients"))
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page of what there is")
    args = parser.parse_args()
    for env in () if args.page else STAGES:
        if args.only in (None, env):
            folder = args.out / env
            if not (folder / "run.json").is_file():
                run(train_command(env, folder))
            for iteration in STAGES[env][0]:
                result = run(diagnose_command(env, folder, [iteration]))
            result = run(diagnose_command(env, folder, STAGES[env][0]))
            (args.out / f"{env}-branches.json").write_text(json.dumps(result) + "\n")
    write_page(args.out)


def diagnose_command(env: str, folder: Path, iterations: Any) -> list[str]:
    words = ["isobatch", "diagnose", str(folder), "--sections", "branches", "--branch-seeds", str(STAGES[env][1])]
    return [*words, "--time", "0", "--checkpoint", ",".join(map(str, iterations))]


def write_page(out: Path) -> None:
    found = {env: json.loads(path.read_text()) for env in STAGES if (path := out / f"{env}-branches.json").is_file()}
    page = [INTRODUCTION]
    for env, result in found.items():
        for checkpoint in result["checkpoints"]:
            page.append(f"| {env} | {' | '.join(cells(checkpoint))} |")
    page += ["", SAID, ""]
    for env, result in found.items():
        page += write_environment(env, result)
    (HERE / "critical-batch.md").write_text("\n".join(page).rstrip() + "\n")


def cells(checkpoint: dict[str, Any]) -> list[str]:
    section = checkpoint["branches"]
    names = ("critical_batch", "critical_batch_at_end", "noise_scale")
    branches, end, noise = (from_json(Estimate, section[name]) for name in names)
    told = not math.isnan(noise.value)
    return [
        f"{checkpoint['env_steps']:,}",
        by_magnitude(section["policy_return"]),
        f"{section['own_batch']:,}",
        *(with_interval(each, lambda x: number(x, 0)) for each in (branches, end)),
        with_interval(noise, lambda x: number(x, 0)) if told else f"at least {number(noise.low, 0)}",
        "overlap" if branches.overlaps(noise) else "apart",
    ]


def write_environment(env: str, result: dict[str, Any]) -> list[str]:
    folder, run_dir = Path(result["out"]), Path(result["run_dir"])
    iterations = [checkpoint["iteration"] for checkpoint in result["checkpoints"]]
    commands = [" ".join(train_command(env, run_dir)), " ".join(diagnose_command(env, run_dir, iterations))]
    page = [f"## {env}", "", "```", *commands, "```", ""]
    shutil.copy(folder / "critical-batch.png", HERE / f"critical-batch-{env}.png")
    page += [f"![Critical batch sizes over training, {env}](critical-batch-{env}.png)", ""]
    page += [
        "| after steps | times the batch | samples a step | return over the branch | minus the best smaller | so it |"
    ]
    page += ["|---:|---:|---:|---:|---:|---|"]
    for checkpoint in result["checkpoints"]:
        for row in checkpoint["branches"]["rows"]:
            difference = with_interval(from_json(Estimate, row["difference"]), by_magnitude) if row["verdict"] else ""
            page.append(
                f"| {checkpoint['env_steps']:,} | {rounded(row['factor'])} | {row['optimization_batch']:,} "
                f"| {by_magnitude(row['over_branch']['value'])} | {difference} | {row['verdict']} |"
            )
    page.append("")
    for checkpoint in result["checkpoints"]:
        name = f"critical-batch-{env}-{checkpoint['iteration']}.png"
        shutil.copy(folder / f"{checkpoint['iteration']:09d}-branches.png", HERE / name)
        page += [f"![Branches of {env} after {checkpoint['env_steps']:,} steps]({name})", ""]
        page += [f"After {checkpoint['env_steps']:,} steps:", ""]
        page += [*(f"- {sentence}" for sentence in checkpoint["sentences"]), ""]
    return page


INTRODUCTION = """\
# How large can a batch be before it costs samples?

**Does the gradient noise scale say what the critical batch size is?** From three stages of three runs, training goes on
at batches 1/4 to 64 times as large, on equal samples, rates by rule (Merrill et al.
[2025](https://arxiv.org/abs/2505.23971)): the largest batch that loses nothing, beside the noise scale of the same
policy. What the two are, and what it is to lose: [the gradient
laboratory](../gradients.md#the-critical-batch-by-training). Made by `python docs/results/critical_batch.py`.

In samples of a gradient step, with intervals (*inf*: no upper end). At the end: by the return at the end of the branch
alone.

| environment | after steps | return | own batch | by branches | at the end | noise scale | intervals |
|---|---:|---:|---:|---:|---:|---:|---|"""
SAID = """\
"""


if __name__ == "__main__":
    main()
