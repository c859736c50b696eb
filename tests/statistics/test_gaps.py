"""Gaps between batch sizes, beside those that chance alone gives."""

from __future__ import annotations

import numpy as np
import pytest

from isobatch.statistics.comparisons import gap


def test_gap_by_hand() -> None:
    """Means over two environments: (1 + 3)/2, (2 + 2)/2 and (5 + 1)/2, so 2, 2 and 3: a gap of 1."""
    sizes = {"1": {"a": [0, 2], "b": [3, 3]}, "4": {"b": [2, 2], "a": [2, 2]}, "16": {"a": [4, 6], "b": [0, 1, 2]}}
    found = gap(sizes)
    assert found.value.value == pytest.approx(1)
    assert found.means == pytest.approx({"1": 2, "4": 2, "16": 3})
    for env, width in (("a", 4), ("b", 2)):
        assert gap({size: {env: scores[env]} for size, scores in sizes.items()}).value.value == pytest.approx(width)


def test_gap_by_chance_equals_enumeration() -> None:
    """Two sizes of two seeds, 0 1 and 2 3: of 6 splits 2 give a gap of 2, 2 of 1 and 2 of 0."""
    found = gap({"1": {"a": [0, 1]}, "4": {"a": [2, 3]}}, permutations=20000)
    assert found.value.value == 2
    assert found.by_chance.value == pytest.approx(1, abs=0.03)
    assert found.p == pytest.approx(1 / 3, abs=0.02)


def test_gap_of_alike_and_of_unlike_sizes() -> None:
    """Alike sizes: the gap is positive, yet no larger than chance gives; a size apart shows."""
    rng = np.random.default_rng(3)
    alike = [gap({str(r): rng.standard_normal((3, 4)) for r in range(4)}, 0, 200) for _ in range(200)]
    assert np.mean([found.value.value for found in alike]) == pytest.approx(
        np.mean([found.by_chance.value for found in alike]), rel=0.1
    )
    assert 0.01 < np.mean([found.p <= 0.05 for found in alike]) < 0.1
    unlike = gap({str(r): rng.standard_normal((3, 4)) + 5 * (r == 3) for r in range(4)})
    assert unlike.value.low > unlike.by_chance.high
    assert unlike.p < 0.01
