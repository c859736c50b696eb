"""The summary of a study: for each environment and variant, its scores at the end and over the run."""

from __future__ import annotations

import dataclasses
from typing import TypedDict

import numpy as np

from isobatch.formatting import fraction_text
from isobatch.statistics.aggregates import aggregate
from isobatch.statistics.bootstrap import Estimate
from isobatch.statistics.normalization import possible
from isobatch.studies.grid import Row
from isobatch.studies.scores import FINAL, MEAN, levels, scores, select, with_episodes
from isobatch.studies.verdicts import estimate_text

ALL = "all environments"
UNDIVIDED = "nothing to do"  # where a factor names a rule: no rule has anything to do with a batch that is not divided
COLUMNS = ["variant", "final, normalized", "interquartile mean", "over the run", "return", "KL", "diverged"]


Numbers = dict[str, float | None]


class SummaryLine(TypedDict):
    """One variant on one environment, or on all of them.

    Estimates are mappings of value, low and high, which are None where no episode ended.
    """

    env: str
    variant: str
    normalized_final: Numbers
    interquartile_mean: Numbers
    normalized_mean: Numbers
    final_return: float | None
    approx_kl: float | None
    diverged: int
    seeds: int
    cells: list[str]
    """As COLUMNS has them."""


def summarize_rows(rows: list[Row], factors: list[str]) -> list[SummaryLine]:
    """One line for each environment and variant, and one for a variant that has a score on all of several."""
    lines = []
    for env in levels(rows, "env"):
        in_env = by_variant(select(rows, env=env), factors)
        lines += [line_of(env, variant, chosen) for variant, chosen in in_env.items()]
    envs = set(levels(rows, "env"))
    for variant, chosen in by_variant(rows, factors).items():
        if len(envs) > 1 and {row["env"] for row in with_episodes(chosen)} == envs:
            lines.append(line_of(ALL, variant, chosen))
    return lines


def by_variant(rows: list[Row], factors: list[str]) -> dict[str, list[Row]]:
    """In order of the factors' levels."""
    variants: dict[str, list[Row]] = {}
    for row in in_order(rows, factors):
        variants.setdefault(variant_name(row, factors), []).append(row)
    return variants


def in_order(rows: list[Row], factors: list[str]) -> list[Row]:
    """Numbers by their size, words as the grid has them."""
    places = {factor: levels(rows, factor) for factor in factors}

    def key(row: Row) -> list[float]:
        return [places[name].index(row[name]) if isinstance(row[name], str) else row[name] for name in factors]

    return sorted(rows, key=key)


def variant_name(row: Row, factors: list[str]) -> str:
    """`square root, c = 64`; what is not divided, and called by nothing else, is the base."""
    name = ", ".join(level_name(factor, row[factor]) for factor in factors).replace("_", " ")
    return f"{name} (base)" if name == "c = 1" else name


def level_name(factor: str, level: str | float) -> str:
    """Words speak for themselves, numbers need their factor's name."""
    if isinstance(level, str):
        return "base" if level == UNDIVIDED else level
    return f"c = {fraction_text(level)}" if factor == "divisor" else f"{factor} {fraction_text(level)}"


def line_of(env: str, variant: str, rows: list[Row]) -> SummaryLine:
    estimates = estimates_of(with_episodes(rows))
    in_end, middle, over = (no_numbers() if each is None else dataclasses.asdict(each) for each in estimates)
    returns = [row["final_return"] for row in rows if row["final_return"] is not None and env != ALL]
    divergences = [row["approx_kl"] for row in rows if row.get("approx_kl") is not None]
    final_return = float(np.mean(returns)) if returns else None
    kl = float(np.mean(divergences)) if divergences else None
    diverged = sum(row["diverged"] for row in rows)
    scored = ["-" if each is None else estimate_text(each) for each in estimates]
    texts = ["-" if final_return is None else f"{final_return:.1f}", "-" if kl is None else f"{kl:.2g}"]
    return {
        "env": env,
        "variant": variant,
        "normalized_final": in_end,
        "interquartile_mean": middle,
        "normalized_mean": over,
        "final_return": final_return,
        "approx_kl": kl,
        "diverged": diverged,
        "seeds": len(rows),
        "cells": [variant, *scored, *texts, f"{diverged} of {len(rows)}"],
    }


def estimates_of(rows: list[Row]) -> list[Estimate] | list[None]:
    """Final return, its interquartile mean, and return over the run, normalized; nothing of no rows."""
    if not rows:
        return [None] * 3
    final, over_run = aggregate(scores(rows, FINAL)), aggregate(scores(rows, MEAN))
    envs = levels(rows, "env")
    return [possible(each, envs) for each in (final.mean, final.interquartile_mean, over_run.mean)]


def no_numbers() -> Numbers:
    return {"value": None, "low": None, "high": None}
