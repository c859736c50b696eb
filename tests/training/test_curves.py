"""The names of runs in a picture, and that each has a curve."""

import shutil
from pathlib import Path
from typing import Any

import matplotlib.figure
import numpy as np
import pytest
from matplotlib.axes import Axes

from isobatch.cli.main import main
from isobatch.training.curves import as_written, distinct_labels, learning_curves, places_of_lines

pytestmark = pytest.mark.xdist_group("trainer")


@pytest.mark.parametrize(
    ("paths", "settings", "labels"),
    [
        (["a/run"], [{"algo": "ppo"}], ["run"]),
        (["a/run", "b/run"], [{"algo": "ppo"}, {"algo": "a2c"}], ["ppo", "a2c"]),
        (["x", "y"], [{"algo": "ppo", "gamma": 0.9}, {"algo": "ppo", "gamma": 0.5}], ["gamma=0.9", "gamma=0.5"]),
        (["a/run", "b/run"], [{"algo": "ppo", "seed": 0}] * 2, ["a/run", "b/run"]),
        (["a/run", "b/other"], [{"algo": "ppo", "seed": 0}] * 2, ["run", "other"]),
        (["x", "y"], [dict.fromkeys(["env", *"abcd"], value) for value in ("A-v0", "B-v0")], ["A-v0", "B-v0"]),
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
    """One line at 100 steps stands at the last of x; of 3 lines each has its place, unless it has no value."""
    x = np.linspace(0, 100, 11)[1:]

    def table(*steps: float) -> dict[str, np.ndarray]:
        return {"env_steps": np.array(steps), "m": np.where(np.array(steps) == 50, np.nan, 1.0)}

    for steps, places in (((100,), [9]), ((15, 20, 50, 100), [1, 9]), ((15, 40, 100), [1, 3, 9]), ((50,), [])):
        assert places_of_lines(table(*steps), "m", x).tolist() == places


@pytest.mark.parametrize(("lines", "points", "marker"), [(30, 30, "o"), (48, 48, ""), (1000, 200, "")])
def test_a_curve_has_no_steps_between_lines_of_metrics(
    lines: int, points: int, marker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many points as lines, where those are fewer than the places along the axis; marked if they are few."""
    drawn = []
    monkeypatch.setattr(Axes, "plot", lambda self, x, y, line, **style: drawn.append((len(x), style["marker"])))
    table = {"env_steps": np.arange(1, lines + 1) * 10, "seed": np.zeros(lines), "m": np.arange(lines) * 1.0}
    learning_curves({"run": table}, tmp_path / "curve.svg", "a run", "m")
    assert drawn == [(points, marker)]
