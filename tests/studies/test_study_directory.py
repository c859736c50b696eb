"""The files of a study: what they hold, who may add to them, and a disk that is full."""

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

import fake_study
import jax
import pytest
from tiny import tiny

from isobatch import files
from isobatch.errors import RunError, UsageError
from isobatch.statistics.normalization import range_of
from isobatch.studies import study_directory
from isobatch.studies.grid import Cell, Grid
from isobatch.studies.result_files import typed
from isobatch.studies.runner import parts_of, run_study
from isobatch.studies.study_directory import StudyDirectory

pytestmark = pytest.mark.xdist_group("studies")


FAKE = fake_study.STUDY


def test_a_row_for_each_cell_and_seed_with_every_setting(finished: Path) -> None:
    rows = StudyDirectory.read(finished).rows()
    grid = FAKE.grid("quick")
    assert len(rows) == len(grid.cells) * 2
    assert {(row["cell"], row["seed"]) for row in rows} == {(cell.name, seed) for cell in grid.cells for seed in (0, 1)}
    settings = {cell.name: cell.config.to_dict() for cell in grid.cells}
    for row in rows:
        assert set(settings[row["cell"]]) <= set(row)
        assert row["gamma"] == settings[row["cell"]]["gamma"]
        assert row["env_steps"] == 384
        assert row["version"] == study_directory.version()
        scale = range_of(row["env"], fake_study.RANGES)
        assert row["normalized_final"] == pytest.approx((row["final_return"] - scale.low) / (scale.high - scale.low))
        assert not row["diverged"]


def test_pandas_reads_rows_and_curves_in_one_call(finished: Path) -> None:
    pandas = pytest.importorskip("pandas")
    assert len(pandas.read_csv(finished / "rows.csv")) == 10
    curves = pandas.read_csv(finished / "curves.csv.gz")
    assert set(curves["cell"]) == {cell.name for cell in FAKE.grid("quick").cells}


@pytest.mark.parametrize("value", [None, True, False, 3, 2.5, -1e-30, "word", "8,8"])
def test_values_survive_a_csv_file(value: Any) -> None:
    assert typed("" if value is None else str(value)) == value


def test_other_results_are_refused(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"holds other results: study \(fake there, other now\); name another folder"):
        run_study(dataclasses.replace(FAKE, name="other"), "quick", finished)
    with pytest.raises(UsageError, match=r"scale \(quick there, laptop now\)"):
        run_study(FAKE, "laptop", finished)
    longer = dataclasses.replace(FAKE, grid=fake_study.long_grid)
    with pytest.raises(UsageError, match=r"holds other results: grid \("):
        run_study(longer, "quick", finished)
    monkeypatch.setattr(study_directory, "version", lambda: "9.9")
    with pytest.raises(UsageError, match=r"version \(.* there, 9.9 now\)"):
        run_study(FAKE, "quick", finished)
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="is not empty and holds no study"):
        run_study(FAKE, "quick", tmp_path)
    (tmp_path / "study.json").write_text('{"study": ')
    with pytest.raises(UsageError, match=r"damaged study\.json"):
        run_study(FAKE, "quick", tmp_path)


def test_a_grid_that_grew_trains_what_is_new(finished: Path, tmp_path: Path) -> None:
    """A cell that shares a program with finished ones is trained alone; it stands where the grid has it."""
    rows = (finished / "rows.csv").read_text().splitlines()
    path = shutil.copytree(finished, tmp_path / "fake")
    added = Cell(tiny(learning_rate=0.1, num_steps=8, total_timesteps=384), {"learning_rate": 0.1, "num_steps": 8})
    before = FAKE.grid("quick")
    grid = Grid([before.cells[0], added, *before.cells[1:]], before.num_seeds)
    labels = []
    study = dataclasses.replace(FAKE, grid=lambda scale: grid)
    directory = run_study(study, "quick", path, lambda label, done: labels.append(label))
    assert {label.split(":")[0] for label in labels} == {"part 4 of 4", "done"}
    after = (path / "rows.csv").read_text().splitlines()
    assert [line for line in after if not line.startswith(added.name)] == rows
    assert [row["cell"] for row in directory.rows()[2:4]] == [added.name] * 2
    assert directory.info["cells"] == 6
    run_study(study, "quick", path, lambda label, done: labels.append(label))
    assert (path / "rows.csv").read_text().splitlines() == after
    fewer = dataclasses.replace(FAKE, grid=lambda scale: Grid(grid.cells[1:], 2))
    with pytest.raises(UsageError, match=r"holds other results: grid \("):
        run_study(fewer, "quick", path)
    more_seeds = dataclasses.replace(FAKE, grid=lambda scale: Grid(grid.cells, 3))
    with pytest.raises(UsageError, match=r"holds other results: grid \("):
        run_study(more_seeds, "quick", path)


def test_a_full_disk_stops_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Full when the second part's rows are written: the first part stays, nothing is half-written."""
    true, times = os.fsync, 0

    def full(descriptor: int) -> None:
        nonlocal times
        times += 1
        if times == 8:  # study.json, two files of a part, three made of all parts, and the next part's curves
            raise OSError(28, "No space left on device")
        true(descriptor)

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(RunError, match=r"No space left on device.*what was finished is kept"):
        run_study(FAKE, "quick", tmp_path / "out")
    assert [path.suffix for path in sorted((tmp_path / "out" / "parts").iterdir())].count(".json") == 1
    assert not list((tmp_path / "out").rglob("*.new*"))
    monkeypatch.setattr(files.os, "fsync", true)
    run_study(FAKE, "quick", tmp_path / "out")
    assert len(StudyDirectory.read(tmp_path / "out").rows()) == 10


def test_versions_of_a_study_that_went_on_with_others_are_all_noted(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fake"
    shutil.copytree(finished, path)
    before = StudyDirectory.read(path).info["versions"]
    assert before["jax"] == [jax.__version__]
    assert {"python", "isobatch", "numpy"} <= before.keys()
    parts = parts_of(FAKE.grid("quick"))
    StudyDirectory.read(path).part(parts[2], ".json").unlink()
    monkeypatch.setattr(
        study_directory, "versions", lambda: {name: known[0] for name, known in before.items()} | {"jax": "99"}
    )
    run_study(FAKE, "quick", path)
    assert StudyDirectory.read(path).info["versions"] == before | {"jax": [jax.__version__, "99"]}
    assert (path / "rows.csv").read_bytes() == (finished / "rows.csv").read_bytes()


def test_the_curves_of_all_rows_are_there_while_a_study_is_collected(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that takes the rows and then the curves, between any two writes, misses none."""
    study = StudyDirectory.read(shutil.copytree(finished, tmp_path / "study"))
    parts, write = parts_of(FAKE.grid("quick")), study_directory.write
    study.collect(parts[:1])
    looks = []

    def looked(path: Path, content: str | bytes) -> None:
        write(path, content)
        looks.append(path.name)
        assert {row["cell"] for row in study.rows()} <= study.curves().keys()

    monkeypatch.setattr(study_directory, "write", looked)
    study.collect(parts)
    assert looks == ["curves.csv.gz", "rows.csv", "timing.csv"]
