"""Layouts, and cosines between gradients against plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from isobatch.errors import UsageError
from isobatch.gradients.correlation import cosine_across, cosine_matrix, cosine_pairs, cosine_with_mean
from isobatch.gradients.layout import Layout, gram_of

RNG = np.random.default_rng(0)
TRAJECTORY = np.array([7, 7, 3, 3, 3, 7, 5, 5, 9, 9, 9, 9])
BATCH = np.array([0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4])
LAYOUT = Layout.of(TRAJECTORY, BATCH)
GRADIENTS = RNG.normal(0.5, 1.0, (12, 3))
GRAM = gram_of(GRADIENTS)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def centered() -> np.ndarray:
    return np.stack([g - GRADIENTS[b == BATCH].mean(axis=0) for g, b in zip(GRADIENTS, BATCH, strict=True)])


def test_layout_by_hand() -> None:
    assert LAYOUT.time.tolist() == [0, 1, 0, 1, 2, 2, 0, 1, 0, 1, 2, 3]
    assert LAYOUT.trajectory.tolist() == [2, 2, 0, 0, 0, 2, 1, 1, 3, 3, 3, 3]
    assert LAYOUT.batch_sizes.tolist() == [6, 6]
    assert LAYOUT.longest_lag == 3
    assert Layout.of(TRAJECTORY).batches == 4


@pytest.mark.parametrize("lag", [1, 2, 3])
def test_cosines_of_pairs(lag: int) -> None:
    d = centered()
    expected = [
        cosine(d[i], d[j])
        for i in range(12)
        for j in range(12)
        if LAYOUT.trajectory[i] == LAYOUT.trajectory[j] and LAYOUT.time[j] - LAYOUT.time[i] == lag
    ]
    np.testing.assert_allclose(np.sort(cosine_pairs(GRAM, LAYOUT, lag)), np.sort(expected))


def test_cosines_across() -> None:
    """Every pair of different trajectories of one batch turns up, equally often, and no other."""
    d = centered()
    expected = sorted(
        cosine(d[i], d[j])
        for i in range(12)
        for j in range(i)
        if BATCH[i] == BATCH[j] and TRAJECTORY[i] != TRAJECTORY[j]
    )
    found = cosine_across(GRAM, LAYOUT, count=20_000, seed=1)
    drawn, counts = np.unique(found.round(9), return_counts=True)
    np.testing.assert_allclose(drawn, expected, atol=1e-8)
    share = 1 / len(expected)
    assert np.all(np.abs(counts / 20_000 - share) < 4.5 * np.sqrt(share / 20_000))
    np.testing.assert_array_equal(found, cosine_across(GRAM, LAYOUT, count=20_000, seed=1))


def test_cosines_with_means() -> None:
    means = [GRADIENTS[:6].mean(axis=0), GRADIENTS[6:].mean(axis=0)]
    np.testing.assert_allclose(cosine_matrix(GRAM, LAYOUT), [[cosine(a, b) for b in means] for a in means])
    np.testing.assert_allclose(
        cosine_with_mean(GRAM, LAYOUT), [cosine(g, means[b]) for g, b in zip(GRADIENTS, LAYOUT.batch, strict=True)]
    )


def test_gradients_without_direction_are_left_out() -> None:
    """Two equal gradients are their own mean; a third that differs leaves one direction per side."""
    layout = Layout.of([0, 0, 1, 1, 1])
    gram = gram_of([[0.1, 0.7], [0.1, 0.7], [1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    np.testing.assert_allclose(cosine_pairs(gram, layout, 1), [-1.0])
    assert np.isnan(cosine_with_mean(np.zeros((5, 5)), layout)).all()


def test_refused_layouts() -> None:
    with pytest.raises(UsageError, match="two batches"):
        Layout.of([0, 0], [0, 1])
    with pytest.raises(UsageError, match="time repeats"):
        Layout.of([0, 0], time=[3, 3])
    with pytest.raises(UsageError, match="one number per sample"):
        Layout.of([0, 0, 1], [0, 0])
    with pytest.raises(UsageError, match="one number per sample"):
        Layout.of([])
    with pytest.raises(UsageError, match="lag = 4: trajectories here have lags from 1 to 3"):
        cosine_pairs(GRAM, LAYOUT, 4)
    with pytest.raises(UsageError, match="lag = 0"):
        cosine_pairs(GRAM, LAYOUT, 0)
    with pytest.raises(UsageError, match="pairs across need two"):
        cosine_across(GRAM, Layout.of(TRAJECTORY))
