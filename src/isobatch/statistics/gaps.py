"""How far apart are the scores at several batch sizes? Scores as in `aggregates`, best normalized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from isobatch.errors import UsageError
from isobatch.statistics.aggregates import Groups, Scores, score_table, stratified
from isobatch.statistics.bootstrap import Estimate, percentile_interval
from isobatch.statistics.comparisons import same_environments


@dataclass(frozen=True)
class Gap:
    """Largest minus smallest mean over batch sizes, what chance alone would give, and the chance of one so large."""

    value: Estimate
    by_chance: Estimate
    p: float
    means: dict[str, float]


def gap(sizes: Mapping[str, Scores], resamples: int = 1000, permutations: int = 1000, seed: int = 0) -> Gap:
    """max_b M_b - min_b M_b over batch sizes b, with M_b the mean over environments of the mean over seeds.

    `sizes` maps names of batch sizes, or of other variants, to scores. Noise alone makes the gap positive: the largest
    minus the smallest of noisy means is biased upwards, and redrawing seeds adds to that, so its interval stays above
    0 even where the sizes do not differ. Compare it with `by_chance`: the mean, and the middle 95 %, when seeds change
    sizes at random within each environment, as they may if the sizes do not differ. `p` is the share of these
    permutations, the observed one among them, with a gap as large.
    """
    tables, envs = score_tables(sizes)
    if permutations < 1:
        raise UsageError(f"permutations = {permutations}: give 1 or more")
    groups = [table[env] for table in tables.values() for env in envs]

    def means(groups: Groups) -> np.ndarray:
        """[sizes, ...]"""
        each = np.array([np.mean(x, axis=-1) for x in groups])
        return each.reshape(len(tables), len(envs), *each.shape[1:]).mean(axis=1)

    def width(groups: Groups) -> np.ndarray:
        return np.ptp(means(groups), axis=0)

    value = stratified(width, groups, resamples, seed)
    chance = width(shuffle(groups, len(envs), permutations, seed))
    as_wide = np.count_nonzero(chance >= value.value * (1 - 1e-9))  # sums of the same scores in another order
    by_size = dict(zip(tables, means(groups).tolist(), strict=True))
    return Gap(value, percentile_interval(float(np.mean(chance)), chance), (1 + as_wide) / (1 + len(chance)), by_size)


def shuffle(groups: Groups, environments: int, times: int, seed: int) -> list[np.ndarray]:
    """Groups [n], size by size, as [times, n] after permutations of each environment's scores over its sizes."""
    rng, shuffled = np.random.default_rng(seed), list(groups)
    for e in range(environments):
        in_env = groups[e::environments]
        mixed = rng.permuted(np.tile(np.concatenate(in_env), (times, 1)), axis=1)
        shuffled[e::environments] = np.split(mixed, np.cumsum([len(x) for x in in_env])[:-1], axis=1)
    return shuffled


def score_tables(sizes: Mapping[str, Scores]) -> tuple[dict[str, dict[str, np.ndarray]], list[str]]:
    """Batch size -> environment -> scores, and the environments, which all sizes share."""
    tables = {name: score_table(scores) for name, scores in sizes.items()}
    if len(tables) < 2:
        raise UsageError(f"sizes = {list(tables)}: a gap needs at least 2 of them")
    envs = list(next(iter(tables.values())))
    for name, table in tables.items():
        same_environments(envs, table, f"sizes[{name!r}]")
    return tables, envs
