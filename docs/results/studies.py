"""Run every study and fill in its page docs/results/NAME.md: tables, pictures, verdict, times.

At laptop scale, unless SCALES says otherwise.

    python docs/results/studies.py [--only NAME] [--out runs]
    python docs/results/studies.py --verdicts [--only NAME]     what the committed rows say, judged and drawn again

Finished studies are kept. What stands outside the two comments of a page is written by hand.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from isobatch.drawing import save_figure
from isobatch.studies.charts import gaps_of
from isobatch.studies.claims import study_of
from isobatch.studies.figures import draw_gaps, draw_scores
from isobatch.studies.grid import Row
from isobatch.studies.scores import levels
from isobatch.studies.study_directory import typed
from isobatch.studies.summary_table import COLUMNS

HERE = Path(__file__).parent
BEGIN, END = "<!-- measured -->", "<!-- end of what was measured -->"
PICTURES = {  # of each study, those that its page shows
    "staleness": ["curves-4", "curves-8", "scores"],
    "asynchrony": ["curves-decoupled", "scores"],
    "invariance": ["curves-all-rules", "gaps", "curves-no-Adam-rule"],
    "adam-rule": ["curves-square-root", "gaps", "curves-linear"],
    "sgd-rule": ["curves-linear", "curves-square-root", "gaps"],
    "ewma": ["curves", "scores"],
    "prox-grid": ["surface"],
    "epochs": ["curves-1", "curves-4"],
    "geometry": ["curves", "variance"],
    "aggregation": ["curves-adam", "curves-sgd", "scores"],
}
SCALES = {"sgd-rule": "quick"}
WITH_LABORATORY = ("invariance", "geometry")  # which adds sentences that begin with an environment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PICTURES)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--verdicts", action="store_true", help="train nothing: judge the committed rows again")
    args = parser.parse_args()
    if args.verdicts:
        for name in [args.only] if args.only else PICTURES:
            page, rows = HERE / f"{name}.md", committed_rows(name)
            page.write_text(with_verdict(page.read_text(), name, rows))
            redraw(name, rows)
        return
    for name in [args.only] if args.only else PICTURES:
        scale = SCALES.get(name, "laptop")
        path = args.out / f"study-{name}-{scale}"
        words = ["isobatch", "study", "run", name, "--scale", scale, "--out", str(path), "--json"]
        done = subprocess.run([sys.executable, "-m", *words], check=True, stdout=subprocess.PIPE, text=True)
        write_page(name, path, json.loads(done.stdout))


def committed_rows(name: str) -> list[Row]:
    with gzip.open(HERE / f"{name}-rows.csv.gz", "rt", newline="") as file:
        return [{column: typed(value) for column, value in row.items()} for row in csv.DictReader(file)]


def with_verdict(text: str, name: str, rows: list[Row]) -> str:
    """A page with what these rows say between its pictures and its tables; what the laboratory said stays."""
    measured = text[text.index(BEGIN) : text.index(END)]
    first, last = measured.index("\n* ") + 1, measured.index("\n\nBrackets hold")
    sentences = [f"* {sentence}" for sentence in study_of(name).verdict(rows)]
    if name in WITH_LABORATORY:
        begins = tuple(f"* {env}" for env in levels(rows, "env"))
        sentences += [line for line in measured[first:last].split("\n") if line.startswith(begins)]
    return text.replace(measured, measured[:first] + "\n".join(sentences) + measured[last:])


def redraw(name: str, rows: list[Row]) -> None:
    """The pictures for which the rows are enough."""
    study = study_of(name)
    factors, gaps = study.grid("laptop").sizes()["factors"], gaps_of(study, rows)
    if "scores" in PICTURES[name]:
        save_figure(draw_scores(rows, factors, name), HERE / f"{name}-scores.png")
    if "gaps" in PICTURES[name] and gaps is not None:
        save_figure(draw_gaps(gaps, name), HERE / f"{name}-gaps.png")


def write_page(name: str, path: Path, report: dict[str, Any]) -> None:
    for picture in PICTURES[name]:
        shutil.copyfile(path / f"{picture}.png", HERE / f"{name}-{picture}.png")
    (HERE / f"{name}-rows.csv.gz").write_bytes(gzip.compress((path / "rows.csv").read_bytes(), mtime=0))
    page = HERE / f"{name}.md"
    block = f"{BEGIN}\n{measured(name, path, report)}\n{END}"
    text = re.sub(f"{BEGIN}.*?{END}", lambda _: block, page.read_text(), flags=re.DOTALL)
    page.write_text(text)


def measured(name: str, path: Path, report: dict[str, Any]) -> str:
    with (path / "timing.csv").open(newline="") as file:
        minutes = sum(float(row["seconds"]) for row in csv.DictReader(file)) / 60
    versions = ", ".join(f"{package} {' and '.join(found)}" for package, found in report["versions"].items())
    lines = [
        f"`isobatch study run {name} --scale {report['scale']}`: {report['cells']} settings x {report['seeds']} seeds, "
        f"{report['env_steps'] / 1e6:.0f} million environment steps, {minutes:.0f} minutes of training and compilation "
        f"on 2 cores. Every setting and score: [{name}-rows.csv.gz]({name}-rows.csv.gz). Made with {versions}.",
        "",
        *(f"![{name}: {picture}]({name}-{picture}.png)\n" for picture in PICTURES[name]),
        *(f"* {sentence}" for sentence in report["verdict"]),
        "",
        "Brackets hold 95 % intervals.",
    ]
    for env in dict.fromkeys(line["env"] for line in report["table"]):
        lines += ["", f"**{env}**", "", f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
        lines += [f"| {' | '.join(line['cells'])} |" for line in report["table"] if line["env"] == env]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
