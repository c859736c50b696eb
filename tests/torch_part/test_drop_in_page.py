"""The Python of docs/stable-baselines3.md runs, with fewer steps."""

import re
from pathlib import Path

import pytest

pytest.importorskip("stable_baselines3", reason="the extra sb3 is not installed")

PAGE = Path(__file__).parents[2] / "docs" / "stable-baselines3.md"


def test_python_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        exec(re.sub(r"learn\([\d_]+", "learn(512", block), {})
    assert (tmp_path / "model.zip").exists()
