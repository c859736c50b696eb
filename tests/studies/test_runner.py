"""Running a study: nothing twice, the same files each time, also after a kill."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import fake_study
import pytest
from needs import one_more_case
from tiny import tiny

from isobatch.errors import UsageError
from isobatch.executors.processes import LocalProcesses
from isobatch.studies import jobs, runner
from isobatch.studies.claims import STUDIES, study_of
from isobatch.studies.grid import Cell, Grid, Measurement, Row
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

    monkeypatch.setattr(jobs, "train_cells", counted)
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


class Away(LocalProcesses):
    """As if on another machine."""

    shares_files = False


@one_more_case
def test_the_laboratory_measures_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a kill that left a run half made; and where it does not see our files, these come back."""
    config = tiny(total_timesteps=96)
    study = dataclasses.replace(
        FAKE,
        grid=lambda scale: Grid(FAKE.grid(scale).cells[:2], 2),
        laboratory=lambda scale: [Measurement(config, ((4, 8),), checkpoints=1)],
        reading=lambda rows, measured: [f"{len(measured)} measurements."],
    )
    monkeypatch.setitem(STUDIES, "fake", study)
    StudyDirectory.begin(tmp_path / "out", "fake", "quick", study.grid("quick"))
    (tmp_path / "out" / "laboratory" / config.env).mkdir(parents=True)
    measured = run_study(study, "quick", tmp_path / "out").measured()
    (row,) = measured
    assert (row["env_steps"], row["num_envs"], row["num_steps"]) == (96, 4, 8)
    assert 0 < row["variance_low"] <= row["variance"] <= row["variance_high"]

    def left(measurement: Measurement, path: Path, watch: Any) -> list[Row]:
        """What measuring takes seconds for."""
        shutil.copytree(tmp_path / "out" / "laboratory" / config.env, path)
        return measured

    monkeypatch.setattr(jobs, "measure", left)
    away = run_study(study, "quick", tmp_path / "away", executor=Away())
    assert away.measured() == measured
    assert (away.laboratory_run(config.env) / "metrics.csv").is_file()
    assert not list(away.path.rglob("*.new"))
    monkeypatch.setattr(jobs, "measure", None)
    run_study(study, "quick", tmp_path / "out")
    assert make_report(tmp_path / "out")["verdict"][-1] == "1 measurements."


def test_paper_scales_say_what_they_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isobatch.envs.catalog.is_installed", lambda: False)
    with pytest.raises(UsageError, match="backend 'envpool' is not installed: make setup-envpool"):
        run_study(study_of("invariance"), "paper", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_devices_are_chosen_before_an_environment_starts_jax(tmp_path: Path) -> None:
    """In a process of its own, without training anything."""
    code = (
        "import jax, sys; from isobatch.studies.runner import run_study\n"
        "class Nobody:\n"
        "    shares_files = True\n"
        "    def run(self, jobs, watch):\n"
        "        yield from ()\n"
        "run_study('ewma', 'quick', sys.argv[1], executor=Nobody()); print(jax.device_count())"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "out")]
    assert int(subprocess.run(words, check=True, capture_output=True).stdout) == len(os.sched_getaffinity(0))


def test_settings_that_step_outside_are_trained_together_where_they_have_few_environments() -> None:
    """Those of Gymnasium, which are always there, stand for those of EnvPool that the paper scales use."""
    inside, outside = (tiny(env=env, num_envs=16) for env in ("CartPole-v1", "gymnasium/CartPole-v1"))
    few = tiny(env="gymnasium/CartPole-v1", num_envs=4)  # 24 environments of three settings and two seeds
    for config, sizes in ((inside, [3]), (outside, [1, 1, 1]), (few, [3])):
        cells = [Cell(config.replace(gamma=gamma), {"gamma": gamma}) for gamma in (0.9, 0.95, 0.99)]
        assert [len(part) for part in parts_of(Grid(cells, 2))] == sizes


@one_more_case
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
