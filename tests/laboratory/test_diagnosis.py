"""`isobatch diagnose`: what it keeps, what it says, and how it fails."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from isobatch.laboratory.plots_old import draw_all
from isobatch.laboratory.words_old import sentences
from tiny import flags, tiny

from isobatch.cli.diagnose import _with_interval
from isobatch.cli.main import main
from isobatch.errors import UsageError
from isobatch.laboratory import diagnosis
from isobatch.laboratory.diagnosis import diagnose, key_of, policy_of
from isobatch.laboratory.options import SECTIONS, LabOptions
from isobatch.statistics.bootstrap import pair_mean
from isobatch.training.loading import load_run
from isobatch.training.trainer import train

pytestmark = pytest.mark.xdist_group("laboratory")
SMALL = dict(chains=8, batches=4, geometries="8x4,4x8", lambdas=(0.0, 1.0))
WORDS = ["--chains", "8", "--batches", "4", "--geometries", "8x4,4x8", "--lambdas", "0,1", "--quiet"]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("diagnosis") / "run"
    train(tiny(), num_seeds=2, run_dir=path, checkpoint_interval=6)
    return path


@pytest.fixture(scope="module")
def results(run_dir: Path) -> list[dict[str, Any]]:
    return diagnose(run_dir, LabOptions(**SMALL), "6,12")


def without_time(results: list[dict[str, Any]]) -> str:
    for result in results:
        for row in result.get("geometries", {"rows": []})["rows"]:
            row.pop("seconds_per_batch")
    return json.dumps(results)


def test_every_section_of_every_checkpoint(results: list[dict[str, Any]], run_dir: Path) -> None:
    assert [result["iteration"] for result in results] == [6, 12]
    assert [result["env_steps"] for result in results] == [6 * 32, 12 * 32]
    for result in results:
        assert set(SECTIONS) <= set(result)
        assert [(row["num_envs"], row["num_steps"]) for row in result["geometries"]["rows"]] == [(8, 4), (4, 8)]
        for row in result["geometries"]["rows"]:
            assert row["seconds_per_batch"] > 0
            assert row["variance"]["low"] <= row["variance"]["value"] <= row["variance"]["high"]
            # Episodes of one step: samples are independent, up to what was measured by chance.
            assert row["effective_samples"]["low"] < 32 < (row["effective_samples"]["high"] or math.inf)
            assert "measured_variance" in row
        assert [row["gae_lambda"] for row in result["lambdas"]["rows"]] == [0.0, tiny().hypers.gae_lambda, 1.0] * 2
        assert result["aggregations"]["episodes"] == 16
    assert len(list((run_dir / "diagnosis").glob("*.json"))) == 2 * len(SECTIONS)


def test_the_same_seed_gives_the_same_numbers(results: list[dict[str, Any]], run_dir: Path, tmp_path: Path) -> None:
    again = diagnose(run_dir, LabOptions(**SMALL), "12", out=tmp_path)
    assert without_time(again) == without_time(json.loads(json.dumps(results[1:])))
    other = diagnose(run_dir, LabOptions(**SMALL, measure_seed=1, sections="lags"), "12", out=tmp_path / "other")
    assert other[0]["lags"] != results[1]["lags"]


def test_what_is_measured_is_kept_and_what_is_damaged_is_measured_again(
    results: list[dict[str, Any]], run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unmeasurable(about: Any, watch: Any) -> None:
        raise AssertionError("measured again")

    true = diagnosis.RUN["lags"]
    for name in SECTIONS:
        monkeypatch.setitem(diagnosis.RUN, name, unmeasurable)
    assert diagnose(run_dir, LabOptions(**SMALL), "6,12") == results
    path = run_dir / "diagnosis" / "000000012-lags.json"
    path.write_text(path.read_text()[:100])
    with pytest.raises(AssertionError, match="measured again"):
        diagnose(run_dir, LabOptions(**SMALL), "12")
    monkeypatch.setitem(diagnosis.RUN, "lags", true)
    assert diagnose(run_dir, LabOptions(**SMALL), "12") == results[1:]
    with pytest.raises(AssertionError, match="measured again"):
        diagnose(run_dir, LabOptions(**SMALL | {"chains": 9}), "12")


def test_another_seed_is_measured_and_not_read_from_the_files_of_the_first(run_dir: Path, tmp_path: Path) -> None:
    """Settings, options and iteration are the same: only the weights differ."""
    loaded = load_run(run_dir)
    keys = [key_of(policy_of(loaded, LabOptions(**SMALL), seed, {}), 12, "lags") for seed in (None, 0, 1)]
    assert keys[0] == keys[1] != keys[2]
    other = tmp_path / "run"
    train(tiny(), seed=1, run_dir=other)
    measured = LabOptions(**SMALL, sections="minibatches")
    first, second = (diagnose(run, measured, out=tmp_path / "out")[0] for run in (run_dir, other))
    assert first["minibatches"] != second["minibatches"]


def test_a_policy_that_is_not_a_number_is_refused(run_dir: Path) -> None:
    loaded = load_run(run_dir)
    networks = jax.tree.map(lambda leaf: leaf * float("nan"), loaded.states.learner.networks)
    states = eqx.tree_at(lambda s: s.learner.networks, loaded.states, networks)
    broken = dataclasses.replace(loaded, states=states)
    with pytest.raises(UsageError, match="checkpoint=12 of seed 1 has weights that are not finite"):
        policy_of(broken, LabOptions(**SMALL), 1, {})


def test_the_command_prints_tables_pictures_and_sentences(
    results: list[dict[str, Any]], run_dir: Path, capsys: pytest.CaptureFixture
) -> None:
    assert main(["diagnose", str(run_dir), "--checkpoint", "6,12", *WORDS]) == 0
    out = capsys.readouterr().out
    assert "8x4" in out
    assert "What it means" in out
    assert "effective samples" in out
    assert "pairs of two environments" in out
    pictures = list((run_dir / "diagnosis").glob("*.png"))
    assert len(pictures) == 2 * 6 + 1
    assert all(path.stat().st_size > 5000 for path in pictures)
    assert main(["diagnose", str(run_dir), *WORDS, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["checkpoints"][0]["iteration"] == 12
    assert found["checkpoints"][0]["sentences"] == sentences(results[1])


def test_a_policy_is_trained_first_if_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["diagnose", *flags(tiny()), *WORDS, "--sections", "minibatches", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert Path(found["run_dir"], "metrics.csv").is_file()
    assert found["checkpoints"][0]["minibatches"]["rows"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--env", "CartPole-v1"], "env='CartPole-v1' is not the environment of"),
        (["--hidden-sizes", "16"], "was fixed when"),
        (["--checkpoint", "7"], "checkpoint='7' is not there: use newest, best or one of [0, 6, 12]"),
        (["--policy-seed", "5"], "policy_seed=5 was not trained in this run: use one of [0, 1]"),
        (["--geometries", "3x10"], "has 30 samples and not the budget of 32"),
        (["--batches", "2"], "batches=2 must be at least 4"),
        (["--preset", "pendulum"], "preset='pendulum' is unknown"),
        (["--preset", "pendulum-post"], "has a run and settings of its own, and run_dir is given: leave it out"),
        (["--seed", "3"], "seed=3 is for training"),
    ],
)
def test_bad_usage(run_dir: Path, words: list[str], sentence: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["diagnose", str(run_dir), "--quiet", *words]) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert captured.out == ""


def test_memory_beyond_the_machine(run_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("isobatch.laboratory.inner_products.available_bytes", lambda: 1000)
    for section, sentence in (
        ("geometries", "8 chains of 8 steps need .* lower chains, the budget or the longest geometry"),
        ("aggregations", "16 episodes of up to 1 steps need .* lower chains, num_envs or horizon"),
        ("cosines", "32 samples need .* lower the budget"),
    ):
        with pytest.raises(UsageError, match=sentence):
            diagnose(run_dir, LabOptions(**SMALL, sections=section), "12", out=tmp_path)


def test_batches_that_are_odd_or_of_one_step(tmp_path: Path) -> None:
    """15 = 3 x 5 has no half; a chain of one step has no lags."""
    run = tmp_path / "run"
    train(tiny(num_envs=3, num_steps=5, num_minibatches=1, total_timesteps=30), run_dir=run)
    small = LabOptions(chains=8, batches=4, geometries="15x1", sections="lags,minibatches")
    result = diagnose(run, small)[0]
    assert [row["size"] for row in result["minibatches"]["rows"]] == [1, 5, 15]
    assert [part["part"] for part in result["lags"]["shares"]] == ["single samples", "other trajectories"]
    assert len(draw_all(result, tmp_path, "odd")) == 2
    assert sentences(result)[-1].startswith("A minibatch of 1 adds")
    changed = diagnose(run, small, changes={"num_minibatches": 5})[0]
    assert [row["size"] for row in changed["minibatches"]["rows"] if row["own"]] == [3]


def test_no_episode_within_the_horizon(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(tiny(env="Probe-Truncation"), run_dir=run)
    options = LabOptions(**SMALL, horizon=3, sections="aggregations")
    with pytest.raises(UsageError, match=r"horizon=3: 0 of 16 episodes end within it.*use up to 5"):
        diagnose(run, options)


def test_what_a_run_cannot_have_is_left_out(tmp_path: Path) -> None:
    """REINFORCE has no ratio to clip; asked for by name it is an error, otherwise a remark."""
    run, said = tmp_path / "run", []
    train(tiny("reinforce"), run_dir=run)
    small = LabOptions(**SMALL | {"sections": "restraint"})
    with pytest.raises(UsageError, match="needs an objective with a ratio: reinforce has none"):
        diagnose(run, small)
    result = diagnose(run, LabOptions(**SMALL), say=said.append)[0]
    assert "restraint" not in result
    assert sentences(result)[0].startswith("This run's own updates use whole episodes only")
    assert "geometries" in result
    assert any(line.startswith("restraint: left out.") for line in said)


def estimate(value: float, low: float | None = None, high: float | None = None) -> dict[str, Any]:
    return {"value": value, "low": value if low is None else low, "high": value if high is None else high}


def row(envs: int, steps: int, error: float, **more: Any) -> dict[str, Any]:
    base = {
        "num_envs": envs,
        "num_steps": steps,
        "error": estimate(error),
        "variance": estimate(error),
        "squared_bias": estimate(0.0, -1.0, 1.0),
        "other_resets_variance": estimate(error),
        "across": estimate(0.0, -1.0, 1.0),
        "effective_samples": estimate(1024.0),
        "critical_batch": estimate(500.0, 400.0, 600.0),
        "error_to_best": estimate(error),
        "seconds_per_batch": 0.001,
    }
    return base | more


def test_sentences_follow_the_numbers() -> None:
    rows = [row(64, 16, 1.0), row(4, 256, 2.1, error_to_best=estimate(2.1, 1.8, 2.5), own=True)]
    found = geometries_of(rows)
    text = " ".join(sentences({"geometries": found}))
    assert "64x16 has 2.1 times (1.8 to 2.5) lower gradient mean squared error than 4x256 (this run's)" in text
    assert "500 samples (400 to 600)" in text
    assert "staggered" not in text
    rows[1]["error_to_best"] = estimate(2.1, 0.8, 4.0)
    assert "cannot be told from it" in " ".join(sentences({"geometries": found}))
    rows[0] |= {"across": estimate(0.9, 0.8, 1.0), "other_resets_variance": estimate(0.1)}
    assert "staggered resets (--staggered-resets) would lower the variance 10.0 times" in " ".join(
        sentences({"geometries": found})
    )
    rows[0]["squared_bias"] = estimate(5.0, 4.0, 6.0)
    assert "Up to T = 16, at lambda 0.95, the error is mostly bias of the value function" in " ".join(
        sentences({"geometries": found})
    )


def geometries_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    settings = {"staggered_resets": False, "gae_lambda": 0.95, "bootstrap": True, "complete_episodes": False}
    inside = {"sets_clocks": True, "unseen_limits": 0, "time_limit": 200, "waited": 200}
    return {"budget": 1024, "chains": 128, "rows": rows} | settings | inside


def test_what_cannot_be_seen_outside_jax_is_said() -> None:
    found = geometries_of([row(64, 16, 1.0, across=estimate(0.9, 0.8, 1.0), other_resets_variance=estimate(0.1))])
    found |= {"sets_clocks": False, "unseen_limits": 1200, "time_limit": 27000, "waited": 1000}
    text = " ".join(sentences({"geometries": found}))
    assert "at 64x16 resets at different times would lower the variance 10.0 times" in text
    assert "stands in for what would follow the 1,200 time limits in the chains" in text
    assert "The time limit of 27,000 steps is long: chains and batches were begun 1,000 to 2,000 steps after" in text
    assert "No time limit is known: chains" in " ".join(sentences({"geometries": found | {"time_limit": 0}}))


def test_time_buys_less_variance_but_not_less_bias() -> None:
    """100 batches of 4x256 in the time of one of 64x16: their error is 2.1/100 if all of it is variance."""
    rows = [row(64, 16, 1.0), row(4, 256, 2.1, seconds_per_batch=0.00001)]
    assert "Weighed against time 4x256 is best" in " ".join(sentences({"geometries": geometries_of(rows)}))
    assert "has 47.6 times less error" in " ".join(sentences({"geometries": geometries_of(rows)}))
    rows[1] |= {"variance": estimate(0.1), "squared_bias": estimate(2.0)}
    assert "Weighed against time" not in " ".join(sentences({"geometries": geometries_of(rows)}))


def test_estimates_below_zero_and_without_a_value_make_sentences() -> None:
    """With few chains a variance can come out negative: ratios to it are then unknown, and so are effective samples."""
    unknown = {"value": None, "low": -3.0, "high": None}
    rows = [
        row(64, 16, -0.1, error_to_best=unknown, own=True, effective_samples=unknown),
        row(4, 256, 2.1, error_to_best=unknown, effective_samples=estimate(100.0, 50.0, 200.0)),
    ]
    text = " ".join(sentences({"geometries": geometries_of(rows)}))
    assert "4x256 cannot be told from it (at least 0.0 times)" in text
    assert "samples of 4x256 are worth 100 (50 to 200) independent ones; those of 64x16 more than can be told" in text


def test_one_geometry_alone_is_not_compared() -> None:
    for own in (False, True):
        text = " ".join(sentences({"geometries": geometries_of([row(4, 256, 1.0, own=own)])}))
        assert "error" not in text
        assert "500 samples (400 to 600)" in text


def test_cells_of_a_table() -> None:
    assert _with_interval(estimate(-0.0004, -0.0, 12345.678), 1.0) == "0.00 [0.00, 12,345.68]"
    assert _with_interval({"value": 3.0, "low": 1.0, "high": None}, 0.1, 0) == "30 [10, inf]"
    assert _with_interval({"value": 3.0, "low": None, "high": None}, 1.0) == "3.00"
    assert _with_interval({"value": None, "low": None, "high": None}, 1.0) == "-"


def test_a_resample_without_a_pair_is_no_number_and_no_warning() -> None:
    which = np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], bool)
    found = pair_mean(np.full((4, 4), 3.0), np.array([[1.0, 1, 1, 1], [2, 0, 2, 0]]), which)
    np.testing.assert_array_equal(found, [3.0, np.nan])
