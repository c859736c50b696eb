"""The summary of a study: for each environment and variant, its scores at the end and over the run."""

from __future__ import annotations

import dataclasses
from typing import TypedDict

import numpy as np

from isobatch.formatting import fraction_text
from isobatch.statistics.aggregates import aggregate
from isobatch.statistics.normalization import possible
from isobatch.studies.grid import Row
from isobatch.studies.scores import FINAL, MEAN, levels, scores, select
from isobatch.studies.verdicts import estimate_text

ALL = "all environments"
COLUMNS = ["variant", "final, normalized", "interquartile mean", "over the run", "return", "KL", "diverged"]


class SummaryLine(TypedDict):
    """One variant on one environment, or on all of them; estimates are mappings of value, low and high."""

    env: str
    variant: str
    normalized_final: dict[str, float]
    interquartile_mean: dict[str, float]
    normalized_mean: dict[str, float]
    final_return: float | None
    approx_kl: float | None
    diverged: int
    seeds: int
    cells: list[str]
    """As COLUMNS has them."""


def summarize_rows(rows: list[Row], factors: list[str]) -> list[SummaryLine]:
    """One line for each environment and variant, and one for a variant on all environments, if there are several."""
    lines = []
    for env in levels(rows, "env"):
        in_env = by_variant(select(rows, env=env), factors)
        lines += [line_of(env, variant, chosen) for variant, chosen in in_env.items()]
    envs = set(levels(rows, "env"))
    for variant, chosen in by_variant(rows, factors).items():
        if len(envs) > 1 and {row["env"] for row in chosen} == envs:
            lines.append(line_of(ALL, variant, chosen))
    return lines


def by_variant(rows: list[Row], factors: list[str]) -> dict[str, list[Row]]:
    variants: dict[str, list[Row]] = {}
    for row in rows:
        variants.setdefault(variant_name(row, factors), []).append(row)
    return variants


def variant_name(row: Row, factors: list[str]) -> str:
    """Words speak for themselves, numbers need their factor's name."""
    parts = [row[name] if isinstance(row[name], str) else f"{name} {fraction_text(row[name])}" for name in factors]
    return ", ".join(parts).replace("_", " ")


def line_of(env: str, variant: str, rows: list[Row]) -> SummaryLine:
    final, over_run = aggregate(scores(rows, FINAL)), aggregate(scores(rows, MEAN))
    envs = levels(rows, "env")
    estimates = [possible(each, envs) for each in (final.mean, final.interquartile_mean, over_run.mean)]
    in_end, middle, over = (dataclasses.asdict(estimate) for estimate in estimates)
    returns = [row["final_return"] for row in rows if row["final_return"] is not None and env != ALL]
    divergences = [row["approx_kl"] for row in rows if row.get("approx_kl") is not None]
    final_return = float(np.mean(returns)) if returns else None
    kl = float(np.mean(divergences)) if divergences else None
    diverged = sum(row["diverged"] for row in rows)
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
        "cells": [variant, *map(estimate_text, estimates), *texts, f"{diverged} of {len(rows)}"],
    }
