"""Pictures of runs from Python: every run has its line, whether it has a directory or not."""

from pathlib import Path
from typing import Any

import pytest
from tiny import tiny

import isobatch as ib
from isobatch.training import curves


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is drawn, by label."""
    tables: dict[str, Any] = {}
    monkeypatch.setattr(curves, "learning_curves", lambda runs, *_, env: tables.update(runs))
    return tables


def test_every_run_has_its_line(drawn: dict[str, Any], tmp_path: Path) -> None:
    one, same = ib.train(tiny()), ib.train(tiny())
    ib.plot(one, same, out=tmp_path / "curve.png")
    assert list(drawn) == ["run 1", "run 2"]
    drawn.clear()
    other = ib.train(tiny(learning_rate=0.1), run_dir=tmp_path / "run")
    ib.plot(one, other, tmp_path / "run", out=tmp_path / "curve.png")
    assert list(drawn) == ["learning_rate=0.00025", "learning_rate=0.1"]


def test_where_the_picture_goes(tmp_path: Path) -> None:
    result = ib.train(tiny(), run_dir=tmp_path / "run")
    assert ib.plot(result) == ib.plot(tmp_path / "run") == tmp_path / "run" / "learning_curve.png"
    with pytest.raises(ib.UsageError, match=r"needs the name of a picture: give out='curve\.png'"):
        ib.plot(ib.train(tiny()))
    with pytest.raises(ib.UsageError, match="no run"):
        ib.plot()
