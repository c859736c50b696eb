"""Branches of a checkpoint: what they start from, that they go on after a kill, and what comes of it."""

import json
import re
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from needs import one_more_case
from tiny import tiny
from trained import write_run

from isobatch.cli.main import main
from isobatch.errors import UsageError
from isobatch.laboratory import LabOptions, branching, diagnose
from isobatch.laboratory.branch_sizes import base_config, branch_size
from isobatch.laboratory.branch_states import aged, measured_moments, planted, weight_of_advantages
from isobatch.laboratory.branching import MARKS, Branching, BranchReturns
from isobatch.laboratory.diagnosis import Diagnosis, subject_of
from isobatch.laboratory.known import critical_batches
from isobatch.laboratory.partial_results import PartialResults
from isobatch.laboratory.sections.branches import Branches
from isobatch.learning.proximal import Ewma
from isobatch.learning.state import TrainState
from isobatch.settings.config import Config
from isobatch.training.checkpoints import flatten
from isobatch.training.loading import load_run
from isobatch.training.programs import initial_states
from isobatch.training.trainer import train

pytestmark = pytest.mark.xdist_group("branches")
OPTIONS: dict[str, Any] = dict(
    sections="branches", branch_factors=(0.5, 1.0), branch_seeds=4, branch_episodes=4, chains=8, batches=4,
    geometries="4x8",
)  # fmt: skip
WORDS = [
    *("--sections", "branches", "--branch-factors", "0.5,1", "--branch-seeds", "4", "--branch-episodes", "4"),
    *("--chains", "8", "--batches", "4", "--geometries", "4x8", "--quiet"),
]
NORMALIZED = tiny("ppo-ewma", normalize_observations=True, normalize_rewards=True)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("branches") / "run"
    train(tiny(), run_dir=path, checkpoint_interval=6)
    return path


@pytest.fixture(scope="module")
def found(run_dir: Path) -> Diagnosis:
    return diagnose(run_dir, LabOptions(**OPTIONS), "6")[0]


def stacked(state: TrainState, lanes: int) -> TrainState:
    return jax.tree.map(lambda leaf: jnp.stack([leaf] * lanes), state)


def trained_state(config: Config) -> TrainState:
    """As after some iterations: no number is what it was at first."""
    state = jax.tree.map(lambda leaf: leaf[0], initial_states(config, [0]))
    return eqx.tree_at(lambda s: s.learning, state, jax.tree.map(lambda leaf: leaf + 2, state.learning))


def test_at_the_run_s_own_size_all_that_was_learned_is_what_it_was() -> None:
    """Planted into the very states of the run nothing changes, so that the next iteration is the run's own."""
    states = stacked(trained_state(NORMALIZED), 3)
    before, after = flatten(states), flatten(planted(NORMALIZED, NORMALIZED, trained_state(NORMALIZED), states))
    for name, leaf in before.items():
        np.testing.assert_allclose(after[name], leaf, rtol=1e-6, err_msg=name)


def test_at_another_size_averages_have_the_same_age_in_samples() -> None:
    """beta 8/9 -> 4/5, so that the center of mass, 8 -> 4 steps of twice the samples, stays; w is as near to its end,
    1/(1 - beta) = 9 -> 5. Two epochs: 32 samples a step become 64 at 1/2 of them being new."""
    base = base_config(NORMALIZED.replace(beta_prox=8 / 9), 0)
    after = branch_size(base, 2.0).config
    average = aged(base, after, Ewma(jnp.zeros(1), jnp.asarray(4.5), jnp.asarray(6.0)))
    assert float(average.weight) == pytest.approx(2.5)
    assert float(average.age) == pytest.approx(3.0)
    smaller = branch_size(base, 0.5).config  # moments of advantages over 32 samples: 1 -> 2 iterations of 16, decay 1/3
    assert weight_of_advantages(base) == 32
    assert weight_of_advantages(smaller) == pytest.approx(16 / (1 - 1 / 3))


def test_rmsprop_divides_by_an_average_of_all_its_gradients() -> None:
    """After n squares of 1 from nothing its average is 1 - beta2^n; a branch begins with 1."""
    config = tiny(optimizer="rmsprop", num_minibatches=2, update_epochs=2)
    states = initial_states(config, [0, 1])
    steps = 3 * 4  # three updates of four gradient steps
    nu = (1 - config.hypers.beta2**steps) * jnp.ones_like(states.learning.learner.optimizer[1].nu)
    states = eqx.tree_at(lambda s: s.learning.learner.optimizer[1].nu, states, nu)
    ready = measured_moments(config, states, 3).learning.learner.optimizer[1].nu
    np.testing.assert_allclose(ready, np.ones_like(ready), rtol=1e-4)


def test_a_branch_begins_with_the_weights_and_with_moments_of_its_own(run_dir: Path) -> None:
    """Four iterations of four gradient steps without a step: Adam has counted sixteen, and nothing else has moved."""
    subject = subject_of(load_run(run_dir, "6"), LabOptions(**OPTIONS))
    branching = Branching(subject, PartialResults(None, {}))
    size = branching.plan.sizes[0]
    assert (size.config.num_envs, size.before) == (2, 4)
    fresh = initial_states(size.config, branching.seeds)
    states = branching._begin(size, fresh, *branching._program(size, fresh))
    for name in ("networks",):
        own, new = (flatten(getattr(s.learning.learner, name)) for s in (subject.state, states))
        for leaf in own:
            np.testing.assert_array_equal(new[leaf], np.stack([own[leaf]] * 4), err_msg=leaf)
    adam = states.learning.learner.optimizer[1]
    np.testing.assert_array_equal(adam.count, [16] * 4)
    assert np.all(np.asarray(adam.nu).max(axis=1) > 0)
    assert np.unique(np.asarray(states.envs.obs), axis=0).shape[0] > 1  # seeds have their own environments
    np.testing.assert_array_equal(states.iteration, [4] * 4)


def test_what_is_measured(found: Diagnosis, run_dir: Path) -> None:
    """Sizes of 16 and 32 steps, a quarter of the run each; the policies learn to get 1."""
    section = found.get(Branches)
    assert section.samples == 96
    assert [row.iterations for row in section.rows] == [6, 3]
    assert [row.optimization_batch for row in section.rows] == [8, 16]
    for row in section.rows:
        assert np.array(row.returns).shape == (MARKS, 4)
        assert row.at_end.value == pytest.approx(np.mean(row.returns[-1]))
        assert row.over_branch.value == pytest.approx(np.mean(row.returns))
    assert section.rows[0].difference is None
    assert section.rows[1].difference is not None
    rows = [np.mean(row.returns, axis=0) for row in section.rows]
    assert section.rows[1].difference.value == pytest.approx(np.mean(rows[1] - rows[0]))
    # One iteration of 32 at the first of four marks, at 24 steps: there is none yet, and the policy is the run's.
    np.testing.assert_allclose(section.rows[1].returns[0], section.policy_return, atol=1e-6)
    best = max(section.policy_return, *(max(r.over_branch.value, r.at_end.value) for r in section.rows))
    assert section.tolerance == pytest.approx(0.05 * max(best - section.untrained_return, 0))
    known = critical_batches(run_dir)
    assert [(entry.env_steps, entry.method) for entry in known] == [(192, "branches"), (192, "noise scale")]
    assert repr(known[0].estimate) == repr(section.critical_batch)
    assert np.isnan(section.critical_batch.value) == (section.tolerance == 0)
    assert not list((run_dir / "diagnosis").glob("*.parts"))


@pytest.mark.parametrize("kill_at", [pytest.param(1, marks=one_more_case), 2, pytest.param(6, marks=one_more_case)])
def test_an_interrupted_diagnosis_goes_on_inside(
    kill_at: int, found: Diagnosis, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while some policy is played: what was trained before is not trained again, and nothing is different."""
    iterations, judged = list[int](), list[int]()
    original, run = Branching._judged, branching.run_iterations

    def counted(*args: Any, **more: Any) -> Any:
        iterations.append(args[5] - args[4])
        return run(*args, **more)

    def killed(self: Branching, *args: Any) -> BranchReturns:
        judged.append(1)
        if len(judged) == kill_at:
            raise KeyboardInterrupt
        return original(self, *args)

    monkeypatch.setattr(branching, "run_iterations", counted)
    monkeypatch.setattr(Branching, "_judged", killed)
    with pytest.raises(KeyboardInterrupt):
        diagnose(run_dir, LabOptions(**OPTIONS), "6", out=tmp_path)
    iterations.clear()
    (again,) = diagnose(run_dir, LabOptions(**OPTIONS), "6", out=tmp_path)
    assert repr(again.get(Branches).rows) == repr(found.get(Branches).rows)
    # Of the first size 4 before and 6 in the branch, killed at its marks after 1, 3, 4, 6; of the second 4 and 3.
    expected = {1: [5, 4, 3], 2: [3, 4, 3], 6: [2]}[kill_at]
    assert iterations == expected


def test_parts_of_other_settings_are_not_used(tmp_path: Path) -> None:
    path = tmp_path / "000000006-branches.json"
    first = PartialResults(path, {"section": "branches", "seed": 0})
    first.store("x1", BranchReturns(((1.0,),)))
    assert PartialResults(path, {"section": "branches", "seed": 0}).load("x1", BranchReturns) == BranchReturns(
        ((1.0,),)
    )
    assert PartialResults(path, {"section": "branches", "seed": 1}).load("x1", BranchReturns) is None
    assert first.load("x1", BranchReturns) is None  # they were removed


def test_the_command(
    found: Diagnosis, run_dir: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["diagnose", str(run_dir), "--checkpoint", "6", *WORDS]) == 0
    shown = capsys.readouterr()
    assert "Critical batch size over training" in shown.out
    assert "Return over branches of 96 environment steps, 4 seeds" in re.sub(r"\s+", " ", shown.out)
    pictures = {path.name for path in (run_dir / "diagnosis").glob("*.png")}
    assert pictures == {"000000006-branches.png", "critical-batch.png"}
    monkeypatch.setattr(Diagnosis, "draw", lambda diagnosis, out: [])
    assert main(["diagnose", str(run_dir), "--checkpoint", "6", *WORDS, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["checkpoints"] == [found.to_json()]
    assert [entry["method"] for entry in printed["critical_batches"]] == ["branches", "noise scale"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--branch-factors", "0.1,0.2"], "fewer than two batch sizes to compare"),
        (["--branch-factors", "0,1"], "branch_factors=0 is out of range"),
        (["--branch-seeds", "3"], "branch_seeds=3 must be at least 4"),
        (["--branch-samples", "40"], "more than branch_samples=40"),
    ],
)
def test_bad_usage(run_dir: Path, words: list[str], sentence: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["diagnose", str(run_dir), *WORDS, *words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_run_without_checkpoints(tmp_path: Path) -> None:
    write_run(tmp_path / "run", tiny())
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.unlink()
    with pytest.raises(UsageError, match="has no checkpoints yet"):
        diagnose(tmp_path / "run", LabOptions(**OPTIONS))


@pytest.mark.parametrize(
    ("algo", "settings"),
    [
        ("ppo", {"env": "host_envs:Walk-v0"}),
        pytest.param("reinforce", {}, marks=one_more_case),
        pytest.param("ppg-ewma", {"total_timesteps": 32 * 24}, marks=one_more_case),
        pytest.param("a2c", {"optimizer": "rmsprop"}, marks=one_more_case),
        pytest.param("ppo", {"staleness": 2, "lr_schedule": "adaptive"}, marks=one_more_case),
    ],
)
def test_other_environments_and_algorithms(algo: str, settings: dict[str, Any], tmp_path: Path) -> None:
    write_run(tmp_path / "run", tiny(algo, **settings))
    (result,) = diagnose(tmp_path / "run", LabOptions(**OPTIONS))
    section = result.get(Branches)
    assert [row.diverged for row in section.rows] == [0, 0]
    assert np.isfinite([row.returns for row in section.rows]).all()
    assert section.settled == (algo != "reinforce" and "env" not in settings)
