"""Run every study and fill in its page docs/results/NAME.md: tables, pictures, verdict, times.

At laptop scale.

    python docs/results/studies.py [--only NAME [--envs ID,...]] [--processes N] [--out runs]
    python docs/results/studies.py --verdicts [--only NAME]     what the committed rows say, judged and drawn again
    python docs/results/studies.py --add --only NAME            train what its grid has and the committed rows lack

Finished studies are kept. What stands outside the two comments of a page is written by hand.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import gzip
import io
import json
import math
import re
import shutil
import subprocess
import sys
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from isobatch.drawing import save_figure
from isobatch.formatting import counted, fraction_text, percent
from isobatch.settings.presets import bare_id
from isobatch.statistics.comparisons import difference
from isobatch.studies.charts import gaps_of, pairs_of
from isobatch.studies.claims import study_of
from isobatch.studies.claims.transfer import evidence
from isobatch.studies.figures import draw_bars, draw_scores
from isobatch.studies.grid import Measurement, Row
from isobatch.studies.kept_returns import kept_at, sizes, ways
from isobatch.studies.result_files import csv_text, typed
from isobatch.studies.rows import origin_of_returns
from isobatch.studies.runner import run_study
from isobatch.studies.scores import FINAL, levels, scores
from isobatch.studies.study_directory import LABORATORY
from isobatch.studies.summary_table import COLUMNS, SummaryLine, summarize_rows, variant_name
from isobatch.studies.verdicts import MEASURES, estimate_text

HERE = Path(__file__).parent
EVIDENCE = HERE.parents[1] / "src" / "isobatch" / "rescaling" / "kept.json"
README = HERE.parents[1] / "README.md"
BEGIN, END = "<!-- measured -->", "<!-- end of what was measured -->"
HEADLINE = "<!-- measured by the study transfer -->"
PICTURES = {  # of each study, those that its page shows; `averages` are in the paper's layout
    "staleness": ["averages", "curves-4", "curves-8", "scores"],
    "asynchrony": ["curves-decoupled", "scores"],
    "invariance": ["averages", "curves-all-rules", "gaps", "curves-no-Adam-rule"],
    "adam-rule": ["averages", "curves-square-root", "gaps", "curves-linear"],
    "sgd-rule": ["curves-linear", "curves-square-root", "gaps"],
    "ewma": ["averages", "curves", "pairs", "scores"],
    "prox-grid": ["surface"],
    "epochs": ["curves-1", "curves-4"],
    "geometry": ["curves", "variance"],
    "aggregation": ["curves-adam", "curves-sgd", "scores"],
    "transfer": ["kept", "kept-by-task"],
    "newer-rules": ["averages", "scores"],
    "explain": ["changes"],
}
SCALE = "laptop"
ADDED = "Settings that were added"
BUSY = ("transfer",)  # trained while the machine had other work: no time is stated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PICTURES)
    parser.add_argument("--envs", metavar="ID,...", help="with --only: some of its environments")
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--verdicts", action="store_true", help="train nothing: judge the committed rows again")
    parser.add_argument("--add", action="store_true", help="train what the grid has and the committed rows lack")
    parser.add_argument("--processes", type=int, help="parts that are trained at once, with the same results")
    args = parser.parse_args()
    for name in [args.only] if args.only else PICTURES:
        if args.add:
            add(name, args.out)
        if args.add or args.verdicts:
            page, rows = HERE / f"{name}.md", committed_rows(name)
            page.write_text(with_verdict(page.read_text(), name, rows))
            redraw(name, rows)
            continue
        path = args.out / f"study-{name}-{SCALE}"
        words = ["isobatch", "study", "run", name, "--scale", SCALE, "--out", str(path), "--json"]
        words += ["--envs", args.envs] if args.envs else []
        words += ["--processes", str(args.processes)] if args.processes else []
        done = subprocess.run([sys.executable, "-m", *words], check=True, stdout=subprocess.PIPE, text=True)
        write_page(name, path, json.loads(done.stdout))


def committed_rows(name: str) -> list[Row]:
    return rows_of(gzip.decompress((HERE / f"{name}-rows.csv.gz").read_bytes()).decode())


def rows_of(text: str) -> list[Row]:
    return [{column: typed(value) for column, value in row.items()} for row in csv.DictReader(io.StringIO(text))]


def with_verdict(text: str, name: str, rows: list[Row]) -> str:
    """A page with what these rows, and those of the laboratory, say: pictures, verdict and tables."""
    measured = text[text.index(BEGIN) : text.index(END)]
    head = measured[: re.search(r"^(!\[|\* )", measured, re.MULTILINE).start()]
    sentences, laboratory = study_of(name).verdict(rows), HERE / f"{name}-{LABORATORY}"
    if laboratory.is_file():
        sentences += study_of(name).reading(rows, rows_of(laboratory.read_text()))
    table = summarize_rows(rows, factors_of(name))
    return text.replace(measured, f"{head}{body(name, sentences, table)}\n")


def factors_of(name: str) -> list[str]:
    return study_of(name).grid(SCALE).sizes()["factors"]


def add(name: str, out: Path) -> None:
    """Train the settings that the grid has and the committed rows lack, and join the rows.

    The first setting of each of their environments that was there before is trained again beside them: what was
    committed must not differ.
    """
    study, rows, factors = study_of(name), committed_rows(name), factors_of(name)
    grid = study.grid(SCALE)

    def place(row: Row) -> tuple[object, ...]:
        return (row["env"], *(row[factor] for factor in factors))

    committed = {place(row) for row in rows}
    of_cell = {place({"env": cell.config.env} | cell.factors): cell for cell in grid.cells}
    missing = [cell for where, cell in of_cell.items() if where not in committed]
    envs = list(dict.fromkeys(cell.config.env for cell in missing))
    again = [next(cell for cell in grid.cells if cell.config.env == env) for env in envs if env in levels(rows, "env")]
    if not missing:
        return
    added = dataclasses.replace(grid, cells=[*again, *missing])
    part = dataclasses.replace(study, grid=lambda scale: added, laboratory=nothing)
    folder = out / f"study-{name}-{SCALE}-added"
    new = run_study(part, SCALE, folder).rows()
    repeated = {place({"env": cell.config.env} | cell.factors) for cell in again}
    sentences = []
    for column, score in MEASURES.items() if again else ():
        now, before = ([row for row in each if place(row) in repeated] for each in (new, rows))
        between = difference(scores(now, column), scores(before, column))[1].value
        sentences.append(f"{estimate_text(between, 3)} in normalized {score}")
    kept = [row for row in rows if place(row) in of_cell]
    added = [row for row in new if place(row) not in repeated]
    order = {where: index for index, where in enumerate(of_cell)}
    text = csv_text(sorted([*kept, *added], key=lambda row: order[place(row)]))
    (HERE / f"{name}-rows.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    page, names = HERE / f"{name}.md", ", ".join(dict.fromkeys(variant_name(row, factors) for row in added))
    where = ", ".join(bare_id(env) for env in dict.fromkeys(row["env"] for row in added))
    minutes = counted(minutes_of(folder), "minute")
    note = (
        f"{ADDED} ({names}, on {where}) were trained later than the rest, by `python docs/results/studies.py --add "
        f"--only {name}`.{'' if name in BUSY else f' They took {minutes} more.'}"
    )
    if again:
        note += (
            " Trained again beside them, the first setting of each environment differs from its committed rows by "
            f"{' and '.join(sentences)}."
        )
    note += "\n"
    before = re.sub(rf"{ADDED}.*?\n\n", "", page.read_text(), flags=re.DOTALL)
    page.write_text(
        re.sub(rf"({BEGIN}\n.*?\n\n)", lambda found: f"{found[1]}{note}\n", before, count=1, flags=re.DOTALL)
    )


def minutes_of(folder: Path) -> int:
    """In which parts of a study were trained and compiled, whether one by one or beside each other."""
    busy, until = 0.0, -math.inf
    for begin, end in spans(folder):
        busy += max(end - max(begin, until), 0.0)
        until = max(until, end)
    return max(1, round(busy / 60))


def side_by_side(folder: Path) -> bool:
    """Whether parts of a study overlap, by more than the seconds in which times are kept."""
    parts = spans(folder)
    return any(after[0] < before[1] - 2 for before, after in pairwise(parts))


def spans(folder: Path) -> list[tuple[float, float]]:
    """When each part began and ended, in seconds."""
    with (folder / "timing.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    ends = [datetime.fromisoformat(row["finished"]).timestamp() for row in rows]
    return sorted((end - float(row["seconds"]), end) for row, end in zip(rows, ends, strict=True))


def nothing(scale: str) -> list[Measurement]:
    return []


def redraw(name: str, rows: list[Row]) -> None:
    """The pictures for which the rows are enough."""
    study = study_of(name)
    factors = factors_of(name)
    if "scores" in PICTURES[name]:
        save_figure(draw_scores(rows, factors, name), HERE / f"{name}-scores.png")
    for picture, bars in (("gaps", gaps_of(study, rows)), ("pairs", pairs_of(study, rows))):
        if picture in PICTURES[name] and bars is not None:
            save_figure(draw_bars(bars, name), HERE / f"{name}-{picture}.png")
    for picture, draw in study.drawings.items():
        save_figure(draw(rows), HERE / f"{name}-{picture}.png")
    if name == "transfer":
        EVIDENCE.write_text(evidence_text(rows))
        README.write_text(with_headline(README.read_text(), rows))


def with_headline(text: str, rows: list[Row]) -> str:
    """The README with the table of what the ways kept."""
    names = ways(rows)
    lines = [f"| environments | {' | '.join(names)} | tasks |", "|---:" * (len(names) + 2) + "|"]
    for times in sizes(rows):
        found = [kept_at(rows, FINAL, name, [times]) for name in names]
        counts = {len(both[0]) for both in found if both}
        cells = ["-" if both is None else percent(both[1]) for both in found]
        lines.append(f"| {fraction_text(times)} times | {' | '.join(cells)} | {max(counts)} |")
    table = "\n".join(lines)
    return re.sub(f"{HEADLINE}.*?{END}", lambda _: f"{HEADLINE}\n{table}\n{END}", text, flags=re.DOTALL)


def evidence_text(rows: list[Row]) -> str:
    """The file from which `rescale` tells what the ways kept."""
    lines = ",\n".join(json.dumps(dataclasses.asdict(one)) for one in evidence(rows))
    return f"[\n{lines}\n]\n"


def write_page(name: str, path: Path, report: dict[str, Any]) -> None:
    for picture in PICTURES[name]:
        shutil.copyfile(path / f"{picture}.png", HERE / f"{name}-{picture}.png")
    (HERE / f"{name}-rows.csv.gz").write_bytes(gzip.compress((path / "rows.csv").read_bytes(), mtime=0))
    if (path / LABORATORY).is_file():
        shutil.copyfile(path / LABORATORY, HERE / f"{name}-{LABORATORY}")
    redraw(name, committed_rows(name))
    page = HERE / f"{name}.md"
    block = f"{BEGIN}\n{measured(name, path, report)}\n{END}"
    text = re.sub(f"{BEGIN}.*?{END}", lambda _: block, page.read_text(), flags=re.DOTALL)
    page.write_text(text)


def measured(name: str, path: Path, report: dict[str, Any]) -> str:
    versions = ", ".join(f"{package} {' and '.join(found)}" for package, found in report["versions"].items())
    all_envs = study_of(name).grid(report["scale"]).sizes()["environments"]
    some = "" if report["environments"] == all_envs else f" --envs {','.join(report['environments'])}"
    together = ", some parts beside each other (`--processes 2`)" if side_by_side(path) else ""
    spent = "" if name in BUSY else f", {counted(minutes_of(path), 'minute')} of training and compilation on 2 cores"
    returns = f" {origin_of_returns(True)}" if report["evaluated"] else ""
    head = (
        f"`isobatch study run {name} --scale {report['scale']}{some}`: {report['cells']} settings x {report['seeds']} "
        f"seeds, {report['env_steps'] / 1e6:.0f} million environment steps{spent}{together}.{returns} Every setting "
        f"and score: [{name}-rows.csv.gz]({name}-rows.csv.gz). Made with {versions}."
    )
    return f"{head}\n\n{body(name, report['verdict'], report['table'])}"


def body(name: str, sentences: list[str], table: list[SummaryLine]) -> str:
    """Pictures, verdict and tables; a picture that needs curves is there when the study was trained with it."""
    pictures = [picture for picture in PICTURES[name] if (HERE / f"{name}-{picture}.png").is_file()]
    lines = [
        *(f"![{name}: {picture}]({name}-{picture}.png)\n" for picture in pictures),
        *(f"* {sentence}" for sentence in sentences),
        "",
        "Brackets hold 95 % intervals.",
    ]
    for env in dict.fromkeys(line["env"] for line in table):
        lines += ["", f"**{env}**", "", f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
        lines += [f"| {' | '.join(line['cells'])} |" for line in table if line["env"] == env]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
