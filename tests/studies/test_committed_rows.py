"""The pages of docs/results say what their committed rows say."""

import runpy
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[2] / "docs" / "results"


SCRIPT = runpy.run_path(str(RESULTS / "studies.py"))


@pytest.mark.parametrize("name", SCRIPT["PICTURES"])
def test_a_page_has_the_verdict_of_its_rows(name: str) -> None:
    page = (RESULTS / f"{name}.md").read_text()
    assert SCRIPT["with_verdict"](page, name, SCRIPT["committed_rows"](name)) == page


def test_rescale_and_the_readme_tell_what_the_rows_of_transfer_say() -> None:
    rows, readme = SCRIPT["committed_rows"]("transfer"), SCRIPT["README"].read_text()
    assert SCRIPT["EVIDENCE"].read_text() == SCRIPT["evidence_text"](rows)
    assert SCRIPT["HEADLINE"] in readme
    assert SCRIPT["with_headline"](readme, rows) == readme
