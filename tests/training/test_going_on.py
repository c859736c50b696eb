"""Runs that go on: for longer, at their end, or from the weights of another one."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny import OPTIONS, tiny

import isobatch as ib
from isobatch.learning.state import TrainState
from isobatch.training.checkpoints import Checkpoints, flatten
from isobatch.training.loading import load_run
from isobatch.training.metrics import METRICS, read_metrics
from isobatch.training.run_directory import RunDirectory
from isobatch.training.trainer import train

pytestmark = pytest.mark.xdist_group("trainer")


def test_a_finished_run_is_extended(run_dir: Path, tmp_path: Path) -> None:
    """Metrics and checkpoints go on, and the settings are those of the longer run."""
    config, said = tiny(total_timesteps=32 * 24), list[str]()
    result = train(config, run_dir=run_dir, resume=True, say=said.append, **OPTIONS)
    assert result.env_steps == 32 * 24
    assert read_metrics(run_dir)["iteration"].tolist() == [i for i in range(1, 25) for _ in range(2)]
    assert RunDirectory.open(run_dir).config == config
    assert Checkpoints(run_dir / "checkpoints").iterations()[-2:] == [20, 24]
    assert "extended from 384 to 768 steps" in said[0]
    with pytest.raises(ib.UsageError, match=r"total_timesteps \(768 there, 384 now\)"):
        train(tiny(), run_dir=run_dir, resume=True, **OPTIONS)


def test_extending_says_what_happens_to_the_learning_rate(tmp_path: Path) -> None:
    run, said = tmp_path / "run", list[str]()
    short, long = (tiny(lr_schedule="linear", total_timesteps=32 * n) for n in (3, 12))
    train(short, run_dir=run)
    train(long, run_dir=run, resume=True, say=said.append)
    assert said[0] == (
        "extended from 96 to 384 steps; the learning rate follows its schedule (linear) over all of them, so it goes "
        "on at 75.0% of its first value, where the shorter run had come to 0.0%."
    )


def test_extending_says_what_happens_to_a_clip_range(tmp_path: Path) -> None:
    run, said = tmp_path / "run", list[str]()
    short, long = (tiny(clip_schedule="linear", total_timesteps=32 * n) for n in (3, 12))
    train(short, run_dir=run)
    train(long, run_dir=run, resume=True, say=said.append)
    assert said[0] == "extended from 96 to 384 steps; clip_eps goes on at 0.15, where the shorter run had come to 0."


def test_a_finished_run_says_so_without_compiling(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isobatch.training.trainer.program_for", None)
    said: list[str] = []
    result = train(tiny(), run_dir=run_dir, resume=True, say=said.append, **OPTIONS)
    assert said == ["the run is finished: all of its 384 steps are trained. More total_timesteps extend it."]
    assert not result.interrupted
    assert result.env_steps == 384


def weights(states: TrainState) -> list[bytes]:
    return [leaf.tobytes() for leaf in flatten((states.networks, states.obs_moments)).values()]


def test_start_from_the_weights_of_another_run(run_dir: Path, tmp_path: Path) -> None:
    said: list[str] = []
    new = tmp_path / "new"
    config = tiny("ppo-ewma", gamma=0.5)
    train(config, run_dir=new, init_from=run_dir, num_seeds=2, keep_checkpoints=20, say=said.append)
    begun, before = load_run(new, "0").states, load_run(run_dir).states
    assert weights(begun) == weights(before)
    averaged, policy = (flatten(tree) for tree in (begun.learning.learner.proximal.params, before.networks.policy))
    assert [leaf.tobytes() for leaf in averaged.values()] == [leaf.tobytes() for leaf in policy.values()]
    assert f"weights of {run_dir} at iteration 12; everything else begins anew." in said
    shutil.rmtree(new / "checkpoints")
    (new / METRICS).unlink()
    train(config, run_dir=new, resume=True, num_seeds=2, keep_checkpoints=20)
    assert weights(load_run(new, "0").states) == weights(before)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (dict(hidden_sizes="16"), r"\(8,\) there, \(16,\) here"),
        (dict(normalize_observations=True), r"normalize_observations \(False there, True here\)"),
    ],
)
def test_other_networks_are_named(changes: dict[str, Any], complaint: str, run_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(ib.UsageError, match=rf"init_from=.* has other networks: .*{complaint}"):
        train(tiny(**changes), run_dir=tmp_path / "new", init_from=run_dir)
    assert not (tmp_path / "new").exists()
