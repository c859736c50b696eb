"""How far apart are the rungs of a ladder of batch sizes? Scores as in `statistics`, best normalized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from isobatch.errors import UsageError
from isobatch.statistics.bootstrap import Estimate, with_interval
from isobatch.statistics.comparisons import same_environments
from isobatch.statistics.tests import Groups, Scores, score_table, stratified


@dataclass(frozen=True)
class Gap:
    """Largest less smallest mean over a ladder, what chance alone would give, and the chance of one so large."""

    value: Estimate
    by_chance: Estimate
    p: float
    means: dict[str, float]


def gap(ladder: Mapping[str, Scores], resamples: int = 1000, permutations: int = 1000, seed: int = 0) -> Gap:
    """max_r M_r - min_r M_r over rungs r, with M_r the mean over environments of the mean over seeds.

    Noise alone makes it positive: the largest less the smallest of noisy means is biased upwards, and redrawing seeds
    adds to that, so its interval stays above 0 even where the rungs do not differ. Compare it with `by_chance`: the
    mean, and the middle 95 %, when seeds change rungs at random within each environment, as they may if the rungs do
    not differ. `p` is the share of these permutations, the observed one among them, with a gap as large.
    """
    tables, envs = rungs(ladder)
    if permutations < 1:
        raise UsageError(f"permutations = {permutations}: give 1 or more")
    groups = [table[env] for table in tables.values() for env in envs]

    def means(groups: Groups) -> np.ndarray:
        """[rungs, ...]"""
        each = np.array([np.mean(x, axis=-1) for x in groups])
        return each.reshape(len(tables), len(envs), *each.shape[1:]).mean(axis=1)

    def width(groups: Groups) -> np.ndarray:
        return np.ptp(means(groups), axis=0)

    value = stratified(width, groups, resamples, seed)
    chance = width(shuffle(groups, len(envs), permutations, seed))
    as_wide = np.count_nonzero(chance >= value.value * (1 - 1e-9))  # sums of the same scores in another order
    by_rung = dict(zip(tables, means(groups).tolist(), strict=True))
    return Gap(value, with_interval(float(np.mean(chance)), chance), (1 + as_wide) / (1 + len(chance)), by_rung)


def shuffle(groups: Groups, environments: int, times: int, seed: int) -> list[np.ndarray]:
    """Groups [n], rung by rung, as [times, n] after permutations of each environment's scores over its rungs."""
    rng, shuffled = np.random.default_rng(seed), list(groups)
    for e in range(environments):
        own = groups[e::environments]
        mixed = rng.permuted(np.tile(np.concatenate(own), (times, 1)), axis=1)
        shuffled[e::environments] = np.split(mixed, np.cumsum([len(x) for x in own])[:-1], axis=1)
    return shuffled


def gaps(
    ladder: Mapping[str, Scores], resamples: int = 1000, permutations: int = 1000, seed: int = 0
) -> dict[str, Gap]:
    """`gap` of each environment by itself."""
    tables, envs = rungs(ladder)
    return {
        env: gap({rung: {env: table[env]} for rung, table in tables.items()}, resamples, permutations, seed)
        for env in envs
    }


def rungs(ladder: Mapping[str, Scores]) -> tuple[dict[str, dict[str, np.ndarray]], list[str]]:
    """Rung -> environment -> scores, and the environments, which all rungs share."""
    tables = {rung: score_table(scores) for rung, scores in ladder.items()}
    if len(tables) < 2:
        raise UsageError(f"ladder = {list(tables)}: a gap needs at least 2 rungs")
    envs = list(next(iter(tables.values())))
    for rung, table in tables.items():
        same_environments(envs, table, f"rung {rung!r}")
    return tables, envs
