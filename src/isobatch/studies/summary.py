"""Rows of results as a table: for each environment and variant, how good it was in the end and over the run."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from isobatch.statistics.tests import aggregate
from isobatch.studies.grid import Row
from isobatch.studies.scores import FINAL, MEAN, number, scores

ALL = "all environments"
COLUMNS = ["variant", "final, normalized", "interquartile mean", "over the run", "return", "KL", "diverged"]
Line = dict[str, Any]


def summarise_rows(rows: list[Row], factors: list[str]) -> list[Line]:
    """One line for each environment and variant, and one for a variant on all environments, if there are several."""
    lines = []
    for env in dict.fromkeys(row["env"] for row in rows):
        own = [row for row in rows if row["env"] == env]
        lines += [line_of(env, variant, chosen) for variant, chosen in by_variant(own, factors).items()]
    envs = {row["env"] for row in rows}
    for variant, chosen in by_variant(rows, factors).items():
        if len(envs) > 1 and {row["env"] for row in chosen} == envs:
            lines.append(line_of(ALL, variant, chosen))
    return lines


def by_variant(rows: list[Row], factors: list[str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(variant_name(row, factors), []).append(row)
    return found


def variant_name(row: Row, factors: list[str]) -> str:
    """Words speak for themselves, numbers need their factor's name."""
    parts = [row[name] if isinstance(row[name], str) else f"{name} {row[name]:g}" for name in factors]
    return ", ".join(parts).replace("_", " ")


def line_of(env: str, variant: str, rows: list[Row]) -> Line:
    final, over = aggregate(scores(rows, FINAL)), aggregate(scores(rows, MEAN))
    returns = [row["final_return"] for row in rows if row["final_return"] is not None]
    kl = [row["approx_kl"] for row in rows if row.get("approx_kl") is not None]
    return {
        "env": env,
        "variant": variant,
        "normalized_final": dataclasses.asdict(final.mean),
        "interquartile_mean": dataclasses.asdict(final.interquartile_mean),
        "normalized_mean": dataclasses.asdict(over.mean),
        "final_return": float(np.mean(returns)) if returns and env != ALL else None,
        "approx_kl": float(np.mean(kl)) if kl else None,
        "diverged": sum(row["diverged"] for row in rows),
        "seeds": len(rows),
        "cells": [
            variant,
            number(final.mean),
            number(final.interquartile_mean),
            number(over.mean),
            f"{np.mean(returns):.1f}" if returns and env != ALL else "-",
            f"{np.mean(kl):.2g}" if kl else "-",
            f"{sum(row['diverged'] for row in rows)} of {len(rows)}",
        ],
    }
