"""The report on a study, from its files: table, verdict, figures, and one HTML file that needs nothing else.

Words and tables are written here and can be read without JavaScript; charts are drawn by the scripts in `assets/` from
the JSON that `html_data` makes. The page is a function of the study's files: the same files give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from importlib import resources
from pathlib import Path
from string import Template

from isobatch.drawing import COLORS
from isobatch.errors import RunError
from isobatch.studies.claims import study_of
from isobatch.studies.figures import draw_study
from isobatch.studies.grid import Row
from isobatch.studies.html_data import ChartData, chart_data, varying_settings
from isobatch.studies.result_files import write
from isobatch.studies.rows import origin_of_returns
from isobatch.studies.scores import levels, unique_cells
from isobatch.studies.study_directory import StudyDirectory, StudyInfo
from isobatch.studies.summary_table import ALL, COLUMNS, SummaryLine, summarize_rows, variant_name

PAGE = "report.html"
SCRIPTS = (*("charts.js", "averages.js", "curves.js", "crosshair.js", "scores.js", "bars.js", "tables.js", "begin.js"),)


class Report(StudyInfo):
    """What a study showed, as `--json` prints it."""

    claim: str
    dir: str
    finished: bool
    table: list[SummaryLine]
    verdict: list[str]
    pictures: list[str]
    page: str


def make_report(path: Path) -> Report:
    """The report on the study in a directory; figures and page are made anew."""
    directory = StudyDirectory.read(path)
    study, rows, factors = study_of(directory.info["study"]), directory.rows(), directory.info["factors"]
    measured = directory.measured()
    if not rows:
        raise RunError(f"{str(path)!r} has no finished part yet: run the study again to go on.")
    finished, cells = len({row["cell"] for row in rows}), directory.info["cells"]
    verdict = (
        study.verdict(rows) + study.reading(rows, measured)
        if finished == cells
        else [f"{finished} of {cells} settings are finished: run the study again to go on, then there is a verdict."]
    )
    curves, table = directory.curves(), summarize_rows(rows, factors)
    report: Report = {
        **directory.info,
        "claim": study.claim,
        "dir": str(path),
        "finished": finished == cells,
        "table": table,
        "verdict": verdict,
        "pictures": [str(picture) for picture in draw_study(study, rows, measured, curves, factors, path)],
        "page": str(path / PAGE),
    }
    write(path / PAGE, html_page(report, chart_data(study, rows, curves, factors, table), rows, directory.times()))
    return report


def asset(name: str, package: str = "isobatch.studies") -> str:
    return (resources.files(package) / "assets" / name).read_text(encoding="utf-8")


def style() -> str:
    """Of a page, with the colors of pictures."""
    colors = "".join(f"--series-{i}: {color}; " for i, color in enumerate(COLORS))
    return f":root {{ {colors}}}\n{asset('report.css')}"


def curve_controls(*, bands: bool) -> str:
    """The chart of learning curves and what is above it, the same on every page but for what is shown at first."""
    return Template(asset("curves.html").rstrip()).substitute(bands=" checked" if bands else "")


def json_text(data: Mapping[str, object]) -> str:
    """What scripts of a page read: no tag in it ends the script."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def html_page(report: Report, data: ChartData, rows: list[Row], times: list[Row]) -> str:
    """`times` are the rows of timing.csv."""
    command = f"isobatch study run {report['study']} --scale {report['scale']}"
    return Template(asset("report.html")).substitute(
        study=escape(report["study"]),
        claim=escape(report["claim"]),
        gist=escape(summary(report, times)),
        css=style(),
        banner="" if report["finished"] else banner(report),
        verdict=verdict(report) if report["finished"] else "",
        facts=facts(report, rows, times),
        command=escape(command),
        tables=tables(report["table"]),
        settings=settings(rows, report["factors"]),
        curves=curve_controls(bands=True),
        js="\n".join(map(asset, SCRIPTS)),
        data=json_text(data),
    )


def banner(report: Report) -> str:
    sentences = " ".join(escape(sentence) for sentence in report["verdict"])
    return f'<p class="banner" role="status"><strong>Not finished.</strong> {sentences}</p>'


def verdict(report: Report) -> str:
    items = "\n".join(f"<li>{escape(sentence)}</li>" for sentence in report["verdict"])
    return f'<section id="verdict" class="card">\n<h2>What it shows</h2>\n<ul>\n{items}\n</ul>\n</section>'


def summary(report: Report, times: list[Row]) -> str:
    """The experiment in a line."""
    envs = report["environments"]
    where = envs[0] if len(envs) == 1 else f"{len(envs)} environments"
    parts = [f"{report['scale']} scale", where, f"{report['cells']} settings x {report['seeds']} seeds"]
    return " · ".join([*parts, *([duration(sum(row["seconds"] for row in times))] if times else [])])


def facts(report: Report, rows: list[Row], times: list[Row]) -> str:
    """What was run, when and with what."""
    dates = sorted(str(row["finished"])[:10] for row in times if row.get("finished"))
    entries = {
        "Scale": report["scale"],
        "Environments": ", ".join(report["environments"]),
        "Runs": f"{report['cells']} settings x {report['seeds']} seeds, {amount(report['env_steps'])} steps in all",
        "Seeds": ", ".join(map(str, sorted(set(levels(rows, "seed"))))),
        "Returns": origin_of_returns(report["evaluated"]),
        "Time": duration(sum(row["seconds"] for row in times)) + ", compilation included" if times else "",
        "Finished": " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else "",
        "Versions": ", ".join(f"{name} {' and '.join(versions)}" for name, versions in report["versions"].items()),
    }
    return "\n".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in entries.items() if value)


def tables(lines: list[SummaryLine]) -> str:
    """All environments first, then each by itself."""
    envs = sorted(levels(lines, "env"), key=lambda env: env != ALL)
    return "\n".join(
        f"<h3>{escape(env)}</h3>\n"
        + table(
            COLUMNS, [list(zip(line["cells"], sort_keys(line), strict=True)) for line in lines if line["env"] == env]
        )
        for env in envs
    )


def sort_keys(line: SummaryLine) -> list[object]:
    """What the cells of a line are sorted by."""
    estimates = [line[name]["value"] for name in ("normalized_final", "interquartile_mean", "normalized_mean")]
    return [line["variant"], *estimates, line["final_return"], line["approx_kl"], line["diverged"]]


def settings(rows: list[Row], factors: list[str]) -> str:
    """A line for each cell with what differs between cells, and once what does not."""
    vary, shared = varying_settings(rows, factors)
    lines = [
        [(value, value) for value in (row["env"], variant_name(row, factors), *(row[name] for name in vary))]
        for row in unique_cells(rows)
    ]
    same: list[list[tuple[object, object]]] = [[(name, name), (rows[0][name], str(rows[0][name]))] for name in shared]
    return (
        f"<details open>\n<summary>Settings that differ ({len(vary)})</summary>\n"
        f"{table(['environment', 'variant', *vary], lines)}\n</details>\n"
        f"<details>\n<summary>Settings that all runs share ({len(shared)})</summary>\n"
        f"{table(['setting', 'value'], same)}\n</details>"
    )


def table(columns: list[str], lines: list[list[tuple[object, object]]]) -> str:
    """Cells are pairs: what is shown, and what is sorted by. Numbers stand to the right."""
    right = [all(is_number(line[column][1]) for line in lines) for column in range(len(columns))]
    head = "".join(
        f'<th scope="col"{" class=number" if numeric else ""}><button type="button">{escape(name)}</button></th>'
        for name, numeric in zip(columns, right, strict=True)
    )
    body = "\n".join("<tr>" + "".join(cell(*pair) for pair in line) + "</tr>" for line in lines)
    return (
        '<div class="scroll" tabindex="0"><table class="sortable">\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def cell(shown: object, key: object) -> str:
    text = "-" if shown is None else f"{shown:.6g}" if isinstance(shown, float) else str(shown)
    sort = "" if key is None else escape(str(key))
    return f'<td{" class=number" if is_number(key) else ""} data-sort="{sort}">{escape(text)}</td>'


def is_number(key: object) -> bool:
    """Or nothing, which stands where a number would."""
    return key is None or (isinstance(key, int | float) and not isinstance(key, bool))


def duration(seconds: float) -> str:
    """`48 s`, `2 min 5 s`, `3 h 4 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def amount(number: float) -> str:
    """`11.2M`."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:g}"
