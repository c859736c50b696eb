"""The blog post as a study: what it keeps can be read back, and flags that mean nothing to it are refused."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from made_up_post import around, batch_numbers, coherence, lags_section, measurements, over_length, sample_cosines
from tiny import tiny
from trained import write_run

from isobatch.cli.main import main
from isobatch.laboratory import LabOptions
from isobatch.laboratory.diagnosis import Diagnosis, subject_of
from isobatch.laboratory.partial_results import NOTHING_KEPT, PartialResults
from isobatch.laboratory.results import from_json, to_json
from isobatch.laboratory.sections.cosines import SampleCosines
from isobatch.laboratory.sections.cosines import sample_cosines as cosines_of
from isobatch.laboratory.sections.lags import Lags
from isobatch.laboratory.sections.trust_region import EpochRow, TrustRegion
from isobatch.statistics.bootstrap import Estimate
from isobatch.studies import blog_post
from isobatch.studies import blog_post_measurements as measuring
from isobatch.studies.blog_post_claims import (
    alike_pairs,
    biased,
    clipping,
    geometry_rows,
    individual,
    lambda_at_lengths,
    less_extreme,
    like_two_trajectories,
    shuffled,
    small_covariance,
    trained,
    various_directions,
)
from isobatch.studies.blog_post_measurements import (
    LATE,
    LONG,
    SHORT,
    BatchNumbers,
    Bench,
    Coherence,
    OverLength,
    SeedReturns,
    Shuffling,
    difference_of_sets,
    opposed,
    paired_change,
    post_config,
)
from isobatch.studies.blog_post_results import PostResults, results_of
from isobatch.studies.judged_claims import above, below, differs, near
from isobatch.training.loading import load_run

VERDICTS = ["holds", "undecided", "does not hold"]


def test_what_it_keeps_is_read_back() -> None:
    for numbers in (
        batch_numbers(1.0),
        over_length(1.5, (2.0, 3.0)),
        coherence(),
        Shuffling(256, around(1.0), around(2.0), around(1.0)),
        results_of(measurements()),
    ):
        assert from_json(type(numbers), json.loads(json.dumps(to_json(numbers)))) == numbers


def test_it_trains_as_the_post_does() -> None:
    config = post_config()
    assert (config.env, config.num_envs, config.num_steps) == ("Pendulum-v1", 4, 256)
    assert config.num_iterations == LATE
    assert post_config(SHORT) == config.replace(num_envs=16, num_steps=64)


def test_rules_of_verdicts() -> None:
    """Above 0, below 0, near 0 and off 0; of several effects all must be, and one that is not is enough."""
    ends = ((0.01, 0.2), (-0.02, 0.03), (-0.02, 0.2), (-0.2, -0.1))
    effects = [Estimate((low + high) / 2, low, high) for low, high in ends]
    holds, undecided, fails = VERDICTS
    assert [above([each]) for each in effects] == [holds, undecided, undecided, fails]
    assert [below([each]) for each in effects] == [fails, undecided, undecided, holds]
    assert [near([each], 0.0) for each in effects] == [fails, holds, undecided, fails]
    assert [differs(each) for each in effects] == [holds, fails, undecided, holds]
    assert [above(effects[:2]), above(effects[2:]), near(effects[1:3], 0.0)] == [undecided, fails, undecided]
    assert above([Estimate(0.3)]) == near([Estimate(0.0)], 0.0) == undecided  # without an interval
    # The ratio of the effects of lambda that was measured first, and what lies near 1.
    assert near([Estimate(1.26, 1.06, 1.51)], 1.0) == fails
    assert [near([around(ratio)], 1.0) for ratio in (1.0, 1.03, 1.045, 0.9)] == [holds, holds, fails, fails]


def test_verdicts_follow_from_intervals() -> None:
    assert [individual(over_length(ratio)).verdict for ratio in (1.5, 1.05, 1.03, 0.9)] == [
        *("holds", "holds", "holds", "does not hold"),
    ]
    assert individual(over_length(1.0)).verdict == "does not hold"
    for effects, half, verdicts in (
        ((2.0, 2.0), 0.01, (0, 0)),
        ((3.0, 2.0), 0.01, (0, 2)),
        ((0.5, 0.5), 0.2, (0, 1)),
        ((2.0, 0.5), 0.01, (2, 2)),
        ((1.005, 1.005), 0.1, (1, 1)),
    ):
        claims = lambda_at_lengths(over_length(1.0, effects, half))
        assert [claim.verdict for claim in claims] == [VERDICTS[each] for each in verdicts], effects
    for difference, verdict in ((0.5, 0), (0.0, 2), (0.045, 0)):
        found = Shuffling(256, around(1.0), around(1.0), around(difference))
        assert shuffled(found).verdict == VERDICTS[verdict]
    wide = Shuffling(256, around(1.0), around(1.0), around(0.05, 0.1))
    assert shuffled(wide).verdict == "undecided"
    for cosine, verdict in ((0.5, 0), (0.95, 1), (0.99, 2)):
        row = EpochRow(4, around(cosine), around(1.0), around(0.1), around(0.01))
        assert clipping(TrustRegion("clip", 16, (row,))).verdict == VERDICTS[verdict]


def test_likeness_is_judged_against_two_trajectories_signed_and_absolute_and_as_a_covariance() -> None:
    for within, across, verdict in ((0.3, 0.2, 0), (0.3, 0.3, 1), (0.2, 0.3, 2)):
        for name, kind in (("direction", "mean"), ("line", "absolute")):
            claims = list(alike_pairs(name, kind, "cosine", "early", 390, sample_cosines(within, across)))
            assert [claim.verdict for claim in claims] == [VERDICTS[verdict]] * 2
            assert [len(claim.effects) for claim in claims] == [1, 2]  # neighbors, and farther ones
            assert all(f"across {across + 0.3 * (kind == 'absolute'):+.3f}" in claim.measured for claim in claims)
    for within, across, zero, baseline in ((0.0, 0.0, 0, 0), (0.3, 0.3, 2, 0), (0.3, 0.0, 2, 2), (0.045, 0.0, 2, 2)):
        section = lags_section(within, across)
        assert small_covariance(section, measurements().over_time).verdict == VERDICTS[zero]
        assert like_two_trajectories(section).verdict == VERDICTS[baseline]


def test_bias_is_that_of_the_shortest_rollouts() -> None:
    """Of 1 step against 256, whatever rollouts between them have."""
    rows = geometry_rows(measurements().last)
    for excess, verdict in ((0.5, 0), (0.0, 1), (-0.5, 2)):
        claim = biased(dataclasses.replace(over_length(), bias_excess=around(excess)), rows)
        assert claim.verdict == VERDICTS[verdict]
        assert claim.measured.startswith("squared bias at 1024x1 minus at 4x256: ")


def test_the_same_batches_are_compared_pair_by_pair() -> None:
    """What two lambda have in common cancels out, so their difference is told apart where their intervals overlap."""
    both = coherence(0.03, 0.01)
    assert both.mean(0.0).overlaps(both.mean(1.0))
    assert both.fall(0.0, 1.0).value == pytest.approx(0.02)
    assert various_directions(both).verdict == "holds"
    assert various_directions(coherence(0.01, 0.03)).verdict == "does not hold"
    before = batch_numbers(1.0)
    cosines = np.array(before.cosines)
    after = BatchNumbers(tuple(map(tuple, (0.95 * cosines).tolist())), before.variance)
    paired, apart = paired_change(before, after, np.abs), difference_of_sets(after, before, np.abs)
    assert paired.value == pytest.approx(apart.value) == pytest.approx(-0.05 * before.mean_of(np.abs).value)
    assert paired.high < 0 < apart.high
    batches = {f"{shape}, {lam}": each for shape in (LONG, SHORT) for lam, each in ((0, before), (1, after))}
    assert less_extreme(batches).verdict == "holds"


def test_gradients_that_are_opposed() -> None:
    """Of the three pairs one is opposed, by .6."""
    vectors = np.array([[1.0, 0.0], [-0.6, 0.8], [0.0, 1.0]])
    cosines = vectors @ vectors.T
    assert opposed(cosines)[np.triu_indices(3, 1)].tolist() == pytest.approx([0.6, 0.0, 0.0])


def test_each_claim_has_a_name_and_figure_3_has_two() -> None:
    claims = results_of(measurements()).claims
    assert len({claim.name for claim in claims}) == len(claims)
    assert [claim.name for claim in claims if claim.where == "figure 3"] == [
        *("aligned-own", "aligned-one", "opposed-own", "opposed-one"),
    ]
    assert [claim.name for claim in claims if not claim.where] == ["reset-together"]
    assert all(claim.effects and "nan" not in claim.measured and "|" not in claim.measured for claim in claims)


def test_settings_that_learn_alike_and_not() -> None:
    """Student's interval of seeds around .5 and .6, then of the same ones in another order."""
    rng = np.random.default_rng(0)
    long, short = (tuple(rng.normal(mean, 0.01, 8).tolist()) for mean in (0.5, 0.6))
    assert trained({LONG: SeedReturns(long, long), SHORT: SeedReturns(short, short)}).verdict == "holds"
    same = trained({LONG: SeedReturns(long, long), SHORT: SeedReturns(long[::-1], long[::-1])})
    assert same.verdict == "does not hold"
    assert "16x64 minus 4x256, 8 seeds each: 0 (" in same.measured


def test_a_piece_is_measured_once_and_read_from_then_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So what is killed loses the piece that it was in, and no more."""
    monkeypatch.setattr(measuring, "load_run", lambda path, checkpoint: checkpoint)
    monkeypatch.setattr(measuring, "subject_of", lambda loaded, options: loaded)
    monkeypatch.setattr(measuring, "key_of", lambda subject, iteration, name: {"of": subject, "name": name})
    calls = []

    def made(subject: object, parts: PartialResults) -> Shuffling:
        calls.append(subject)
        return Shuffling(256, around(1.0), around(2.0), around(1.0))

    def measured(name: str) -> Shuffling:
        bench = Bench(tmp_path, 0, lambda what, done: None, print)
        return bench.piece(LONG, LATE, name, Shuffling, made, 0.5)

    assert measured("one") == measured("one") == measured("two")
    assert calls == [str(LATE), str(LATE)]


def test_pieces_of_a_small_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured in small: what is paired agrees with what is not."""
    monkeypatch.setattr(measuring, "DIRECT_BATCHES", 4)
    write_run(tmp_path / "run", tiny(env="Pendulum-v1", num_envs=4, num_steps=256, total_timesteps=2048))
    options = LabOptions(chains=8, batches=4, geometries=LONG, budget=1024)
    subject = subject_of(load_run(tmp_path / "run", "newest"), options)
    both = measuring.coherence(subject, NOTHING_KEPT)
    for lam in (0.0, 1.0):
        alone = cosines_of(subject, lam).with_mean.means.mean
        assert both.mean(lam).value == pytest.approx(alone.value, rel=1e-5)
    lengths = measuring.over_length(subject, NOTHING_KEPT)
    assert lengths.bias_excess.low <= lengths.bias_excess.value <= lengths.bias_excess.high
    batches = measuring.batch_numbers(subject, 16, 64, 0.0, NOTHING_KEPT)
    assert 0 <= batches.mean_of(opposed).value <= batches.mean_of(np.abs).value <= 1
    lags = Lags.measure(subject, NOTHING_KEPT, lambda done: None)
    excess = [more.estimate.value for more in lags.excess]
    assert excess == pytest.approx([row.estimate.value - lags.across.value for row in lags.correlation])


class MadeUpBench:
    """Of `Bench` what `reproduce` asks for, with made-up numbers."""

    def __init__(self, *settings: object) -> None:
        self.options, self.measured = LabOptions(), measurements()

    def train(self, shape: str, share: float) -> SeedReturns:
        return self.measured.scores[shape]

    def cosines(self, iteration: int, lam: float) -> SampleCosines:
        return self.measured.late[lam] if iteration == LATE else self.measured.early

    def coherence(self) -> Coherence:
        return self.measured.coherence

    def batches(self, policy: str, shapes: tuple[str, ...]) -> dict[str, BatchNumbers]:
        return self.measured.batches if policy == LONG else self.measured.own_batches

    def over_length(self) -> OverLength:
        return self.measured.over_length

    def shuffling(self) -> Shuffling:
        return self.measured.shuffling

    def diagnose(self, folder: str, sections: str, *settings: object, **more: object) -> list[Diagnosis]:
        if sections == "lags":
            return self.measured.over_time
        return [self.measured.last if folder == "results" else self.measured.staggered]


def test_what_is_measured_becomes_claims_numbers_and_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blog_post, "Bench", MadeUpBench)
    report = blog_post.reproduce(tmp_path)
    assert report.results == results_of(measurements())
    assert from_json(PostResults, json.loads((tmp_path / "claims.json").read_text())) == report.results
    assert all(path.is_file() for path in report.pictures)
    names = {path.name for path in report.pictures}
    assert names >= {f"figure-{n}.png" for n in (1, "1-means", 2, 3, 4, 5, 6)} | {"000000440-geometries.png"}


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
