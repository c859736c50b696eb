"""The decomposition of the variance: unbiased by enumeration of every data set, and its terms add up."""

from __future__ import annotations

import re
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_mdp import Batch, Outcome, batches_of, exact_terms, expectation, stacked, trajectories

from isobatch.errors import UsageError
from isobatch.gradients.correlation import across_correlation, lag_correlation
from isobatch.gradients.layout import gram_of, mean_gram
from isobatch.gradients.pairs import pair_sums, pair_sums_of
from isobatch.gradients.variance import Decomposition, decompose, decompose_sums, direct_variance
from isobatch.statistics.aggregates import skewed_mean

ROOT = Path(__file__).parents[2]
COVERAGE = runpy.run_path(str(ROOT / "benchmarks" / "interval_coverage.py"))
IN_SHORT = ("1 dimension", "6 dimensions", "lognormal lengths, sigma .5", "lognormal lengths, sigma 1")  # in the docs

PROBLEMS: dict[str, list[Outcome]] = {
    "one trajectory": batches_of(1, trajectories()),
    "two trajectories": batches_of(2, trajectories(random=False)),
    "unequal lengths": batches_of(2, trajectories(ends=True, random=False)),
    "shared start": [o for s in (0, 1) for o in batches_of(2, trajectories(s, random=False), chance=0.3 + 0.4 * s)],
    "shared start, unequal lengths": [
        o for s in (0, 1) for o in batches_of(2, trajectories(s, ends=True, random=False), chance=0.3 + 0.4 * s)
    ],
}
NAMES = ("total", "individual", "across", "sample_variance")


def decomposition(batches: list[Batch], resamples: int = 0) -> Decomposition:
    gradients, layout = stacked(batches)
    return decompose(gram_of(gradients), layout, resamples=resamples)


def values(found: Decomposition) -> np.ndarray:
    """By name, then lag 1, which is absent where all trajectories are of length 1."""
    return np.array([*(getattr(found, n).value for n in NAMES), dict(found.by_lag)[1].value if found.by_lag else 0.0])


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_term_is_unbiased(problem: str) -> None:
    """The mean over all data sets of three batches is the truth."""
    outcomes = PROBLEMS[problem]
    exact = exact_terms(outcomes, longest=1)
    found = expectation(outcomes, 3, lambda chosen: values(decomposition([o.batch for o in chosen])))
    np.testing.assert_allclose(sum(o.probability for o in outcomes), 1.0)
    np.testing.assert_allclose(found, [exact[n] for n in (*NAMES, 1)], rtol=0, atol=1e-10)


def test_trajectories_that_share_their_start_are_correlated() -> None:
    assert abs(exact_terms(PROBLEMS["two trajectories"], 1)["across"]) < 1e-12
    exact = exact_terms(PROBLEMS["shared start"], 1)
    assert exact["across"] > 0.05 * exact["total"]


@pytest.mark.parametrize("problem", ["shared start", "shared start, unequal lengths"])
def test_many_batches_come_near_the_truth(problem: str) -> None:
    outcomes = PROBLEMS[problem]
    exact, rng = exact_terms(outcomes, longest=1), np.random.default_rng(0)
    chance = [o.probability for o in outcomes]
    found = [
        values(decomposition([outcomes[i].batch for i in rng.choice(len(outcomes), 12, p=chance)])) for _ in range(300)
    ]
    mean, error = np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(len(found))
    assert np.all(np.abs(mean - [exact[n] for n in (*NAMES, 1)]) < 4 * error)


def random_batches(seed: int = 0) -> list[Batch]:
    rng = np.random.default_rng(seed)
    return [[rng.normal(1.0, 1.0, (rng.integers(1, 6), 3)) for _ in range(4)] for _ in range(6)]


def test_terms_add_up_to_the_direct_estimate() -> None:
    gradients, layout = stacked(random_batches())
    found = decompose(gram_of(gradients), layout, resamples=0)
    direct = direct_variance(mean_gram(gram_of(gradients), layout.batch), interval=False)
    np.testing.assert_allclose(found.total.value, direct.value)
    np.testing.assert_allclose(found.individual.value + found.covariance.value, direct.value)
    np.testing.assert_allclose(found.within.value + found.across.value, found.covariance.value)
    np.testing.assert_allclose(sum(e.value for _, e in found.by_lag), found.within.value)
    np.testing.assert_allclose(
        direct.value, np.var(np.stack([np.concatenate(b).mean(0) for b in random_batches()]), 0, ddof=1).sum()
    )


def test_sums_from_gradients_and_from_their_gram_agree() -> None:
    gradients, layout = stacked(random_batches())
    by_gram, directly = pair_sums(gram_of(gradients), layout), pair_sums_of(gradients.astype(np.float32), layout)
    assert decompose_sums(by_gram, [1, 2]).by_lag == decompose(gram_of(gradients), layout, [1, 2]).by_lag
    for name in ("products", "crossed", "counts", "sizes", "batch_gram"):
        np.testing.assert_allclose(getattr(directly, name), getattr(by_gram, name), rtol=1e-5, atol=1e-5)
    with pytest.raises(UsageError, match="one row for each"):
        pair_sums_of(gradients[1:], layout)


def test_order_of_samples_does_not_matter() -> None:
    gradients, layout = stacked(random_batches())
    shuffled = np.random.default_rng(1).permutation(len(gradients))
    other = replace(layout, **{n: getattr(layout, n)[shuffled] for n in ("batch", "trajectory", "time")})
    np.testing.assert_allclose(
        values(decompose(gram_of(gradients[shuffled]), other, resamples=0)),
        values(decompose(gram_of(gradients), layout, resamples=0)),
    )


@pytest.mark.parametrize("copies", [1, 4])
def test_effective_samples(copies: int) -> None:
    """Of 16 samples, each `copies` times over, 16 / copies count."""
    rng = np.random.default_rng(2)
    batches = [
        [np.repeat(rng.standard_normal((4 // copies, 200)), copies, axis=0) for _ in range(4)] for _ in range(12)
    ]
    found = decomposition(batches, resamples=400)
    assert found.effective_samples.low < 16 / copies < found.effective_samples.high
    assert found.effective_samples.high - found.effective_samples.low < 6
    sums = pair_sums(gram_of(stacked(batches)[0]), stacked(batches)[1])
    across, (_, first) = across_correlation(sums), lag_correlation(sums, [1])[0]
    assert across.low < 0 < across.high
    assert first.low <= (copies == 4) <= first.high


def test_a_batch_of_one_sample_repeated_counts_as_one() -> None:
    rng = np.random.default_rng(3)
    found = decomposition([[np.repeat(rng.standard_normal((1, 3)), 5, axis=0)] for _ in range(6)])
    np.testing.assert_allclose(found.effective_samples.value, 1.0)


def test_correlation_of_a_moving_average() -> None:
    """g_t = (e_t + e_{t+1})/sqrt 2 has correlation 1/2 at lag 1 and 0 at lag 2; half a shared term across."""
    rng = np.random.default_rng(4)
    shared = [rng.standard_normal((1, 50)) for _ in range(80)]
    noise = [[rng.standard_normal((7, 50)) for _ in range(3)] for _ in range(80)]
    batches = [[(e[1:] + e[:-1]) / 2**0.5 + s for e in batch] for batch, s in zip(noise, shared, strict=True)]
    gradients, layout = stacked(batches)
    sums = pair_sums_of(gradients + 3.0, layout)
    (_, first), (_, second) = lag_correlation(sums, [1, 2])
    np.testing.assert_allclose([first.value, second.value, across_correlation(sums).value], [0.75, 0.5, 0.5], atol=0.03)
    assert first.low < 0.75 < first.high
    assert second.low < 0.5 < second.high


def test_interval_of_the_variance_by_hand() -> None:
    """0, 0, 0, 4: variance 4, without a 0 16/3, without the 4 it is 0: pseudo-values 4 * 4 - 3 * 16/3 = 0 three times
    and 16, the numbers 0, 0, 0, 4 of `test_a_mean_of_skewed_numbers_by_hand` times 4."""
    found = direct_variance(gram_of([[0.0], [0.0], [0.0], [4.0]]))
    ends = skewed_mean(np.array([0.0, 0.0, 0.0, 16.0]))
    np.testing.assert_allclose([found.value, found.high], [4.0, ends.high])
    assert found.low == 0 > ends.low  # a variance is not negative


@pytest.mark.parametrize("problem", COVERAGE["PROBLEMS"])
def test_interval_covers_the_true_variance_as_often_as_the_page_says(problem: str) -> None:
    """And, but for the heaviest tails, by 91 to 97 % of the simulations from eight batches on."""
    page = (ROOT / "benchmarks" / "results" / "interval-coverage.md").read_text()
    rows = dict(re.findall(rf"\| {re.escape(problem)} \| (\d+) \| .* \| (\d+) % \|", page))
    assert list(map(int, rows)) == list(COVERAGE["UNITS"])
    for units in (4, 8, 16):
        said, number = int(rows[str(units)]) / 100, 300
        found = COVERAGE["coverage"](problem, units, number, "jackknife, skewness (taken)")
        assert abs(found - said) < 0.005 + 3 * (said * (1 - said) / number) ** 0.5
        assert units < 8 or problem.startswith("lognormal") or 0.91 <= said <= 0.97
    in_short = "{}, {}, {} and {} %".format(*rows.values())
    assert (in_short in (ROOT / "docs" / "gradients.md").read_text()) == (problem in IN_SHORT)


def test_too_few_batches() -> None:
    gradients, layout = stacked(random_batches()[:3])
    assert np.isnan(decompose(gram_of(gradients), layout, resamples=0).total.low)
    with pytest.raises(UsageError, match="batches = 3: an estimate with an interval needs at least 4"):
        decompose(gram_of(gradients), layout)
    with pytest.raises(UsageError, match="needs at least 3"):
        decompose(*(lambda g, l: (gram_of(g), l))(*stacked(random_batches()[:2])), resamples=0)
    with pytest.raises(UsageError, match="needs at least 4 independent batches"):
        direct_variance(np.eye(3))
    np.testing.assert_allclose(direct_variance(np.eye(2), interval=False).value, 1.0)


def test_refused_lags_and_shapes() -> None:
    gradients, layout = stacked(random_batches())
    with pytest.raises(UsageError, match="lag = 9"):
        decompose(gram_of(gradients), layout, lags=[9])
    with pytest.raises(UsageError, match="gram has shape"):
        decompose(gradients, layout)
    with pytest.raises(UsageError, match="pairs across"):
        across_correlation(pair_sums(gram_of(gradients), replace(layout, batch=layout.trajectory)))
