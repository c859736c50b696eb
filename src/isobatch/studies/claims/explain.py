"""Why the decoupled objective fails on Pendulum's stale data, and Breakout's smallest batch without Adam's rule.

Each harm is trained with one thing changed at a time, and so is the same setting without the harm, since what is
changed may help or hurt by itself. What makes the difference is what takes the harm away: the learning rate, the KL
that an iteration moves the policy by, ratios of Gaussians without a bound, the lag in environment steps, or the noise
of Adam's steps.
"""

from __future__ import annotations

import numpy as np

from isobatch.rescaling import rescale
from isobatch.settings.config import Config
from isobatch.settings.presets import with_stale_objective
from isobatch.statistics.aggregates import contrast
from isobatch.studies.grid import Cell, Grid, Row, Study
from isobatch.studies.scores import MEAN, levels, scores, select
from isobatch.studies.searched_bases import SEEDS, searched
from isobatch.studies.verdicts import MEASURES, estimate_text, would_tell

QUICK_STEPS = 98_304  # of which what staleness leaves unused is less than a tenth
STALENESS, DIVISOR = 8, 64
STALE, NO_RULE = "stale data", "no Adam rule"
AS_IT_IS = "as it is"
LESS = 4  # by how much rates, bounds and lags are smaller
BOUND = 2.0  # on importance ratios, in place of 100


def grid(scale: str) -> Grid:
    cells = []
    for question, pairs in (
        (STALE, stale_pairs(at_scale(searched("Pendulum-v1", "ppo"), scale))),
        (NO_RULE, rule_pairs(at_scale(searched("Breakout-MinAtar", "divided"), scale))),
    ):
        for change, (harmless, harmed) in pairs.items():
            for harm, config in (("without", harmless), ("with", harmed)):
                cells.append(Cell(config, {"question": question, "change": change, "harm": harm}))
    return Grid(cells, SEEDS[scale])


def at_scale(config: Config, scale: str) -> Config:
    """The settings of the studies that have the harms."""
    return config.replace(total_timesteps=QUICK_STEPS) if scale == "quick" else config


def stale_pairs(fresh: Config) -> dict[str, tuple[Config, Config]]:
    """Fresh and stale data, decoupled."""
    rate, clip = fresh.hypers.learning_rate, fresh.hypers.clip_eps
    changed = {
        AS_IT_IS: fresh,
        f"1/{LESS} of the rate": fresh.replace(learning_rate=rate / LESS),
        f"1/{LESS} of the clip range": fresh.replace(clip_eps=clip / LESS),
        f"ratios up to {BOUND:g}": fresh.replace(importance_cap=BOUND),
        # Iterations of a quarter of the samples, at the rate of the smaller minibatch: as many of them late, less old.
        f"1/{LESS} of the lag": rescale(fresh, factor=LESS).after,
    }
    return {
        name: (config, with_stale_objective(config.replace(staleness=STALENESS), "decoupled"))
        for name, config in changed.items()
    }


def rule_pairs(largest: Config) -> dict[str, tuple[Config, Config]]:
    """1/64 of a batch, with Adam's rule and without it."""
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
    """What a harm costs, and what each change does to the runs that have it and to those that have not."""
    sentences, short = [], []
    for question in levels(rows, "question"):
        of_question, name = select(rows, question=question), question[0].upper() + question[1:]
        changes = levels(of_question, "change")
        for column, score in MEASURES.items():
            costs = ", ".join(
                f"{change} {estimate_text(contrast(cost_terms(of_question, change, column))[0])}" for change in changes
            )
            sentences.append(f"{name}, what it costs in normalized {score}: {costs}.")
            sentences += [f"{name}, {change}: {effect(of_question, change, column, score)}." for change in changes[1:]]
        whole = contrast(cost_terms(of_question, AS_IT_IS, MEAN))[0]
        gains = {change: contrast(gain_terms(of_question, change, MEAN, "with"))[0] for change in changes[1:]}
        most = max(gains, key=lambda change: gains[change].value)
        gain = estimate_text(gains[most])
        short.append(f"{question} costs {estimate_text(whole)}, and runs with it gain most from {most}, {gain}")
    return [f"In short, in normalized return over the run: {'; '.join(short)}.", *sentences]


def effect(rows: list[Row], change: str, column: str, score: str) -> str:
    """Of a change. It explains a harm if it helps the runs that have it, and those more than the others."""
    harmed, other = (contrast(gain_terms(rows, change, column, harm))[0] for harm in ("with", "without"))
    terms = [*gain_terms(rows, change, column, "with"), *gain_terms(rows, change, column, "without", -1.0)]
    more = contrast(terms)[0]
    if more.low > 0:
        meaning = "explains it in part" if harmed.low > 0 else "only spoils the others, and explains nothing"
    elif more.high < 0:
        meaning = "makes it worse"
    else:
        meaning = f"cannot be told to matter, {would_tell(terms)}"
    return (
        f"runs with the harm gain {estimate_text(harmed)} in normalized {score}, those without it "
        f"{estimate_text(other)}, which {meaning}"
    )


def cost_terms(rows: list[Row], change: str, column: str) -> list[tuple[float, np.ndarray]]:
    """Without the harm minus with it, as `contrast` takes it."""
    return [(sign, returns(rows, change, column, harm)) for sign, harm in ((1.0, "without"), (-1.0, "with"))]


def gain_terms(
    rows: list[Row], change: str, column: str, harm: str, sign: float = 1.0
) -> list[tuple[float, np.ndarray]]:
    """With the change minus without it."""
    return [(sign, returns(rows, change, column, harm)), (-sign, returns(rows, AS_IT_IS, column, harm))]


def returns(rows: list[Row], change: str, column: str, harm: str) -> np.ndarray:
    (found,) = scores(rows, column, change=change, harm=harm).values()  # a question has one environment
    return found


CLAIM = "What makes Pendulum fail on stale data, and Breakout at the smallest batch without Adam's rule?"
STUDY = Study("explain", CLAIM, grid, verdict, pictures="question", minutes=24)
