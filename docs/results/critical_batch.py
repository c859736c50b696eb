"""Measure critical batch sizes by branches, beside the noise scale, and write docs/results/critical-batch.md.

    python docs/results/critical_batch.py [--only ENV] [--out runs/gradients]

The runs are those of docs/results/gradients.py, trained here where there are none. What is measured is kept; a
measurement that was interrupted goes on inside. The page gets what was measured here; what it says of the other
environments stays, so that they can be measured one by one, on other machines too.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradients import run, train_command

from isobatch.formatting import by_magnitude, number, rounded, with_interval
from isobatch.laboratory.results import from_json
from isobatch.statistics.bootstrap import Estimate

HERE = Path(__file__).parent
BRANCHES, NOISE, OVERLAP = 4, 6, "overlap"  # columns of the page's table, and what the last one says
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
            result = run(diagnose_command(env, folder, STAGES[env][0]))
            (args.out / f"{env}-branches.json").write_text(json.dumps(result) + "\n")
    write_page(args.out)


def diagnose_command(env: str, folder: Path, iterations: Any) -> list[str]:
    words = ["isobatch", "diagnose", str(folder), "--sections", "branches", "--branch-seeds", str(STAGES[env][1])]
    return [*words, "--time", "0", "--checkpoint", ",".join(map(str, iterations))]


@dataclass(frozen=True)
class Part:
    """What the page says of one environment."""

    rows: list[str]
    course: str  # from the first stage to the last
    section: str


def write_page(out: Path) -> None:
    page = HERE / "critical-batch.md"
    parts = parts_of(page.read_text()) if page.is_file() else {}
    for env in STAGES:
        if (path := out / f"{env}-branches.json").is_file():
            parts[env] = measured(env, json.loads(path.read_text()))
    page.write_text(page_of({env: parts[env] for env in STAGES if env in parts}))


def page_of(parts: Mapping[str, Part]) -> str:
    rows = [row for part in parts.values() for row in part.rows]
    sections = [part.section for part in parts.values()]
    return "\n\n".join(["\n".join([INTRODUCTION, *rows]), said(parts, rows), CAVEATS, *sections]) + "\n"


def parts_of(page: str) -> dict[str, Part]:
    """What a page says, by environment."""
    head, *sections = page.split("\n## ")
    parts = {}
    for section in sections:
        env, lines = section.split("\n", 1)[0], head.split("\n")
        course = next(line for line in lines if line.startswith(f"- {env}: "))
        parts[env] = Part([line for line in lines if line.startswith(f"| {env} |")], course, f"## {section.rstrip()}")
    return parts


def measured(env: str, result: dict[str, Any]) -> Part:
    checkpoints = result["checkpoints"]
    rows = [f"| {env} | {' | '.join(cells(checkpoint))} |" for checkpoint in checkpoints]
    (first, first_noise), (last, last_noise) = estimates(checkpoints[0]), estimates(checkpoints[-1])
    course = (
        f"- {env}: by branches {short(first)} to {short(last)}, by the noise scale {short(first_noise)} to "
        f"{short(last_noise)}."
    )
    return Part(rows, course, "\n".join(write_environment(env, result)).rstrip())


def said(parts: Mapping[str, Part], rows: list[str]) -> str:
    """How often the two agree, and how both change over training."""
    found = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    together = sum(row[-1] == OVERLAP for row in found)
    bounded = sum("inf" not in row[BRANCHES] + row[NOISE] and "at least" not in row[NOISE] for row in found)
    lines = [
        f"**Their intervals overlap at {together} of {len(rows)} policies**; both have an upper end at {bounded} of",
        "them, elsewhere they are lower bounds that do not contradict each other. From the first stage to the last:",
        "",
        *(part.course for part in parts.values()),
    ]
    missing = [env for env in STAGES if env not in parts]
    return "\n".join([*lines, *(["", f"Not measured yet: {', '.join(missing)}."] if missing else [])])


def short(estimate: Estimate) -> str:
    """Without its interval; one that has no upper end is a lower bound."""
    if math.isnan(estimate.value):
        return f"more than {number(estimate.low, 0)}"
    return f"{'at least ' if not math.isfinite(estimate.high) else ''}{number(estimate.value, 0)}"


def estimates(checkpoint: dict[str, Any]) -> tuple[Estimate, Estimate]:
    """By branches and by the noise scale."""
    section = checkpoint["branches"]
    return from_json(Estimate, section["critical_batch"]), from_json(Estimate, section["noise_scale"])


def cells(checkpoint: dict[str, Any]) -> list[str]:
    section = checkpoint["branches"]
    branches, noise = estimates(checkpoint)
    end = from_json(Estimate, section["critical_batch_at_end"])
    measured = not math.isnan(noise.value)
    return [
        f"{checkpoint['env_steps']:,}",
        by_magnitude(section["policy_return"]),
        f"{section['own_batch']:,}",
        *(with_interval(each, lambda x: number(x, 0)) for each in (branches, end)),
        with_interval(noise, lambda x: number(x, 0)) if measured else f"at least {number(noise.low, 0)}",
        OVERLAP if branches.overlaps(noise) else "apart",
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

**Does the gradient noise scale say what the critical batch size is?** From three stages of each run, training goes on
at batches 1/4 to 64 times as large, on equal samples, rates by rule (Merrill et al.
[2025](https://arxiv.org/abs/2505.23971)): the largest batch that loses nothing, beside the noise scale of the same
policy. What the two are, and what it is to lose: [the gradient
laboratory](../gradients.md#the-critical-batch-by-training). Made by `python docs/results/critical_batch.py`.

In samples of a gradient step, with intervals (*inf*: no upper end). At the end: by the return at the end of the branch
alone.

| environment | after steps | return | own batch | by branches | at the end | noise scale | intervals |
|---|---:|---:|---:|---:|---:|---:|---|"""
CAVEATS = """\
What to keep in mind: the noise scale is where a batch needs *twice* the samples of a very small one, branches ask where
more than 5 % of the return is lost, and that over the whole branch, in which a large batch also waits longer for its
first update. So the two need not be equal; that they rise and fall together is what can be asked of them. Sizes are
four times apart, and so the intervals of the branches are wide. A policy that cannot get better any more, like one that
has solved CartPole, can only be spoiled, which takes a larger batch, and the noise scale grows there too, since the
gradient that is left is small. Merrill et al. find the same course on language models: a critical batch near 0 at
first, which grows fast, and then stays."""


if __name__ == "__main__":
    main()
