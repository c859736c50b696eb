"""Why Pendulum collapses on stale data with the decoupled objective, and at the smallest batch without Adam's rule.

Each harm is trained with one thing changed at a time, and so is the same setting without the harm, since what is
changed may help or hurt by itself. What makes the difference is what takes the harm away: the learning rate, the KL
that an iteration moves the policy by, ratios of Gaussians without a bound, the lag in environment steps, or the noise
of Adam's steps.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from isobatch.rescaling import rescale
from isobatch.settings.config import Config
from isobatch.settings.presets import with_stale_objective
from isobatch.statistics.aggregates import contrast
from isobatch.statistics.bootstrap import Estimate
from isobatch.studies.base_settings import SEEDS, base
from isobatch.studies.claims.staleness import SIZES
from isobatch.studies.grid import Cell, Grid, Row, Study
from isobatch.studies.scores import MEAN, levels, scores, select
from isobatch.studies.verdicts import MEASURES, estimate_text, would_tell

ENV = "Pendulum-v1"
STEPS = {"quick": 100_000, "laptop": 300_000, "paper": 300_000}
STALENESS, DIVISOR = 8, 64
STALE, NO_RULE = "stale data", "no Adam rule"
AS_IT_IS = "as it is"
LESS = 4  # by how much rates, bounds and lags are smaller
BOUND = 2.0  # on importance ratios, in place of 100


def grid(scale: str) -> Grid:
    cells = []
    for question, pairs in (
        (STALE, stale_pairs(STEPS[scale])),
        (NO_RULE, rule_pairs(STEPS[scale])),
    ):
        for change, (harmless, harmed) in pairs.items():
            for harm, config in (("without", harmless), ("with", harmed)):
                cells.append(Cell(config, {"question": question, "change": change, "harm": harm}))
    return Grid(cells, 6 if scale == "laptop" else SEEDS[scale])


def stale_pairs(steps: int) -> dict[str, tuple[Config, Config]]:
    """Fresh and stale data, decoupled, at the settings of the study `staleness`."""
    config_of_study = base("ppo", ENV, "laptop", SIZES | dict(total_timesteps=steps))
    rate, clip = config_of_study.hypers.learning_rate, config_of_study.hypers.clip_eps
    changed = {
        AS_IT_IS: config_of_study,
        f"1/{LESS} of the rate": config_of_study.replace(learning_rate=rate / LESS),
        f"1/{LESS} of the clip range": config_of_study.replace(clip_eps=clip / LESS),
        f"ratios up to {BOUND:g}": config_of_study.replace(importance_cap=BOUND),
        # Iterations of a quarter of the samples, at the rate of the smaller minibatch: as many of them late, less old.
        f"1/{LESS} of the lag": rescale(config_of_study, factor=LESS).after,
    }
    return {
        name: (config, with_stale_objective(config.replace(staleness=STALENESS), "decoupled"))
        for name, config in changed.items()
    }


def rule_pairs(steps: int) -> dict[str, tuple[Config, Config]]:
    """The smallest batch of the study `invariance` with Adam's rule and without it."""
    largest = base("ppo-ewma", ENV, "laptop", dict(total_timesteps=steps), objective="kl", advantage_norm="ewma")
    with_rule = rescale(largest, factor=DIVISOR).after
    without = rescale(largest, factor=DIVISOR, without=["adam-sqrt"]).after

    def both(**settings: float) -> tuple[Config, Config]:
        return with_rule.replace(**settings), without.replace(**settings)

    def slower(by: int) -> tuple[Config, Config]:
        pair = (with_rule, without)
        first, second = (each.replace(learning_rate=each.hypers.learning_rate / by) for each in pair)
        return first, second

    betas = {name: getattr(largest.hypers, name) ** (1 / DIVISOR) for name in ("beta1", "beta2")}
    return {
        AS_IT_IS: (with_rule, without),
        "1/2 of the rate": slower(2),
        f"1/{LESS} of the rate": slower(LESS),
        f"{2 * LESS} times the KL coefficient": both(kl_coef=2 * LESS * largest.hypers.kl_coef),
        "longer averages in Adam": both(**betas),
    }


def verdict(rows: list[Row]) -> list[str]:
    """What a harm costs with each change, and how much less than with none."""
    sentences, short = [], []
    for question in levels(rows, "question"):
        of_question = select(rows, question=question)
        for column, score in MEASURES.items():
            costs = {change: cost(of_question, change, column) for change in levels(of_question, "change")}
            sentences.append(
                f"{question.capitalize()}, cost in normalized {score}: "
                + ", ".join(f"{change} {estimate_text(estimate)}" for change, estimate in costs.items())
                + "."
            )
            for change in levels(of_question, "change")[1:]:
                terms = [*cost_terms(of_question, AS_IT_IS, column), *cost_terms(of_question, change, column, -1.0)]
                less = contrast(terms)[0]
                sign = "explains it in part" if less.low > 0 else "makes it worse" if less.high < 0 else ""
                meaning = sign or f"cannot be told to matter, {would_tell(terms)}"
                sentences.append(
                    f"{question.capitalize()}, {change}: takes {estimate_text(less)} of the cost in normalized {score} "
                    f"away, which {meaning}."
                )
        costs = {change: cost(of_question, change, MEAN) for change in levels(of_question, "change")}
        least = min(costs, key=lambda change: costs[change].value)
        short.append(
            f"{question} costs {estimate_text(costs[AS_IT_IS])}, and least with {least}: {estimate_text(costs[least])}"
        )
    return [f"In short, in normalized return over the run: {'; '.join(short)}.", *sentences]


def cost(rows: list[Row], change: str, column: str) -> Estimate:
    return contrast(cost_terms(rows, change, column))[0]


def cost_terms(rows: list[Row], change: str, column: str, sign: float = 1.0) -> list[tuple[float, np.ndarray]]:
    """Without the harm minus with it, as `contrast` takes it."""
    by_harm: Mapping[str, dict[str, np.ndarray]] = {
        harm: scores(rows, column, change=change, harm=harm) for harm in ("without", "with")
    }
    return [(sign, by_harm["without"][ENV]), (-sign, by_harm["with"][ENV])]


CLAIM = "What makes Pendulum collapse on stale data, and at the smallest batch without Adam's rule?"
STUDY = Study("explain", CLAIM, grid, verdict, pictures="question")
