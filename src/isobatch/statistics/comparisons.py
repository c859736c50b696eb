"""Is X better than Y, environment by environment and over all? How far apart are several batch sizes?

Scores are as in `aggregates`, best normalized.

The paper's own figure for invariance, 0.052 between the largest and the smallest batch, is `difference` of the two;
`gap` looks at all batch sizes. To test an ablation, give `van_elteren` the scores with and without it at
one batch size: at the base all rules are idle, and differences to base runs that both sides share would not be
independent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import comb, prod

import numpy as np
from scipy import stats

from isobatch.errors import UsageError
from isobatch.statistics.aggregates import Groups, Scores, contrast, score_table, stratified
from isobatch.statistics.bootstrap import Estimate, percentile_interval

LEVEL = 0.001  # the paper's


@dataclass(frozen=True)
class Difference:
    """mean(X) - mean(Y) with Student's interval and its standard error."""

    value: Estimate
    error: float


@dataclass(frozen=True)
class StratifiedTest:
    """A standard normal statistic and p-values for X greater than Y, smaller, or either."""

    z: float
    greater: float
    less: float
    two_sided: float
    least: float  # the smallest one-sided p-value that a permutation test could give with so few seeds


@dataclass(frozen=True)
class Family:
    """p-values corrected for their number, and the names of those below the level."""

    level: float
    corrected: dict[str, float]
    significant: tuple[str, ...]


@dataclass(frozen=True)
class Gap:
    """Largest minus smallest mean over batch sizes, what chance alone would give, and the chance of one so large."""

    value: Estimate
    by_chance: Estimate
    p: float
    means: dict[str, float]


def difference(x: Scores, y: Scores) -> tuple[dict[str, Difference], Difference]:
    """mean(X_e) - mean(Y_e) for each environment e (Welch 1947), and the mean of these differences."""
    each = {env: Difference(*contrast([(1.0, a), (-1.0, b)])) for env, (a, b) in matched(x, y).items()}
    return each, Difference(*contrast(difference_terms(x, y)))


def difference_terms(x: Scores, y: Scores) -> list[tuple[float, np.ndarray]]:
    """The mean over environments of mean(X_e) - mean(Y_e), as `contrast` takes it."""
    pairs = matched(x, y)
    share = 1 / len(pairs)
    return [term for a, b in pairs.values() for term in ((share, a), (-share, b))]


def probability_of_improvement(x: Scores, y: Scores, resamples: int = 1000, seed: int = 0) -> Estimate:
    """Mean over environments of P(X_e > Y_e) + P(X_e = Y_e)/2 = U_e/(n_e m_e) (Agarwal et al. 2021)."""
    groups = [group for pair in matched(x, y).values() for group in pair]

    def mean_share(groups: Groups) -> np.ndarray:
        return np.mean(
            [wins(a, b) / (a.shape[-1] * b.shape[-1]) for a, b in zip(groups[::2], groups[1::2], strict=True)], axis=0
        )

    return stratified(mean_share, groups, resamples, seed)


def van_elteren(x: Scores, y: Scores) -> StratifiedTest:
    """Stratified Mann-Whitney test, a stratum for each environment (van Elteren 1960; the paper's appendix E):

    z = sum_e w_e (U_e - n_e m_e/2) / sqrt(sum_e w_e^2 Var U_e),   w_e = 1/(N_e + 1),   N_e = n_e + m_e,
    Var U_e = (n_e m_e/12) (N_e + 1 - sum_t (t^3 - t)/(N_e (N_e - 1))),

    with U_e the pairs in which X wins, ties half, and t the sizes of groups of equal scores. Normal approximation,
    no continuity correction: with one environment it is `scipy.stats.mannwhitneyu` (asymptotic).
    """
    strata = list(matched(x, y).values())
    excess, variance = 0.0, 0.0
    for a, b in strata:
        n, m, total = len(a), len(b), len(a) + len(b)
        _, ties = np.unique(np.concatenate([a, b]), return_counts=True)
        excess += (float(wins(a, b)) - n * m / 2) / (total + 1)
        tied = float(np.sum(ties**3 - ties)) / (total * (total - 1))
        variance += n * m / 12 * (total + 1 - tied) / (total + 1) ** 2
    least = prod(1 / comb(len(a) + len(b), len(a)) for a, b in strata)
    if variance <= 0:  # all scores of each environment are equal
        return StratifiedTest(0.0, 1.0, 1.0, 1.0, least)
    z = excess / variance**0.5
    greater, less = float(stats.norm.sf(z)), float(stats.norm.cdf(z))
    return StratifiedTest(z, greater, less, min(1.0, 2 * min(greater, less)), least)


def bonferroni(p_values: Mapping[str, float], level: float = LEVEL) -> Family:
    """min(1, k p) for each of k hypotheses: the chance of any false one among the significant is at most `level`."""
    for name, p in p_values.items():
        if not 0 <= p <= 1:
            raise UsageError(f"p_values[{name!r}] = {p}: give a number from 0 to 1")
    if not p_values or not 0 < level < 1:
        raise UsageError(f"{len(p_values)} p_values at level = {level}: give at least one, and a level between 0 and 1")
    corrected = {name: min(1.0, len(p_values) * p) for name, p in p_values.items()}
    return Family(level, corrected, tuple(name for name, p in corrected.items() if p < level))


def wins(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """U = #{x > y} + #{x = y}/2 over all pairs of x [..., n] and y [..., m]."""
    a, b = x[..., :, None], y[..., None, :]
    return np.sum((a > b) + 0.5 * (a == b), axis=(-2, -1))


def matched(x: Scores, y: Scores) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Environment -> scores of X and of Y."""
    first, second = score_table(x), score_table(y)
    same_environments(list(first), second, "y")
    return {env: (first[env], second[env]) for env in first}


def same_environments(envs: list[str], table: Mapping[str, np.ndarray], what: str) -> None:
    if set(envs) != set(table):
        odd = sorted(set(envs) ^ set(table))
        raise UsageError(f"{what} differs in the environments {odd}: give scores of the same environments throughout")


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
