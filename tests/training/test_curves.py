"""The names of runs in a picture, and that each has a curve."""

import shutil
from pathlib import Path
from typing import Any

import matplotlib.figure
import numpy as np
import pytest

from isobatch.cli.main import main
from isobatch.training.curves import as_written, distinct_labels, marked_places

pytestmark = pytest.mark.xdist_group("trainer")


@pytest.mark.parametrize(
    ("paths", "settings", "labels"),
    [
        (["a/run"], [{"algo": "ppo"}], ["run"]),
        (["a/run", "b/run"], [{"algo": "ppo"}, {"algo": "a2c"}], ["ppo", "a2c"]),
        (["x", "y"], [{"algo": "ppo", "gamma": 0.9}, {"algo": "ppo", "gamma": 0.5}], ["gamma=0.9", "gamma=0.5"]),
        (["a/run", "b/run"], [{"algo": "ppo", "seed": 0}] * 2, ["a/run", "b/run"]),
        (["a/run", "b/other"], [{"algo": "ppo", "seed": 0}] * 2, ["run", "other"]),
        (["x", "y"], [dict.fromkeys("abcdef", value) for value in (1, 2)], ["x", "y"]),
        (
            ["x", "y", "z"],
            [{"algo": "ppo", "n": 1}, {"algo": "ppo", "n": 2}, {"algo": "a2c", "n": 2}],
            ["ppo, n=1", "ppo, n=2", "a2c, n=2"],
        ),
    ],
)  # fmt: skip
def test_labels_are_distinct(paths: list[str], settings: list[dict[str, Any]], labels: list[str]) -> None:
    """Settings that differ where they are few and tell the runs apart, else as much of the path as is needed."""
    assert distinct_labels([Path(path) for path in paths], settings) == labels


def test_runs_of_one_name_are_two_curves(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """One that is named twice is one curve; names are no formulas, and none is hidden."""
    shown: list[str] = []
    savefig = matplotlib.figure.Figure.savefig

    def look(figure: Any, *words: Any, **more: Any) -> None:
        shown[:] = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
        savefig(figure, *words, **more)

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", look)
    runs = [tmp_path / "_one" / "$x$", tmp_path / "two" / "$x$"]
    for run in runs:
        shutil.copytree(run_dir, run)
    words = [str(path) for path in (*runs, runs[0])]
    assert main(["plot", *words, "--out", str(tmp_path / "curve.png")]) == 0
    assert shown == [as_written(str(run.relative_to(tmp_path))) for run in runs]


def test_few_lines_of_metrics_are_marked() -> None:
    """One line at 100 steps stands at the last of x; of 3 lines each has its place; 31 are a curve."""
    x = np.linspace(0, 100, 11)[1:]

    def table(*steps: float) -> dict[str, np.ndarray]:
        return {"env_steps": np.array(steps), "m": np.where(np.array(steps) == 50, np.nan, 1.0)}

    assert marked_places(table(100), "m", x) == [9]
    assert marked_places(table(15, 20, 50, 100), "m", x) == [1, 9]
    assert marked_places(table(15, 40, 100), "m", x) == [1, 3, 9]
    assert marked_places(table(*range(0, 66, 2)), "m", x) == []
    assert marked_places(table(50), "m", x) == []
