"""Bootstrap, bias, noise scale, subsampling and aggregations of gradients."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from tiny_mdp import expectation, trajectories

from isobatch.errors import UsageError
from isobatch.gradients.aggregations import compare
from isobatch.gradients.bias import mean_squared_error, squared_bias
from isobatch.gradients.layout import gram_of
from isobatch.gradients.noise import noise_scale, smooth, two_batch_sizes
from isobatch.gradients.subsampling import minibatch_variance, row_variance
from isobatch.statistics.bootstrap import Estimate, estimate, pair_mean, resample, triple_mean, unit_mean

RNG = np.random.default_rng(0)


def test_means_by_plain_loops() -> None:
    """Counts stand for copies of units, and copies of one unit never meet."""
    x, m, w = RNG.standard_normal(5), gram_of(RNG.standard_normal((5, 2))), np.array([2, 0, 1, 1, 1])
    copies = np.repeat(np.arange(5), w)
    np.testing.assert_allclose(unit_mean(x, w), np.mean(x[copies]))
    np.testing.assert_allclose(pair_mean(m, w), np.mean([m[u, v] for u in copies for v in copies if u != v]))
    triples = [x[u] * m[v, t] for u in copies for v in copies for t in copies if u != v != t != u]
    np.testing.assert_allclose(triple_mean(x, m, w), np.mean(triples))


def test_means_over_many_resamples_at_once() -> None:
    x, m, w = RNG.standard_normal((5, 3)), gram_of(RNG.standard_normal((5, 2))), resample(5, 6) + 1
    np.testing.assert_allclose(unit_mean(x, w), [unit_mean(x, row) for row in w])
    np.testing.assert_allclose(pair_mean(m, w), [pair_mean(m, row) for row in w])
    np.testing.assert_allclose(triple_mean(x[:, 0], m, w), [triple_mean(x[:, 0], m, row) for row in w])


def test_resamples_hold_all_units_and_repeat_with_the_seed() -> None:
    assert np.all(resample(7, 50).sum(axis=1) == 7)
    np.testing.assert_array_equal(resample(7, seed=3), resample(7, seed=3))
    assert np.any(resample(7, seed=3) != resample(7, seed=4))
    first, again = (squared_bias(gram_of(np.arange(12.0).reshape(6, 2)), seed=1) for _ in range(2))
    assert first == again


def test_estimates() -> None:
    """The standard error of the mean of 400 standard normals is .05, and the interval about twice that."""
    x = np.random.default_rng(1).standard_normal(400)
    found = estimate(lambda w: unit_mean(x, w), 400, distinct=1)
    assert found.value == pytest.approx(x.mean())
    np.testing.assert_allclose((found.high - found.low) / 2, 1.96 * 0.05, rtol=0.1)
    assert str(Estimate(1.0, 0.5, 2.25)) == "1 [0.5, 2.25]"
    assert str(Estimate(1.0)) == "1"
    with pytest.raises(UsageError, match="episodes = 3: an estimate with an interval needs at least 4"):
        estimate(lambda w: unit_mean(x[:3], w), 3, what="episodes")


def test_interval_of_a_mean_covers() -> None:
    rng, covered = np.random.default_rng(2), 0
    for repetition in range(200):
        x = rng.standard_normal(25)
        found = estimate(lambda w, x=x: unit_mean(x, w), 25, resamples=300, seed=repetition, distinct=1)
        covered += found.low <= 0 <= found.high
    assert 170 <= covered <= 200


def test_squared_bias_is_unbiased() -> None:
    """Returns cut after one step, with a wrong value function, against whole ones: over all sets of 3 trajectories."""
    kinds = trajectories()
    differences = [k.bootstrapped.mean(axis=0) - k.gradients.mean(axis=0) for k in kinds]
    exact = np.sum(sum(k.probability * d for k, d in zip(kinds, differences, strict=True)) ** 2)

    def statistic(chosen: list) -> np.ndarray:
        rows = [k.bootstrapped.mean(axis=0) - k.gradients.mean(axis=0) for k in chosen]
        return np.array(squared_bias(gram_of(rows), resamples=0).value)

    assert exact > 0.01
    np.testing.assert_allclose(expectation(kinds, 3, statistic), exact, rtol=0, atol=1e-10)


def test_squared_bias_of_groups_and_of_none() -> None:
    rows = RNG.standard_normal((8, 3))
    by_pairs = squared_bias(gram_of(rows), groups=[0, 0, 1, 1, 2, 2, 3, 3])
    assert by_pairs.value == pytest.approx(squared_bias(gram_of(rows.reshape(4, 2, 3).mean(axis=1))).value)
    pure_noise = squared_bias(gram_of(np.random.default_rng(3).standard_normal((40, 30))))
    assert pure_noise.low == 0 < pure_noise.high
    with pytest.raises(UsageError, match="groups has shape"):
        squared_bias(np.eye(4), groups=[0, 1])
    with pytest.raises(UsageError, match="needs at least 4"):
        squared_bias(np.eye(3))


def test_mean_squared_error() -> None:
    found = mean_squared_error(Estimate(10.0, 7.0, 14.0), Estimate(2.0, -2.0, 5.0))
    assert (found.value, found.low, found.high) == (12.0, 7.0, 17.0)
    assert mean_squared_error(Estimate(1.0, 0.1, 2.0), Estimate(-0.1, 0.0, 0.2)).low == 0
    assert np.isnan(mean_squared_error(Estimate(1.0), Estimate(2.0)).low)


def test_a_cosine_free_of_noise_stays_within_1() -> None:
    """Episodes without a common direction: of the three inner products each may be anything, and so their ratio."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        found = compare(gram_of(rng.normal(size=(12, 3))), rng.integers(1, 9, 12), 3).expected_cosine
        for each in (found.value, found.low, found.high):
            assert np.isnan(each) or -1 <= each <= 1


def test_signal_and_noise_are_unbiased() -> None:
    kinds = trajectories()
    means = [k.gradients.mean(axis=0) for k in kinds]
    signal = np.sum(sum(k.probability * g for k, g in zip(kinds, means, strict=True)) ** 2)
    noise = 2 * (sum(k.probability * g @ g for k, g in zip(kinds, means, strict=True)) - signal)

    def statistic(chosen: list) -> np.ndarray:
        found = noise_scale(gram_of([k.gradients.mean(axis=0) for k in chosen]), samples_per_unit=2, resamples=0)
        return np.array([found.signal.value, found.noise.value])

    np.testing.assert_allclose(expectation(kinds, 3, statistic), [signal, noise], rtol=0, atol=1e-10)


def test_noise_scale_of_normals() -> None:
    """100 parameters: |G|^2 = 100 x .2^2 = 4, and 8 samples of variance 1 a unit: S = 100, critical batch 25."""
    rng = np.random.default_rng(4)
    found = noise_scale(gram_of(0.2 + 8**-0.5 * rng.standard_normal((200, 100))), 8)
    for part, truth in ((found.signal, 4.0), (found.noise, 100.0), (found.critical_batch, 25.0)):
        assert part.low < truth < part.high
    lost = noise_scale(gram_of(rng.standard_normal((20, 100))), 8)
    assert lost.critical_batch.high == np.inf
    with pytest.raises(UsageError, match="samples_per_unit = 0"):
        noise_scale(np.eye(4), 0)


def test_two_batch_sizes_by_hand() -> None:
    """E|G_B|^2 = |G|^2 + S/B. With |G|^2 = 3 and S = 40: 13 at B = 4 and 5 at B = 20, and back."""
    np.testing.assert_allclose(two_batch_sizes(13.0, 5.0, 4, 20), [3.0, 40.0])
    with pytest.raises(UsageError, match="0 < small < big"):
        two_batch_sizes(1.0, 1.0, 4, 4)


def test_smoothing_by_hand() -> None:
    """decay 1/2: after 4, 1 the mean is (4/2 + 1)/(1/2 + 1) = 2; after 8, 2 it is 4."""
    signal, noise, critical = smooth([4.0, 1.0, -9.0], [8.0, 2.0, 4.0], decay=0.5)
    np.testing.assert_allclose(signal[:2], [4.0, 2.0])
    np.testing.assert_allclose(noise[:2], [8.0, 4.0])
    np.testing.assert_allclose(critical, [2.0, 2.0, np.inf])
    with pytest.raises(UsageError, match="decay = 1"):
        smooth([1.0], [1.0], decay=1)


@pytest.mark.parametrize("size", [1, 2, 5, 6])
def test_minibatch_variance_equals_enumeration(size: int) -> None:
    g = RNG.normal(2.0, 1.0, (6, 3))
    spread = [np.sum((g[list(chosen)].mean(axis=0) - g.mean(axis=0)) ** 2) for chosen in combinations(range(6), size)]
    np.testing.assert_allclose(minibatch_variance(gram_of(g), size), np.mean(spread), atol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_row_variance_equals_enumeration(count: int) -> None:
    g = RNG.standard_normal((4, 5, 3))
    spread = [np.sum((g[list(c)].mean(axis=(0, 1)) - g.mean(axis=(0, 1))) ** 2) for c in combinations(range(4), count)]
    found = row_variance(gram_of(g.reshape(20, 3)), np.repeat(np.arange(4), 5), count)
    np.testing.assert_allclose(found, np.mean(spread), atol=1e-12)


def test_refused_minibatches() -> None:
    for size in (0, 7):
        with pytest.raises(UsageError, match=f"size = {size} samples: a minibatch takes 1 to 6"):
            minibatch_variance(np.eye(6), size)
    with pytest.raises(UsageError, match="equal length"):
        row_variance(np.eye(3), [0, 0, 1], 1)
    with pytest.raises(UsageError, match="rows has shape"):
        row_variance(np.eye(3), [0, 0], 1)


def test_aggregations_of_equal_lengths_agree() -> None:
    found = compare(gram_of(RNG.standard_normal((20, 4)) + 2), np.full(20, 7), 4)
    for cosine in (*found.cosines.values(), found.expected_cosine):
        np.testing.assert_allclose([cosine.value, cosine.low, cosine.high], 1.0)
    assert found.factor_mean.value == pytest.approx(1 / 7)
    assert found.factor_deviation.value == pytest.approx(0.0, abs=1e-12)


def test_aggregations_by_hand() -> None:
    """Batches (1, 3) and (2, 6): factors 2/4 and 2/8, so mean 3/8 and deviation sqrt(2) / 8. The last is left over."""
    sums, lengths = RNG.standard_normal((5, 3)), np.array([1, 3, 2, 6, 9])
    found = compare(gram_of(sums), lengths, 2)
    assert found.batches == 2
    assert found.factor_mean.value == pytest.approx(3 / 8)
    assert found.factor_deviation.value == pytest.approx(2**0.5 / 8)
    assert found.factor_variation.value == pytest.approx(2**0.5 / 3)
    assert np.isnan(found.factor_mean.low)
    for pair in (("timestep", "trajectory"), ("timestep", "constant"), ("trajectory", "constant")):
        assert found.cosines[pair].value == pytest.approx(1.0)
    cosines = []
    for i in (slice(0, 2), slice(2, 4)):
        whole, mean = sums[i].sum(axis=0), (sums[i] / lengths[i, None]).sum(axis=0)
        cosines.append(whole @ mean / np.linalg.norm(whole) / np.linalg.norm(mean))
    assert found.cosines["trajectory", "trajectory-mean"].value == pytest.approx(np.mean(cosines))


def test_expected_directions() -> None:
    """Episodes of 1 step along x and of 3 along y, half each: E[sum] ~ (1, 3), E[mean] ~ (1, 1), cosine 4/sqrt 20."""
    rng = np.random.default_rng(5)
    long = rng.integers(2, size=400)
    sums = np.where(long[:, None], [0.0, 3.0], [1.0, 0.0]) + 0.5 * rng.standard_normal((400, 2))
    found = compare(gram_of(sums), 1 + 2 * long, 10).expected_cosine
    assert found.low < 4 / 20**0.5 < found.high
    assert found.high - found.low < 0.1


def test_refused_aggregations() -> None:
    with pytest.raises(UsageError, match="no episode ended within the horizon"):
        compare(np.zeros((0, 0)), [], 2)
    with pytest.raises(UsageError, match="fewer than 2 batches"):
        compare(np.eye(3), [1, 2, 3], 2)
    with pytest.raises(UsageError, match="at least 1 step"):
        compare(np.eye(2), [1, 0], 1)
