"""The pages quote what the commands print today, and their Python runs."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from isobatch.ladder import ladder

DOCS = Path(__file__).parent.parent / "docs"


def test_quoted_output_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    """If this fails: `python docs/refresh.py`, and read what changed."""
    spec = importlib.util.spec_from_file_location("refresh", DOCS / "refresh.py")
    assert spec is not None
    assert spec.loader is not None
    refresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(refresh)
    assert refresh.main(["--check"]) == 0, capsys.readouterr().out


def test_quoted_commands_work() -> None:
    for page in DOCS.glob("*.md"):
        assert "isobatch: " not in page.read_text(), f"{page.name} quotes an error"


def test_python_of_the_rescaling_page_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "rescaling.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, {})


def test_ladder_rows() -> None:
    first, *_, last = ladder()
    assert first[:5] == ("1", "256", "0.0005", "0.888889", "0.000000")
    assert last == ("256", "1", "3.125e-05", "0.999512", "0.992218", "8,192", "0.999589", "0.999996", "32 / 256")
