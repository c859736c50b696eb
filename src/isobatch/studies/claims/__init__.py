"""The registry of studies: one file of this folder for each claim, with its grid and its verdict."""

from __future__ import annotations

from isobatch.errors import unknown_name
from isobatch.studies.claims import (
    adam_rule,
    aggregation,
    asynchrony,
    epochs,
    ewma,
    explain,
    geometry,
    invariance,
    newer_rules,
    prox_grid,
    sgd_rule,
    staleness,
    transfer,
)
from isobatch.studies.grid import Study

STUDIES: dict[str, Study] = {
    module.STUDY.name: module.STUDY
    for module in (
        staleness,
        invariance,
        adam_rule,
        sgd_rule,
        newer_rules,
        ewma,
        prox_grid,
        epochs,
        geometry,
        aggregation,
        asynchrony,
        transfer,
        explain,
    )
}


def study_of(name: str) -> Study:
    if name not in STUDIES:
        raise unknown_name(f"study {name!r}", name, STUDIES)
    return STUDIES[name]


def study_names() -> list[str]:
    """Names of the studies: the claims that are experiments here, mostly of https://arxiv.org/abs/2110.00641.

    Example:
        >>> import isobatch as ib
        >>> "invariance" in ib.study_names()
        True
    """
    return list(STUDIES)
