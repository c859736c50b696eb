"""Figures 2 and 3: both batches divided by c, with all rules, with each rule removed, and with other rules."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import astuple

import numpy as np
from scipy import stats

from isobatch.formatting import counted, fraction_text
from isobatch.rescaling import rescale
from isobatch.settings.config import Config
from isobatch.statistics.bootstrap import Estimate
from isobatch.statistics.comparisons import Difference, difference, gap
from isobatch.statistics.outliers import LIMIT
from isobatch.statistics.ratios import ratio_of_sums
from isobatch.studies.grid import Cell, Grid, Measurement, Row, RuleChoice, Study
from isobatch.studies.scores import FINAL, MEAN, levels, scores, select, with_episodes
from isobatch.studies.searched_bases import CLASSIC, base_of, environments
from isobatch.studies.verdicts import (
    MEASURES,
    Question,
    answers,
    beside_chance,
    by_half,
    estimate_text,
    farthest_of,
    in_short,
    left_out,
)

DIVISORS = {"quick": (1, 4, 16, 64), "laptop": (1, 4, 16, 64), "paper": (1, 4, 16, 64, 256)}
STAGES = 8  # of training, at which the critical batch size is measured
INSIDE, OUTSIDE = 512, 128  # chains to measure on, of environments in JAX and of those where steps cost more
WINDOWS = {INSIDE: 8, OUTSIDE: 16}  # rollouts of the base in a chain: more samples for what it costs to start one
LARGER = {"quick": (1 / 16, 1 / 4), "laptop": (1 / 16, 1 / 4), "paper": ()}  # where invariance is to end
ALL = "all rules"
ABLATIONS: dict[str, RuleChoice] = {
    "no Adam rule": dict(without=["adam-sqrt"]),
    "no advantage rule": dict(without=["advantage-span"]),
    "no EWMA rule": dict(without=["proximal-age"]),
}
OTHERS: dict[str, RuleChoice] = {"linear Adam rule": dict(use=["linear-adam"]), "betas too": dict(use=["betas"])}
PHASES: dict[str, RuleChoice] = {"no N_pi rule": dict(without=["phase-batch"])}
PAPER_DIFFERENCE = " The paper's is 0.052, and 0.019 without Heist."
# Figure 2's reference, roughly a lower bound: what is left of the trust region at the smallest batch if nothing
# averages the proximal policy. The algorithm without EWMA, at the base batch, with 1/c of the smallest as coefficient.
REFERENCE = "no EWMA, weak KL penalty"


def grid(scale: str) -> Grid:
    """PPG has the most rules, so one environment has it at laptop scale too."""
    cells: list[Cell] = []
    for env in environments(scale):
        phases = scale == "paper" or (scale, env) == ("laptop", "CartPole-v1")
        config = base_of(env, scale, "divided-ppg" if phases else "divided", advantage_norm="ewma")
        others = OTHERS if scale != "laptop" or env in CLASSIC else {}
        everywhere: dict[str, RuleChoice] = {ALL: {}}
        variants = everywhere | ABLATIONS | others | (PHASES if phases else {})
        cells += divided(config, scale, variants)
        weak = dict(algo=config.algo.removesuffix("-ewma"), proximal_policy="behavior", kl_coef=1 / DIVISORS[scale][-1])
        cells.append(Cell(config.replace(**weak), {"rules": REFERENCE, "divisor": 1}))
    return Grid(cells, {"quick": 4, "laptop": 6, "paper": 3}[scale], evaluated=True)


def divided(config: Config, scale: str, variants: dict[str, RuleChoice]) -> Iterator[Cell]:
    """All rules at every batch size; what is removed only at the smallest one, in the paper's size everywhere."""
    smallest = DIVISORS[scale][-1]
    for divisor in (*LARGER[scale], *DIVISORS[scale]):
        for name, choice in variants.items():
            if name == ALL or divisor == smallest or (scale == "paper" and divisor > 1):
                after = config if divisor == 1 else rescale(config, factor=divisor, **choice).after
                yield Cell(after, {"rules": name, "divisor": divisor})


def verdict(rows: list[Row]) -> list[str]:
    silent = left_out(rows, lambda row: f"{row['env']} at c = {fraction_text(row['divisor'])}")
    rows = with_episodes(rows)
    divisors = [c for c in levels(rows, "divisor") if c >= 1]
    smallest = divisors[-1]
    sentences, questions = [], []
    for column, score in MEASURES.items():
        sizes = {f"c = {c}": scores(rows, column, rules=ALL, divisor=c) for c in divisors}
        by_env, ends = difference(sizes["c = 1"], sizes[f"c = {smallest}"])
        each = ", ".join(f"{env} {estimate_text(in_env.value, 3)}" for env, in_env in by_env.items())
        sentences.append(
            f"All rules, normalized {score}, c = 1 minus c = {smallest}: {estimate_text(ends.value, 3)}"
            f"{f'; by environment {each}' if len(by_env) > 1 else ''}.{PAPER_DIFFERENCE if column == FINAL else ''}"
        )
        sentences += gap_without_outlier(by_env, sizes, smallest)
        ends_of_sizes = (dict(rules=ALL, divisor=1), dict(rules=ALL, divisor=smallest))
        sentences += by_half(rows, column, {f"c = 1 minus c = {smallest}": ends_of_sizes})
        sentences.append(
            f"All rules, normalized {score}: gap between best and worst of c = {', '.join(map(str, divisors))} is "
            f"{beside_chance(gap(sizes), 3, ';')}."
        )
        if len(sizes) > 2:  # the base's rate was tuned for it alone, and may be at the edge of what it bears
            smaller = dict(list(sizes.items())[1:])
            sentences.append(f"Without c = 1: {beside_chance(gap(smaller), 3, ';')}.")
    at_smallest = dict(rules=ALL, divisor=smallest)
    for name in levels(rows, "rules"):
        if name not in (ALL, REFERENCE):
            for column, score in MEASURES.items():
                text = f"At c = {smallest}, {name} minus all rules, in normalized {score}"
                questions.append(Question(text, column, dict(rules=name, divisor=smallest), at_smallest))
    for column, score in MEASURES.items():
        text = f"At c = 1, no EWMA and a KL coefficient of 1/{smallest} minus all rules, in normalized {score}"
        questions.append(Question(text, column, dict(rules=REFERENCE), dict(rules=ALL, divisor=1)))
    for c in levels(rows, "divisor"):
        if c < 1:
            for column, score in MEASURES.items():
                text = f"Batches of {1 / c:g} times the base's minus the base's, all rules, in normalized {score}"
                questions.append(Question(text, column, dict(rules=ALL, divisor=c), dict(rules=ALL, divisor=1)))
    short = in_short(
        rows,
        f"with all rules, the base's batch minus 1/{smallest} of it",
        [
            Question(f"normalized {score}", column, dict(rules=ALL, divisor=1), at_smallest)
            for column, score in MEASURES.items()
        ],
    )
    return [short, *sentences, *answers(rows, questions), *silent]


def gap_without_outlier(
    by_env: dict[str, Difference], sizes: dict[str, dict[str, np.ndarray]], smallest: int
) -> list[str]:
    """The same without the environment that stands apart, as the paper has it without Heist; or that none does."""
    apart = farthest_of(by_env)
    if apart is None:
        return []
    which = f"{apart.env} is farthest from the median (modified z-score {apart.score:.1f}"
    if not apart.is_outlier:
        return [f"No environment is an outlier: {which}, the limit is {LIMIT})."]
    largest, least = ({env: x for env, x in sizes[f"c = {c}"].items() if env != apart.env} for c in (1, smallest))
    ends = difference(largest, least)[1].value
    return [f"Without the outlier: {estimate_text(ends, 3)}; {which}, more than {LIMIT})."]


def laboratory(scale: str) -> list[Measurement]:
    """The critical batch size of the base's policies."""
    if scale == "paper":
        return []
    bases = [cell.config for cell in grid(scale).cells if cell.factors == {"rules": ALL, "divisor": 1}]
    found = []
    for config in bases:
        chains = OUTSIDE if "/" in config.env else INSIDE
        windows = WINDOWS[chains]
        longer = (config.num_envs // windows, config.num_steps * windows)  # which makes chains that long
        found.append(Measurement(config, ((config.num_envs, config.num_steps), longer), STAGES, chains))
    return found


def reading(rows: list[Row], measured: list[Row]) -> list[str]:
    """Where invariance should end by the critical batch sizes that were measured, and what larger batches lose."""
    rows = with_episodes(rows)
    sentences, predicted, lost, below = [], [], [], []
    for env in levels(measured, "env"):
        in_env = select(rows, env=env, rules=ALL)
        stages = select(measured, env=env, num_steps=in_env[0]["num_steps"])
        batches = {row["divisor"]: row["num_envs"] * row["num_steps"] // row["num_minibatches"] for row in in_env}
        losses = {c: loss(in_env, c) for c in batches if c < 1}
        each = ", ".join(f"{batches[c]:,} samples {value:.2f}" for c, value in losses.items())
        critical = pooled(stages)
        sentences.append(
            f"{env}: optimization batches of {max(batches.values()):,} to {min(batches.values()):,} samples; critical "
            f"batch size by the laboratory, over the {counted(len(stages), 'stage')} of training together: "
            f"{size_text(critical)}; {beside(batches[1], stages)}. Lost over the run against {batches[1]:,}: {each}."
        )
        if all(stage["critical_batch_low"] > batches[1] for stage in stages):
            below.append(env)
        predicted += [share_lost(batches[c], critical.value) - share_lost(batches[1], critical.value) for c in losses]
        lost += list(losses.values())
    sentences += by_place(rows, below)
    if len(lost) > 2 and np.ptp(predicted) > 0:
        rank = stats.spearmanr(predicted, lost)
        sentences.append(
            "By those sizes larger batches need more samples for the same progress by a share of B / (B + B_crit): "
            f"{np.mean(predicted):.0%} in the mean over these {len(lost)} batches. They lose {np.mean(lost):.2f} in "
            f"the mean, and the rank correlation of what is predicted and lost is {rank.statistic:.2f} "
            f"(p = {rank.pvalue:.2g})."
        )
    return sentences


def by_place(rows: list[Row], below: list[str]) -> Iterator[str]:
    """Does the batch size matter where the base is below the critical one at every stage, and elsewhere?"""
    divisors = [c for c in levels(rows, "divisor") if c >= 1]
    others = [env for env in levels(rows, "env") if env not in below]
    for envs, where in ((below, "below the critical size at every stage"), (others, "not known to be")):
        ends = []
        for column, score in MEASURES.items() if envs else ():
            sizes = {
                c: {env: scores(rows, column, rules=ALL, divisor=c, env=env)[env] for env in envs} for c in divisors
            }
            between = difference(sizes[1], sizes[divisors[-1]])[1].value
            chance = beside_chance(gap({f"c = {c}": each for c, each in sizes.items()}), 3, ";")
            ends.append(f"{estimate_text(between, 3)} in normalized {score} (best minus worst of all c {chance})")
        if ends:
            yield (
                f"Where the base is {where} ({', '.join(envs)}), all rules, c = 1 minus c = {divisors[-1]}: "
                f"{'; '.join(ends)}."
            )


def pooled(stages: list[Row]) -> Estimate:
    """Noise over signal, each summed over the stages: where either is uncertain, their ratio is not averaged."""
    signal = [estimate_of(stage, "signal") for stage in stages]
    noise = [
        Estimate(*(stage["num_envs"] * stage["num_steps"] * end for end in ends))
        for stage in stages
        for ends in [astuple(estimate_of(stage, "variance"))]
    ]
    return ratio_of_sums(noise, signal)


def estimate_of(row: Row, quantity: str) -> Estimate:
    return Estimate(row[quantity], row[f"{quantity}_low"], row[f"{quantity}_high"])


def size_text(size: Estimate) -> str:
    """Samples, with the end that there is."""
    if math.isinf(size.high):
        return f"at least {size.low:,.0f}, with no upper end" if size.low >= 1 else "cannot be told at all"
    return f"{size.value:,.0f} [{size.low:,.0f}, {size.high:,.0f}]"


def beside(batch: int, stages: list[Row]) -> str:
    """At how many stages a batch is below or above the interval of the critical size."""
    below = sum(stage["critical_batch_low"] > batch for stage in stages)
    above = sum(stage["critical_batch_high"] is not None and stage["critical_batch_high"] < batch for stage in stages)
    left = len(stages) - below - above
    undecided = f", and at {left} it cannot be told" if left else ""
    return f"the base's {batch:,} samples are below its interval at {below} of them, above at {above}{undecided}"


def loss(rows: list[Row], divisor: float) -> float:
    """In normalized return over the run, against the base."""
    base, larger = (next(iter(scores(rows, MEAN, divisor=c).values())) for c in (1, divisor))
    return float(base.mean() - larger.mean())


def share_lost(batch: int, critical: float) -> float:
    """Samples that a batch needs more than small ones for the same progress, as a share (McCandlish 2018)."""
    return batch / (batch + critical)


CLAIM = "With all rules learning does not depend on the batch size, and each rule is needed (figures 2 and 3)."
STUDY = Study(
    "invariance", CLAIM, grid, verdict, pictures="rules", everywhere={"rules": ALL, "divisor": 1},
    reference={"rules": REFERENCE}, divisor="divisor", laboratory=laboratory, reading=reading, minutes=52,
)  # fmt: skip
