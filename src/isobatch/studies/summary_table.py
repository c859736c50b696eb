"""The summary of a study: for each environment and variant, its scores at the end and over the run."""

from __future__ import annotations

import dataclasses
from typing import TypedDict

import numpy as np

from isobatch.statistics.aggregates import aggregate
from isobatch.studies.grid import Row
from isobatch.studies.scores import FINAL, MEAN, levels, scores, select
from isobatch.studies.verdicts import estimate_text

ALL = "all environments"
COLUMNS = ["variant", "final, normalized", "interquartile mean", "over the run", "return", "KL", "diverged"]


class Line(TypedDict):
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


def summarize_rows(rows: list[Row], factors: list[str]) -> list[Line]:
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
    parts = [row[name] if isinstance(row[name], str) else f"{name} {row[name]:g}" for name in factors]
    return ", ".join(parts).replace("_", " ")


def line_of(env: str, variant: str, rows: list[Row]) -> Line:
    final, over_run = aggregate(scores(rows, FINAL)), aggregate(scores(rows, MEAN))
    returns = [row["final_return"] for row in rows if row["final_return"] is not None]
    kl = [row["approx_kl"] for row in rows if row.get("approx_kl") is not None]
    diverged = sum(row["diverged"] for row in rows)
    return {
        "env": env,
        "variant": variant,
        "normalized_final": dataclasses.asdict(final.mean),
        "interquartile_mean": dataclasses.asdict(final.interquartile_mean),
        "normalized_mean": dataclasses.asdict(over_run.mean),
        "final_return": float(np.mean(returns)) if returns and env != ALL else None,
        "approx_kl": float(np.mean(kl)) if kl else None,
        "diverged": diverged,
        "seeds": len(rows),
        "cells": [
            variant,
            estimate_text(final.mean),
            estimate_text(final.interquartile_mean),
            estimate_text(over_run.mean),
            f"{np.mean(returns):.1f}" if returns and env != ALL else "-",
            f"{np.mean(kl):.2g}" if kl else "-",
            f"{diverged} of {len(rows)}",
        ],
    }
