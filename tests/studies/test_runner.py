"""Running a study: nothing twice, the same files each time, also after a kill."""

import dataclasses
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import fake_study
import pytest
from tiny import tiny

from isobatch.errors import UsageError
from isobatch.studies import measurements as laboratory
from isobatch.studies import runner
from isobatch.studies.claims import STUDIES, study_of
from isobatch.studies.grid import Cell, Grid, Measurement
from isobatch.studies.lanes import train_cells
from isobatch.studies.report import make_report
from isobatch.studies.runner import parts_of, run_study
from isobatch.studies.study_directory import StudyDirectory

pytestmark = pytest.mark.xdist_group("studies")


FAKE = fake_study.STUDY


RESULTS = ("rows.csv", "curves.csv.gz", "study.json")


def same_files(one: Path, other: Path) -> bool:
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in RESULTS)


def test_the_same_study_twice_gives_the_same_files(finished: Path, tmp_path: Path) -> None:
    run_study(FAKE, "quick", tmp_path / "again")
    assert same_files(finished, tmp_path / "again")


def test_nothing_is_run_twice_and_a_kill_leaves_no_trace(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if killed while a part was written: its rows are missing, half a file lies about."""
    path = tmp_path / "fake"
    shutil.copytree(finished, path)
    calls: list[list[Cell]] = []

    def counted(cells: list[Cell], *rest: Any) -> Any:
        calls.append(cells)
        return train_cells(cells, *rest)

    monkeypatch.setattr(runner, "train_cells", counted)
    run_study(FAKE, "quick", path)
    assert calls == []
    results, parts = StudyDirectory.read(path), parts_of(FAKE.grid("quick"))
    results.part(parts[1], ".json").unlink()
    half = results.part(parts[1], ".csv.gz")
    half.write_bytes(half.read_bytes()[:20])
    half.with_name(half.name + ".new").write_bytes(b"half")
    (path / "rows.csv").unlink()
    run_study(FAKE, "quick", path)
    assert calls == [parts[1]]
    assert same_files(finished, path)


def test_cells_of_equal_shape_are_parts_of_equal_size(monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny()
    cells = [Cell(config.replace(gamma=0.9 + i / 100), {"gamma": 0.9 + i / 100}) for i in range(7)]
    assert [len(part) for part in parts_of(Grid(cells, 2))] == [7]
    monkeypatch.setattr(runner, "LANES", 8)
    assert [len(part) for part in parts_of(Grid(cells, 2))] == [4, 3]
    monkeypatch.setattr(runner, "LANES", 1)
    assert [len(part) for part in parts_of(Grid(cells, 2))] == [1] * 7


def test_the_laboratory_measures_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a kill that left a run half made."""
    config = tiny(total_timesteps=96)
    monkeypatch.setattr(laboratory, "CHECKPOINTS", 1)
    study = dataclasses.replace(
        FAKE,
        grid=lambda scale: Grid(FAKE.grid(scale).cells[:2], 2),
        laboratory=lambda scale: [Measurement(config, ((4, 8),))],
        reading=lambda rows, measured: [f"{len(measured)} measurements."],
    )
    monkeypatch.setitem(STUDIES, "fake", study)
    StudyDirectory.begin(tmp_path / "out", "fake", "quick", study.grid("quick"))
    (tmp_path / "out" / "laboratory" / config.env).mkdir(parents=True)
    measured = run_study(study, "quick", tmp_path / "out").measured()
    (row,) = measured
    assert (row["env_steps"], row["num_envs"], row["num_steps"]) == (96, 4, 8)
    assert 0 < row["variance_low"] <= row["variance"] <= row["variance_high"]
    monkeypatch.setattr(runner, "measure", None)
    run_study(study, "quick", tmp_path / "out")
    assert make_report(tmp_path / "out")["verdict"][-1] == "1 measurements."


def test_paper_scales_say_what_they_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isobatch.envs.catalog.is_installed", lambda: False)
    with pytest.raises(UsageError, match="backend 'envpool' is not installed: make setup-envpool"):
        run_study(study_of("invariance"), "paper", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_settings_that_step_outside_are_trained_one_at_a_time() -> None:
    """Those of Gymnasium, which are always there, stand for those of EnvPool that the paper scales use."""
    inside, outside = tiny(), tiny(env="gymnasium/CartPole-v1")
    for config, sizes in ((inside, [3]), (outside, [1, 1, 1])):
        cells = [Cell(config.replace(gamma=gamma), {"gamma": gamma}) for gamma in (0.9, 0.95, 0.99)]
        assert [len(part) for part in parts_of(Grid(cells, 2))] == sizes


def test_killed_for_real_and_run_again(tmp_path: Path) -> None:
    """SIGKILL in the middle of the first part and of the second; then it ends with the files of an undisturbed run."""

    def start(out: Path) -> subprocess.Popen:
        words = [sys.executable, str(Path(fake_study.__file__)), "study", "run", "fake", "--quiet", "--json"]
        return subprocess.Popen([*words, "--out", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    out = tmp_path / "killed"
    for seen in ("study.json", "parts/*.json"):
        process, end = start(out), time.monotonic() + 120
        while not list(out.glob(seen)) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.002)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    assert not (out / "scores.svg").exists()
    for path in (out, tmp_path / "undisturbed"):
        process = start(path)
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
    assert same_files(out, tmp_path / "undisturbed")
