"""`isobatch diagnose`: what it keeps, what it says, and how it fails."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from needs import one_more_case
from tiny import flags, tiny
from trained import write_run

from isobatch.cli.main import main
from isobatch.errors import UsageError
from isobatch.gradients.correlation import cosine_across, cosine_pairs
from isobatch.laboratory import Diagnosis, LabOptions, diagnose
from isobatch.laboratory.diagnosis import subject_of
from isobatch.laboratory.result_key import key_of
from isobatch.laboratory.sections import ALL, SECTIONS, section_class
from isobatch.laboratory.sections.aggregations import Aggregations
from isobatch.laboratory.sections.cosines import sample_cosines
from isobatch.laboratory.sections.geometries import Geometries
from isobatch.laboratory.sections.lags import Lags
from isobatch.laboratory.sections.lambdas import Lambdas
from isobatch.laboratory.sections.minibatches import Minibatches
from isobatch.statistics.aggregates import skewed_mean
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
def results(run_dir: Path) -> list[Diagnosis]:
    return diagnose(run_dir, LabOptions(**SMALL), "6,12")


def without_time(results: list[Diagnosis]) -> str:
    """All numbers but the seconds, and what follows from them."""
    found = [result.to_json() for result in results]
    for result in found:
        del result["sentences"]
        for row in result.get("geometries", {"rows": []})["rows"]:
            del row["seconds_per_batch"]
    return json.dumps(found)


def as_json(results: list[Diagnosis]) -> list[dict[str, Any]]:
    return [result.to_json() for result in results]


def test_cosines_are_signed_and_absolute_means_over_batches(tmp_path: Path) -> None:
    """Each over the four batches that were asked for, with an interval; within minus across batch by batch."""
    write_run(tmp_path / "run", tiny(env="Pendulum-v1"))
    subject = subject_of(load_run(tmp_path / "run", "newest"), LabOptions(**SMALL))
    found = sample_cosines(subject, subject.config.hypers.gae_lambda)
    within, across = (
        np.array([[pairs.mean(), np.abs(pairs).mean()] for pairs in kind])
        for kind in zip(
            *(
                (cosine_pairs(gram, layout, 1), cosine_across(gram, layout))
                for gram, layout in subject.sample_products(4, subject.config.hypers.gae_lambda)
            ),
            strict=True,
        )
    )
    assert found.across is not None
    for means, by_batch in (
        (found.within[1].means, within), (found.across.means, across), (found.excess[1], within - across)
    ):  # fmt: skip
        np.testing.assert_allclose([means.mean.value, means.absolute.value], by_batch.mean(axis=0), rtol=1e-6)
        over_batches = skewed_mean(by_batch[:, 0])
        np.testing.assert_allclose([means.mean.low, means.mean.high], [over_batches.low, over_batches.high], rtol=1e-5)


def test_every_section_of_every_checkpoint(results: list[Diagnosis], run_dir: Path) -> None:
    assert [result.iteration for result in results] == [6, 12]
    assert [result.env_steps for result in results] == [6 * 32, 12 * 32]
    for result in results:
        assert tuple(result.sections) == ALL
        assert [row.name for row in result.get(Geometries).rows] == ["8x4", "4x8"]
        for row in result.get(Geometries).rows:
            assert row.seconds_per_batch > 0
            assert row.variance.low <= row.variance.value <= row.variance.high
            # Episodes of one step: samples are independent, up to what was measured by chance.
            assert row.effective_samples.low < 32 < row.effective_samples.high
            assert row.measured_variance is not None
        lambdas = [row.gae_lambda for row in result.get(Lambdas).rows]
        assert lambdas == [0.0, tiny().hypers.gae_lambda, 1.0] * 2
        assert result.get(Aggregations).episodes == 16
    assert len(list((run_dir / "diagnosis").glob("*.json"))) == 2 * len(ALL)


@one_more_case  # environments outside JAX have it too
@pytest.mark.usefixtures("results")
def test_a_section_is_handed_out_before_the_next_one_is_begun(run_dir: Path) -> None:
    events: list[str] = []
    diagnose(
        run_dir, LabOptions(**SMALL, sections="lags,cosines"), "12", watch=lambda what, done: events.append(what),
        ready=lambda part: events.append(f"ready: {', '.join(part.sections)}"),
    )  # fmt: skip
    ready = [place for place, event in enumerate(events) if event.startswith("ready")]
    assert [events[place] for place in ready] == ["ready: lags", "ready: cosines"]
    assert "iteration 12: lags" in events[: ready[0]]
    assert "iteration 12: cosines" not in events[: ready[0]]


def test_the_same_seed_gives_the_same_numbers(results: list[Diagnosis], run_dir: Path, tmp_path: Path) -> None:
    again = diagnose(run_dir, LabOptions(**SMALL), "12", out=tmp_path)
    assert without_time(again) == without_time(results[1:])
    other = diagnose(run_dir, LabOptions(**SMALL, measure_seed=1, sections="lags"), "12", out=tmp_path / "other")
    assert other[0].get(Lags) != results[1].get(Lags)


def test_what_is_measured_is_kept_and_what_is_damaged_is_measured_again(
    results: list[Diagnosis], run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unmeasurable(subject: Any, parts: Any, watch: Any) -> None:
        raise AssertionError("measured again")

    true = Lags.measure
    for name in SECTIONS:
        monkeypatch.setattr(section_class(name), "measure", unmeasurable)
    assert as_json(diagnose(run_dir, LabOptions(**SMALL), "6,12")) == as_json(results)
    path = run_dir / "diagnosis" / "000000012-lags.json"
    for damaged in (path.read_text()[:100], "[]", "{}", path.read_text().replace('"correlation"', '"relation"')):
        path.write_text(damaged)
        with pytest.raises(AssertionError, match="measured again"):
            diagnose(run_dir, LabOptions(**SMALL), "12")
    monkeypatch.setattr(Lags, "measure", true)
    assert as_json(diagnose(run_dir, LabOptions(**SMALL), "12")) == as_json(results[1:])
    with pytest.raises(AssertionError, match="measured again"):
        diagnose(run_dir, LabOptions(**SMALL | {"chains": 9}), "12")


def test_another_seed_is_measured_and_not_read_from_the_files_of_the_first(run_dir: Path, tmp_path: Path) -> None:
    """Settings, options and iteration are the same: only the weights differ."""
    loaded = load_run(run_dir)
    keys = [key_of(subject_of(loaded, LabOptions(**SMALL), seed), 12, "lags") for seed in (None, 0, 1)]
    assert keys[0] == keys[1] != keys[2]
    other = tmp_path / "run"
    train(tiny(), seed=1, run_dir=other)
    measured = LabOptions(**SMALL, sections="minibatches")
    first, second = (diagnose(run, measured, out=tmp_path / "out")[0] for run in (run_dir, other))
    assert first.get(Minibatches) != second.get(Minibatches)


def test_a_policy_that_is_not_a_number_is_refused(run_dir: Path) -> None:
    loaded = load_run(run_dir)
    networks = jax.tree.map(lambda leaf: leaf * float("nan"), loaded.states.networks)
    states = eqx.tree_at(lambda s: s.learning.learner.networks, loaded.states, networks)
    broken = dataclasses.replace(loaded, states=states)
    with pytest.raises(UsageError, match="checkpoint=12 of seed 1 has weights that are not finite"):
        subject_of(broken, LabOptions(**SMALL), 1)


def test_the_command_prints_tables_pictures_and_sentences(
    results: list[Diagnosis], run_dir: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["diagnose", str(run_dir), "--checkpoint", "6,12", *WORDS, "--sections", "geometries"]) == 0
    assert main(["diagnose", str(run_dir), "--checkpoint", "12", *WORDS]) == 0
    out = capsys.readouterr().out
    assert "8x4" in out
    assert "What it means" in out
    assert "effective samples" in out
    assert "pairs of two environments" in out
    pictures = list((run_dir / "diagnosis").glob("*.png"))
    assert len(pictures) == len(ALL) + 2  # of the second checkpoint, of one section of the first, and of both
    assert all(path.stat().st_size > 5000 for path in pictures)
    monkeypatch.setattr(Diagnosis, "draw", lambda diagnosis, out: [])  # which takes seconds
    assert main(["diagnose", str(run_dir), *WORDS, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["checkpoints"][0]["iteration"] == 12
    assert found["checkpoints"] == [results[1].to_json()]


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
        (["--preset", "atari-ppo"], "preset=atari-ppo was fixed when"),
        (["--sections", "restraint"], "sections='restraint' is unknown: use all, or some of geometries,"),
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
    write_run(run, tiny(num_envs=3, num_steps=5, num_minibatches=1, total_timesteps=45))
    small = LabOptions(chains=8, batches=4, geometries="15x1", sections="lags,minibatches")
    result = diagnose(run, small)[0]
    assert [row.size for row in result.get(Minibatches).rows] == [1, 5, 15]
    assert [share.part for share in result.get(Lags).shares] == ["single samples", "other trajectories"]
    assert len(result.draw(tmp_path)) == 2
    assert result.sentences()[-1].startswith("A minibatch of 1 adds")
    changed = diagnose(run, small, changes={"num_minibatches": 5})[0]
    assert [row.size for row in changed.get(Minibatches).rows if row.current] == [3]


def test_how_to_go_on_is_quoted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """Of a training that was interrupted before anything was measured."""
    monkeypatch.setattr("isobatch.cli.train.default_directory", lambda *_: Path("my runs/one"))
    monkeypatch.setattr("isobatch.training.trainer.train", lambda *_, **__: SimpleNamespace(interrupted=True))
    assert main(["diagnose", *flags(tiny())]) == 1
    assert "isobatch train --resume 'my runs/one', then isobatch diagnose 'my runs/one'" in capsys.readouterr().err


def test_no_episode_within_the_horizon(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_run(run, tiny(env="Probe-Truncation"))
    options = LabOptions(**SMALL, horizon=3, sections="aggregations")
    with pytest.raises(UsageError, match=r"horizon=3: 0 of 16 episodes end within it.*use up to 5"):
        diagnose(run, options)


def test_what_a_run_cannot_have_is_left_out(tmp_path: Path) -> None:
    """REINFORCE has no ratio to clip; asked for by name it is an error, otherwise a remark."""
    run, said = tmp_path / "run", []
    write_run(run, tiny("reinforce"))
    small = LabOptions(**SMALL | {"sections": "trust-region"})
    with pytest.raises(UsageError, match="needs an objective with a ratio: reinforce has none"):
        diagnose(run, small)
    result = diagnose(run, LabOptions(**SMALL), say=said.append)[0]
    assert "trust-region" not in result.sections
    assert result.sentences()[0].startswith("This run's own updates use whole episodes only")
    assert "geometries" in result.sections
    assert any(line.startswith("trust-region: left out.") for line in said)


def test_a_resample_without_a_pair_is_no_number_and_no_warning() -> None:
    which = np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], bool)
    found = pair_mean(np.full((4, 4), 3.0), np.array([[1.0, 1, 1, 1], [2, 0, 2, 0]]), which)
    np.testing.assert_array_equal(found, [3.0, np.nan])
