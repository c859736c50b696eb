"""The report on a study, from its files: table, verdict, figures and HTML page."""

from __future__ import annotations

from pathlib import Path

from isobatch.errors import RunError
from isobatch.studies.claims import study_of
from isobatch.studies.figures import draw_study
from isobatch.studies.html_data import chart_data
from isobatch.studies.html_report import PAGE, Report, html_page
from isobatch.studies.study_directory import StudyDirectory, write
from isobatch.studies.summary_table import summarize_rows


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
