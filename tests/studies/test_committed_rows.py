"""The pages of docs/results say what their committed rows say."""

import runpy
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[2] / "docs" / "results"


SCRIPT = runpy.run_path(str(RESULTS / "studies.py"))


@pytest.mark.parametrize("name", SCRIPT["FROM_ROWS"])
def test_a_page_has_the_verdict_of_its_rows(name: str) -> None:
    script = SCRIPT
    page = (RESULTS / f"{name}.md").read_text()
    assert script["with_verdict"](page, script["verdict"](name)) == page
