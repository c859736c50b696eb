"""Runs on disk: what they hold, what resuming needs, what goes wrong and how it is told."""

import json
import threading
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas
import pytest
import yaml
from tiny import OPTIONS, tiny

import isobatch as ib
from isobatch.training.checkpoints import Checkpoints, flatten
from isobatch.training.loading import load_run
from isobatch.training.metrics import final_returns, read_metrics
from isobatch.training.trainer import train

pytestmark = pytest.mark.xdist_group("trainer")


def test_files_of_a_run(run_dir: Path) -> None:
    assert ib.Config.from_dict(yaml.safe_load((run_dir / "config.yaml").read_text())) == tiny()
    info = json.loads((run_dir / "run.json").read_text())
    assert info["versions"]["jax"]
    assert info["device"]["platform"]
    frame = pandas.read_csv(run_dir / "metrics.csv")
    assert len(frame) == 12 * 2
    assert frame["env_steps"].max() == 32 * 12
    assert pandas.read_csv(run_dir / "timing.csv")["charts/SPS"].gt(0).all()


def test_metrics_file_gives_the_numbers_back(run_dir: Path) -> None:
    """Every number in the file is the shortest text of a float32, so reading it loses nothing."""
    result = train(tiny(), num_seeds=2)
    table = read_metrics(run_dir)
    for name, values in result.metrics.items():
        np.testing.assert_array_equal(table[name].astype(np.float32), values.astype(np.float32), err_msg=name)


def test_newest_and_best_checkpoints_stay(run_dir: Path) -> None:
    there = Checkpoints(run_dir / "checkpoints")
    assert there.iterations()[-2:] == [8, 12]
    assert there.best() in there.iterations()


def test_resuming_a_finished_run_changes_nothing(run_dir: Path) -> None:
    before = (run_dir / "metrics.csv").read_bytes()
    result = train(tiny(), run_dir=run_dir, resume=True, **OPTIONS)
    assert (run_dir / "metrics.csv").read_bytes() == before
    assert result.env_steps == 32 * 12
    assert len(result.metrics["seed"]) == 24


def test_resume_from_an_earlier_checkpoint_gives_the_same_bits(run_dir: Path) -> None:
    metrics, state = (run_dir / "metrics.csv").read_bytes(), flatten(load_run(run_dir).states)
    (run_dir / "checkpoints" / "000000012.checkpoint").unlink()
    train(tiny(), run_dir=run_dir, resume=True, **OPTIONS)
    assert (run_dir / "metrics.csv").read_bytes() == metrics
    again = flatten(load_run(run_dir).states)
    assert all(state[name].tobytes() == again[name].tobytes() for name in state)


def test_resume_with_other_settings_names_them(run_dir: Path) -> None:
    with pytest.raises(ib.UsageError, match=r"learning_rate \(0.00025 there, 0.5 now\)"):
        train(tiny(learning_rate=0.5), run_dir=run_dir, resume=True, **OPTIONS)
    with pytest.raises(ib.UsageError, match="num_seeds"):
        train(tiny(), run_dir=run_dir, resume=True, num_seeds=1)


def test_existing_directory_is_not_touched(run_dir: Path) -> None:
    before = sorted((p, p.stat().st_mtime_ns) for p in run_dir.rglob("*"))
    with pytest.raises(ib.UsageError, match="exists"):
        train(tiny(), run_dir=run_dir, **OPTIONS)
    assert sorted((p, p.stat().st_mtime_ns) for p in run_dir.rglob("*")) == before


def test_divergence_stops_and_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    """A learning rate that overflows: one sentence, and every kept checkpoint and metric is finite."""
    config = tiny(learning_rate=1e30, max_grad_norm="inf", optimizer="sgd", lr_schedule="constant")
    with pytest.raises(ib.RunError, match=r"diverged before environment step .* learning_rate"):
        train(config, run_dir=tmp_path / "run", checkpoint_interval=1)
    kept = load_run(tmp_path / "run")
    assert all(np.all(np.isfinite(v)) for n, v in flatten(kept.states).items() if "networks" in n)


def test_final_return_is_the_mean_over_episodes_of_the_last_tenth() -> None:
    """Seed 0 ends 1 episode of return 10 and 3 of 20 after step 90: (10 + 60)/4. Seed 1 ends none."""
    table = {
        "env_steps": np.array([90, 90, 95, 95, 100, 100]),
        "seed": np.array([0, 1, 0, 1, 0, 1]),
        "charts/episodic_return": np.array([99.0, 99.0, 10.0, np.nan, 20.0, np.nan]),
        "charts/episodes": np.array([5.0, 5.0, 1.0, 0.0, 3.0, 0.0]),
    }
    assert final_returns(table, 100) == [17.5, None]


def test_an_interruption_before_the_first_line_leaves_a_run_without_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = threading.Event()
    at_once.set()
    monkeypatch.setattr("isobatch.training.trainer.stop_signals", lambda say: nullcontext(at_once))
    result = train(tiny(), num_seeds=2)
    assert result.interrupted
    assert result.to_json()["final_return"] == [None, None]


def test_tensorboard_holds_the_metrics(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    train(tiny(), run_dir=tmp_path / "run", tensorboard=True)
    assert list((tmp_path / "run" / "tensorboard" / "seed_0").glob("events.*"))


def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    train(tiny(), run_dir=tmp_path / "run", wandb_project="isobatch-tests")
    assert list((tmp_path / "run" / "wandb").glob("offline-run-*"))


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ib.UsageError, match=r"pip install 'isobatch\[tensorboard\]'"):
        train(tiny(), tensorboard=True)
