"""Which environment stands apart from the others?

The paper gives its gap between batch sizes with and without one outlier, Heist, and no rule for what an outlier is.
Here it is the modified z-score of Iglewicz & Hoaglin (1993), *How to detect and handle outliers*:

    M_e = 0.6745 (d_e - median(d)) / MAD,   MAD = median_e |d_e - median(d)|,

with d_e the difference in environment e, and an outlier is the environment with the largest |M_e| if that exceeds 3.5.
0.6745 is the 75 % quantile of the standard normal, so that M is a z-score for normal differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

LIMIT = 3.5
FEWEST = 4  # environments: the median of fewer tells nothing about the rest


@dataclass(frozen=True)
class Farthest:
    """The environment that is farthest from the median, and its modified z-score: infinite if half are equal."""

    env: str
    score: float

    @property
    def is_outlier(self) -> bool:
        return abs(self.score) > LIMIT


def farthest(differences: Mapping[str, float]) -> Farthest | None:
    """None where there are too few environments, or all are equal."""
    if len(differences) < FEWEST:
        return None
    values = np.array(list(differences.values()))
    apart = values - np.median(values)
    if not np.any(apart):
        return None
    place, deviation = int(np.argmax(np.abs(apart))), float(np.median(np.abs(apart)))
    score = 0.6745 * apart[place] / deviation if deviation else np.copysign(np.inf, apart[place])
    return Farthest(list(differences)[place], float(score))
