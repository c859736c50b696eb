"""Sentences that say what a study showed: differences with intervals and tests, and gaps beside those of chance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from isobatch.formatting import with_interval
from isobatch.statistics.aggregates import Scores
from isobatch.statistics.bootstrap import Estimate
from isobatch.statistics.comparisons import (
    LEVEL,
    Difference,
    Gap,
    StratifiedTest,
    bonferroni,
    difference,
    difference_terms,
    gap,
    van_elteren,
)
from isobatch.statistics.normalization import halves
from isobatch.statistics.outliers import Farthest, farthest
from isobatch.statistics.power import SMALLEST, seeds_to_tell
from isobatch.studies.grid import Row
from isobatch.studies.scores import FINAL, MEAN, levels, scores, select, shared, unique_cells, with_episodes

Which = Mapping[str, object]  # factors of rows
Pair = tuple[Which, Which]
Sizes = Mapping[str, Which]  # by the names of batch sizes, or other variants

SINGLE_TEST = 0.05  # level below which a single p-value is seldom chance
MEASURES = {FINAL: "final return", MEAN: "return over the run"}  # columns of scores, in words


def estimate_text(estimate: Estimate, digits: int = 2) -> str:
    """`0.52 [0.40, 0.64]`, without the interval where there is none."""
    return with_interval(estimate, f"{{:.{digits}f}}".format)


def measured_text(row: Row, name: str, number: str, unit: float = 1.0) -> str:
    """An estimate of the laboratory, in multiples of `unit`; `number` is how one is formatted."""
    estimate = Estimate(*(row[column] / unit for column in (name, f"{name}_low", f"{name}_high")))
    return with_interval(estimate, f"{{:{number}}}".format)


class Question(NamedTuple):
    """Is X better than Y? In the scores of a column, of the rows with these factors."""

    text: str
    column: str
    x: Which
    y: Which

    def scores(self, rows: list[Row]) -> list[dict[str, np.ndarray]]:
        """Of X and of Y, on the environments that both have."""
        return shared(scores(rows, self.column, **self.x), scores(rows, self.column, **self.y))


def in_short(rows: list[Row], lead: str, questions: Iterable[Question]) -> str:
    """The first line of a verdict: the differences that matter most."""
    each = [f"{q.text} {estimate_text(difference(*q.scores(rows))[1].value)}" for q in questions]
    return f"In short, {lead}: {'; '.join(each)}."


def gaps_in_short(rows: list[Row], lead: str, variants: Mapping[str, Sizes]) -> str:
    """The first line of a verdict: how far apart batch sizes are for each variant, and what chance alone gives.

    A variant's sizes are names with the factors of their rows.
    """
    each = []
    for name, sizes in variants.items():
        by_score = [scores_by_size(rows, column, sizes) for column in MEASURES]
        if not by_score[0]:
            continue
        gaps = [gap(by_size) for by_size in by_score]
        gaps_text = " / ".join(f"{one.value.value:.2f}" for one in gaps)
        chance = " / ".join(f"{one.by_chance.value:.2f}" for one in gaps)
        p_values = " / ".join(f"{one.p:.2g}" for one in gaps)
        envs = len(next(iter(by_score[0].values())))
        some = "" if envs == len(levels(rows, "env")) else f" on {envs} of them"
        each.append(f"{name}{some}: {gaps_text} (by chance {chance}, p = {p_values})")
    return f"In short, gap in normalized return between {lead}, in the end / over the run: {', '.join(each)}."


def scores_by_size(rows: list[Row], column: str, sizes: Sizes) -> dict[str, dict[str, np.ndarray]]:
    """On the environments that have all sizes of a variant; nothing where none has."""
    each = shared(*(scores(rows, column, **which) for which in sizes.values()))
    return dict(zip(sizes, each, strict=True)) if each[0] else {}


def answers(rows: list[Row], questions: list[Question]) -> list[str]:
    """A sentence for each question, and one that says which answers stand when all of them are seen as one family.

    A sentence gives the difference X - Y with its interval, by environment too, without the environment that is an
    outlier, if one is, and the van Elteren test.
    """
    sentences, p_values = [], {}
    for question in questions:
        first, second = question.scores(rows)
        by_env, overall = difference(first, second)
        test = van_elteren(first, second)
        low, high = overall.value.low, overall.value.high
        sign = "cannot be told from 0" if low <= 0 <= high else "is above 0" if low > 0 else "is below 0"
        each = ", ".join(f"{env} {in_env.value.value:+.2f}" for env, in_env in by_env.items())
        where = f"; by environment {each}{without_outlier(by_env, first, second)}" if len(by_env) > 1 else ""
        enough = f"; {would_tell(difference_terms(first, second))}" if low <= 0 <= high else ""
        sentences.append(
            f"{question.text}: {estimate_text(overall.value)}, which {sign} "
            f"(van Elteren p = {test.two_sided:.2g}{where}){enough}.{disagreement(low <= 0 <= high, test)}"
        )
        p_values[question.text] = test.two_sided
    strict = bonferroni(p_values, LEVEL).significant
    more = [name for name in bonferroni(p_values, SINGLE_TEST).significant if name not in strict]
    listed = [f"{len(names)}" + (f" ({'; '.join(names)})" if names else "") for names in (strict, more)]
    return [
        *sentences,
        f"Of {len(questions)} tests, corrected for their number (Bonferroni), these stand at the paper's {LEVEL:.1%}: "
        f"{listed[0]}; and at 5 % besides: {listed[1]}.",
    ]


def without_outlier(by_env: Mapping[str, Difference], *sides: Mapping[str, np.ndarray]) -> str:
    """The difference of the other environments, where one stands apart."""
    apart = farthest_of(by_env)
    if apart is None or not apart.is_outlier:
        return ""
    first, second = ({env: values for env, values in each.items() if env != apart.env} for each in sides)
    return f"; without {apart.env}, an outlier, {estimate_text(difference(first, second)[1].value)}"


def farthest_of(by_env: Mapping[str, Difference]) -> Farthest | None:
    """The environment whose difference is farthest from the others'; None where there are too few."""
    return farthest({env: one.value.value for env, one in by_env.items()})


def by_half(rows: list[Row], column: str, pairs: Mapping[str, Pair]) -> list[str]:
    """Differences on the games that the paper tuned on and on the others, where there are both."""
    sentences = []
    for half, envs in halves(levels(rows, "env")).items():
        chosen = [row for row in rows if row["env"] in envs]
        for name, (x, y) in pairs.items():
            by_env, overall = difference(scores(chosen, column, **x), scores(chosen, column, **y))
            above = sum(one.value.value > 0 for one in by_env.values())
            sentences.append(
                f"On the {half}, {name}, in normalized {MEASURES[column]}: {estimate_text(overall.value)}, above 0 on "
                f"{above} of {len(envs)}."
            )
    return sentences


def would_tell(terms: Sequence[tuple[float, np.ndarray]]) -> str:
    """How many seeds would tell the smallest effect that matters from 0, where these could not."""
    enough, used = seeds_to_tell(terms), min(len(x) for _, x in terms)
    if enough <= used:
        return f"a difference of {SMALLEST} would have been told"
    return f"to tell a difference of {SMALLEST} takes about {enough:,} seeds"


def disagreement(interval_has_0: bool, test: StratifiedTest) -> str:
    """Why an interval and a p-value may seem to contradict each other, where they do."""
    if interval_has_0 == (test.two_sided >= SINGLE_TEST):
        return ""
    if not interval_has_0 and 2 * test.least >= SINGLE_TEST:
        return " So few seeds cannot be ranked in a way that makes p small."
    return (
        " Interval and test differ: one environment or a few extreme seeds can move a mean, and the test counts how "
        "seeds rank in each environment."
    )


def gap_sentence(score: str, sizes: Mapping[str, Scores]) -> str:
    """The means of all batch sizes, or other variants, and how far apart they are."""
    between = gap(sizes)
    means = ", ".join(f"{variant}: {mean:.2f}" for variant, mean in between.means.items())
    return f"normalized {score}: {means}; a gap of {beside_chance(between)}."


def gap_sentences(title: str, rows: list[Row], factor: str) -> list[str]:
    """How far apart the values of a factor are, in the end and over the run."""
    sentences = []
    for column, score in MEASURES.items():
        sizes = {str(level): scores(rows, column, **{factor: level}) for level in levels(rows, factor)}
        sentences.append(f"{title}, {gap_sentence(score, sizes)}")
    return sentences


def divisor_sentences(rows: list[Row], factor: str, rules: Iterable[str]) -> list[str]:
    """How far apart batches divided by c are, with each of the rules that are a factor's values; in short first."""
    divisors = levels(rows, "divisor")
    sizes: dict[str, Sizes] = {
        rule: {f"c = {c}": {"divisor": c} | ({factor: rule} if c > 1 else {}) for c in divisors} for rule in rules
    }
    return size_sentences(rows, sizes)


def size_sentences(rows: list[Row], variants: Mapping[str, Sizes]) -> list[str]:
    """How far apart the batch sizes of each variant are, in short first, then on each environment."""
    sentences = [gaps_in_short(rows, "batch sizes, mean over environments", variants)]
    for env in levels(rows, "env"):
        in_env = select(rows, env=env)
        for column, score in MEASURES.items():
            for variant, sizes in variants.items():
                if by_size := scores_by_size(in_env, column, sizes):
                    sentences.append(f"{env}, {variant}, {gap_sentence(score, by_size)}")
    return sentences


def left_out(rows: list[Row], place: Callable[[Row], str]) -> list[str]:
    """A sentence that names the cells in which no episode ended, if there are any."""
    heard = with_episodes(rows)
    silent = [place(row) for row in unique_cells(rows) if row not in heard]
    return (
        [f"Left out, because no episode ended in the steps of an environment: {', '.join(silent)}."] if silent else []
    )


def beside_chance(gap: Gap, digits: int = 2, between: str = ", where") -> str:
    """The width of a gap, and the width that chance alone gives."""
    width, by_chance = estimate_text(gap.value, digits), estimate_text(gap.by_chance, digits)
    return f"{width}{between} chance alone gives {by_chance} (p = {gap.p:.2g})"
