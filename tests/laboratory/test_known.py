"""What is read from the files of a diagnosis, by whoever needs a critical batch size."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tiny import tiny
from trained import write_run

from isobatch.cli.main import main
from isobatch.laboratory.known import CriticalBatch, critical_batches
from isobatch.laboratory.results import FORMAT
from isobatch.settings.config import Config
from isobatch.statistics.bootstrap import Estimate

CONFIG = tiny()  # 4 x 8


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("known") / "run"
    write_run(path, CONFIG)
    (path / "diagnosis").mkdir()
    return path


def write(run_dir: Path, iteration: int, section: str, result: dict[str, Any], config: Config = CONFIG) -> Path:
    key = {"format": FORMAT, "section": section, "settings": config.to_dict() | {"iteration": iteration}}
    path = run_dir / "diagnosis" / f"{iteration:09d}-{section}.json"
    path.write_text(json.dumps({"key": key, "result": result}))
    return path


def ends(value: float, low: float, high: float | None) -> dict[str, float | None]:
    return {"value": value, "low": low, "high": high}


def test_both_methods_in_order_of_training(run_dir: Path) -> None:
    """Rows of geometries: the run's own, else the rollout length that is nearest by its ratio. Null is no upper end."""
    rows = [
        {"num_steps": 1, "current": False, "critical_batch": ends(1, 1, 1)},
        {"num_steps": 8, "current": True, "critical_batch": ends(30, 20, 40)},
    ]
    write(run_dir, 12, "geometries", {"rows": rows})
    others = [{"num_steps": steps, "current": False, "critical_batch": ends(steps, 1, None)} for steps in (1, 4, 32)]
    write(run_dir, 3, "geometries", {"rows": others})
    write(run_dir, 12, "branches", {"critical_batch": ends(64, 32, None), "noise_scale": ends(31, 21, 41)})
    assert critical_batches(run_dir) == [
        CriticalBatch(3 * 32, Estimate(4, 1, math.inf), "noise scale"),
        CriticalBatch(12 * 32, Estimate(64, 32, math.inf), "branches"),
        CriticalBatch(12 * 32, Estimate(31, 21, 41), "noise scale"),
    ]


def test_what_does_not_count(run_dir: Path, tmp_path: Path) -> None:
    """Files of other settings, of another version, or damaged; a longer run is the same run."""
    write_run(tmp_path / "run", CONFIG)
    other = tmp_path / "run"
    (other / "diagnosis").mkdir()
    good = {"critical_batch": ends(64, 32, 128), "noise_scale": ends(31, 21, 41)}
    write(other, 1, "branches", good, CONFIG.replace(num_steps=16))
    write(other, 2, "branches", {"critical_batch": 3})
    path = write(other, 4, "branches", good)
    path.write_text(path.read_text().replace(f'"format": {FORMAT}', '"format": 0'))
    for iteration, text in enumerate(("{", "[" * 100_000, "[]", "3"), 5):
        (other / "diagnosis" / f"{iteration:09d}-branches.json").write_text(text)
    path = write(other, 9, "branches", good)
    path.write_text(path.read_text().replace('"iteration": 9', '"iteration": Infinity'))
    assert critical_batches(other) == []
    write(other, 6, "branches", good, CONFIG.replace(total_timesteps=32 * 100))
    assert [entry.env_steps for entry in critical_batches(other)] == [6 * 32, 6 * 32]


def test_rescale_takes_what_was_measured(run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Branches before the noise scale, the latest policy of those that are known; and it says so."""
    run = tmp_path / "run"
    write_run(run, CONFIG)
    (run / "diagnosis").mkdir()
    words = ["rescale", "--to-num-envs", "8", "--json"]
    rows = [{"num_steps": 8, "current": True, "critical_batch": ends(30.4, 20, 40)}]
    write(run, 9, "geometries", {"rows": rows})

    def given(*more: str) -> dict[str, Any]:
        assert main([*words, *more]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)["critical_batch"]
        return found

    assert given(str(run), "--critical-batch", "measured") == {
        "value": 30, "source": f"(20 to 40), by the noise scale after 288 steps of {str(run)!r}",
    }  # fmt: skip
    unknown = {"value": None, "low": None, "high": None}
    for iteration, found in ((3, ends(64, 32, None)), (6, ends(80, 32, None)), (9, unknown)):
        write(run, iteration, "branches", {"critical_batch": found, "noise_scale": ends(31, 21, 41)})
    assert given("--critical-batch", str(run)) == {
        "value": 80,
        "source": f"(32 to inf), by branches after 192 steps of {str(run)!r}, the last of 2 policies that were "
        "measured",
    }
    assert main([*words[:-1], str(run), "--critical-batch", "measured"]) == 0
    assert "critical batch size: 80 samples of a gradient step (32 to inf), by branches" in capsys.readouterr().out
    assert main([*words, "--critical-batch", "measured"]) == 2
    assert "name one, isobatch rescale RUN" in capsys.readouterr().err


def test_rescale_says_how_to_measure(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    write_run(tmp_path / "run", CONFIG)
    (tmp_path / "run" / "metrics.csv").write_text("iteration,env_steps,seed\n1,32,0\n")
    assert main(["rescale", str(tmp_path / "run"), "--to-num-envs", "8", "--critical-batch", "measured"]) == 2
    assert "--sections branches measures it" in capsys.readouterr().err
