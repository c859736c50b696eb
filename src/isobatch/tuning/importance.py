"""Which settings mattered: how much of the trials' order each of them explains by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from isobatch.tuning.ranges import Choice, SearchRange
from isobatch.tuning.trials import Trial

BINS = 5  # equally many trials in each


def importance(trials: Sequence[Trial], ranges: Mapping[str, SearchRange]) -> dict[str, float]:
    """Share of the variance of the trials' ranks between bins of a setting, largest first.

    eta^2 = between / total sum of squares, less what chance gives: 1 - (1 - eta^2) (n - 1) / (n - bins), at least 0.
    What settings explain only together is in none of them, so the shares need not add up to 1.
    """
    ranks = np.asarray(stats.rankdata([trial.worth for trial in trials]))
    shares = {name: share(ranks, bins_of(trials, each)) for name, each in ranges.items()}
    return dict(sorted(shares.items(), key=lambda pair: -pair[1]))


def bins_of(trials: Sequence[Trial], each: SearchRange) -> np.ndarray:
    """The bin of every trial: that of its choice, or a fifth of the trials in the order of their values."""
    values = [trial.settings[each.name] for trial in trials]
    if isinstance(each, Choice):
        return np.array([each.values.index(value) if value in each.values else -1 for value in values])
    places = np.array([each.place(float(value)) for value in values])  # type: ignore[arg-type]
    middle = np.asarray(stats.rankdata(places)) - 0.5  # equal values share a bin
    return middle * BINS // len(places)


def share(ranks: np.ndarray, bins: np.ndarray) -> float:
    groups = [ranks[bins == bin] for bin in np.unique(bins)]
    total = float(np.sum((ranks - ranks.mean()) ** 2))
    if total == 0 or len(groups) < 2 or len(ranks) <= len(groups):
        return 0.0
    within = float(sum(np.sum((group - group.mean()) ** 2) for group in groups))
    return max(0.0, 1 - within / total * (len(ranks) - 1) / (len(ranks) - len(groups)))
