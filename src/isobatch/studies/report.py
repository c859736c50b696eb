"""What a study came to, from its files: table, verdict, pictures and page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from isobatch.errors import RunError
from isobatch.studies.claims import study_of
from isobatch.studies.figures import draw_study
from isobatch.studies.page import PAGE, page
from isobatch.studies.page_data import page_data
from isobatch.studies.store import Results, write
from isobatch.studies.summary import summarise_rows


def make_report(path: Path) -> dict[str, Any]:
    """{"study", "preset", "claim", "table", "verdict", "pictures", "page", ...}; pictures and page are made anew."""
    results = Results.read(path)
    study, rows, factors = study_of(results.about["study"]), results.rows(), results.about["factors"]
    measured = results.measured()
    if not rows:
        raise RunError(f"{str(path)!r} has no finished part yet: run the study again to go on.")
    finished, wanted = len({row["cell"] for row in rows}), results.about["cells"]
    verdict = (
        study.verdict(rows) + study.reading(rows, measured)
        if finished == wanted
        else [f"{finished} of {wanted} settings are finished: run the study again to go on, then there is a verdict."]
    )
    curves, table = results.curves(), summarise_rows(rows, factors)
    report = {
        **results.about,
        "claim": study.claim,
        "dir": str(path),
        "finished": finished == wanted,
        "table": table,
        "verdict": verdict,
        "pictures": [str(picture) for picture in draw_study(study, rows, measured, curves, factors, path)],
        "page": str(path / PAGE),
    }
    write(path / PAGE, page(report, page_data(study, rows, curves, factors, table), rows, results.times()))
    return report
