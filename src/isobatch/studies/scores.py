"""From rows of results to scores by environment, as `statistics`, `comparisons` and `gaps` take them, and words."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from isobatch.statistics.bootstrap import Estimate
from isobatch.statistics.comparisons import LEVEL, bonferroni, difference, van_elteren
from isobatch.statistics.gaps import Gap
from isobatch.studies.grid import Row

FINAL, MEAN = "normalized_final", "normalized_mean"


def select(rows: list[Row], **factors: Any) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in factors.items())]


def levels(rows: list[Row], factor: str) -> list[Any]:
    """The values of a factor, in the order of the grid."""
    return list(dict.fromkeys(row[factor] for row in rows))


def scores(rows: list[Row], column: str = FINAL, **factors: Any) -> dict[str, np.ndarray]:
    """Environment -> one score a seed, of the rows with these factors."""
    found: dict[str, list[float]] = {}
    for row in select(rows, **factors):
        found.setdefault(row["env"], []).append(row[column])
    return {env: np.array(values, dtype=float) for env, values in found.items()}


def shared(first: dict[str, np.ndarray], *others: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """The same scores, of the environments that all of them have."""
    envs = [env for env in first if all(env in other for other in others)]
    return [{env: each[env] for env in envs} for each in (first, *others)]


def number(estimate: Estimate, digits: int = 2) -> str:
    """`0.52 [0.40, 0.64]`, without the interval where there is none."""
    if np.isnan(estimate.low):
        return f"{estimate.value:.{digits}f}"
    return f"{estimate.value:.{digits}f} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"


class Question(NamedTuple):
    """Is X better than Y? In the scores of a column, of the rows with these factors."""

    what: str
    column: str
    x: dict[str, Any]
    y: dict[str, Any]


def answers(rows: list[Row], questions: list[Question]) -> list[str]:
    """A sentence for each question, and one that says which answers stand when all of them are seen as one family.

    A sentence gives the difference X - Y with its interval, by environment too, and the van Elteren test.
    """
    sentences, p_values = [], {}
    for what, column, x, y in questions:
        first, second = shared(scores(rows, column, **x), scores(rows, column, **y))
        each, overall = difference(first, second)
        test = van_elteren(first, second)
        low, high = overall.value.low, overall.value.high
        told = "cannot be told from 0" if low <= 0 <= high else "is above 0" if low > 0 else "is below 0"
        by_env = ", ".join(f"{env} {own.value.value:+.2f}" for env, own in each.items())
        where = f"; by environment {by_env}" if len(each) > 1 else ""
        sentences.append(
            f"{what}: {number(overall.value)}, which {told} (van Elteren p = {test.two_sided:.2g}{where})."
        )
        p_values[what] = test.two_sided
    strict = bonferroni(p_values, LEVEL).significant
    more = [name for name in bonferroni(p_values, 0.05).significant if name not in strict]
    listed = [f"{len(names)}" + (f" ({'; '.join(names)})" if names else "") for names in (strict, more)]
    return [
        *sentences,
        f"Of {len(questions)} tests, corrected for their number (Bonferroni), these stand at the paper's {LEVEL:.1%}: "
        f"{listed[0]}; and at 5 % besides: {listed[1]}.",
    ]


def gap_words(what: str, found: Gap) -> str:
    """The means of all rungs, and how far apart they are."""
    means = ", ".join(f"{rung}: {value:.2f}" for rung, value in found.means.items())
    return (
        f"normalized {what}: {means}; a gap of {number(found.value)}, where chance alone gives "
        f"{number(found.by_chance)} (p = {found.p:.2g})."
    )
