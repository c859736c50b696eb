"""The blog post as a study: what it keeps can be read back, and flags that mean nothing to it are refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from isobatch.cli.main import main
from isobatch.laboratory.results import from_json, to_json
from isobatch.laboratory.sections.trust_region import EpochRow, TrustRegion
from isobatch.statistics.bootstrap import Estimate
from isobatch.studies import blog_post_measurements as measurements
from isobatch.studies.blog_post_claims import clipping, lambda_at_lengths, longer, shuffled, trained
from isobatch.studies.blog_post_measurements import (
    LATE,
    LONG,
    SHORT,
    BatchNumbers,
    Bench,
    OverLength,
    SeedReturns,
    Shuffling,
    post_config,
)


def around(value: float, half: float = 0.01) -> Estimate:
    return Estimate(value, value - half, value + half)


def over_length(ratio: float, effects: tuple[float, float]) -> OverLength:
    long, short = effects
    individual = {16: around(1.0), 256: around(ratio)}
    return OverLength(individual, around(ratio), {LONG: around(long), SHORT: around(short)}, around(long / short))


def test_what_it_keeps_is_read_back() -> None:
    for numbers in (
        BatchNumbers(((1.0, 0.5), (0.5, 1.0)), Estimate(2.0, 1.0, 3.0), Estimate(0.5, 0.4, 0.6)),
        over_length(1.5, (2.0, 3.0)),
        Shuffling(256, around(1.0), around(2.0), around(1.0)),
    ):
        assert from_json(type(numbers), json.loads(json.dumps(to_json(numbers)))) == numbers


def test_it_trains_as_the_post_does() -> None:
    config = post_config()
    assert (config.env, config.num_envs, config.num_steps) == ("Pendulum-v1", 4, 256)
    assert config.num_iterations == LATE
    assert post_config(SHORT) == config.replace(num_envs=16, num_steps=64)


def test_verdicts_follow_from_intervals() -> None:
    verdicts = ["holds", "cannot be told", "does not hold"]
    assert [longer(over_length(ratio, (2.0, 2.0))).verdict for ratio in (1.5, 1.05, 0.9)] == [
        "holds",
        "holds",
        verdicts[2],
    ]
    assert longer(over_length(1.0, (2.0, 2.0))).verdict == "does not hold"
    for effects, verdict in (((2.0, 3.0), 0), ((0.5, 0.2), 0), ((2.0, 0.5), 2), ((1.005, 2.0), 1)):
        assert lambda_at_lengths(over_length(1.0, effects)).verdict == verdicts[verdict]
    for difference, verdict in ((0.5, 0), (0.0, 2), (0.045, 0)):
        found = Shuffling(256, around(1.0), around(1.0), around(difference))
        assert shuffled(found).verdict == verdicts[verdict]
    wide = Shuffling(256, around(1.0), around(1.0), around(0.05, 0.1))
    assert shuffled(wide).verdict == "cannot be told"
    for cosine, verdict in ((0.5, 0), (0.95, 1), (0.99, 2)):
        row = EpochRow(4, around(cosine), around(1.0), around(0.1), around(0.01))
        assert clipping(TrustRegion("clip", 16, (row,))).verdict == verdicts[verdict]


def test_settings_that_learn_alike_and_not() -> None:
    """Student's interval of seeds around .5 and .6, then of the same ones in another order."""
    rng = np.random.default_rng(0)
    long, short = (tuple(rng.normal(mean, 0.01, 8).tolist()) for mean in (0.5, 0.6))
    assert trained({LONG: SeedReturns(long, long), SHORT: SeedReturns(short, short)}).verdict == "holds"
    same = trained({LONG: SeedReturns(long, long), SHORT: SeedReturns(long[::-1], long[::-1])})
    assert same.verdict == "does not hold"
    assert "16x64 minus 4x256, 8 seeds each: 0 (" in same.evidence


def test_a_piece_is_measured_once_and_read_from_then_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So what is killed loses the piece that it was in, and no more."""
    monkeypatch.setattr(measurements, "load_run", lambda path, checkpoint: checkpoint)
    monkeypatch.setattr(measurements, "subject_of", lambda loaded, options: loaded)
    monkeypatch.setattr(measurements, "key_of", lambda subject, iteration, name: {"of": subject, "name": name})
    calls = []

    def made(subject: object) -> Shuffling:
        calls.append(subject)
        return Shuffling(256, around(1.0), around(2.0), around(1.0))

    def measured(name: str) -> Shuffling:
        bench = Bench(tmp_path, 0, lambda what, done: None, print)
        return bench.piece(LONG, LATE, name, Shuffling, made, 0.5)

    assert measured("one") == measured("one") == measured("two")
    assert calls == [str(LATE), str(LATE)]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["geometry", "--measure-seed", "1"], "measure_seed=1 is for pendulum-post alone: leave it out"),
        (["pendulum-post", "--envs", "CartPole-v1"], "pendulum-post has one environment: leave it out"),
    ],
)
def test_bad_usage(words: list[str], sentence: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["study", "run", *words]) == 2
    assert sentence in capsys.readouterr().err
