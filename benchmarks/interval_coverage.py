"""How often 95 % intervals of the variance of a batch gradient hold the truth, by simulation.

    python benchmarks/interval_coverage.py [--repetitions 2000]

A unit is a vector: a normal one of as many dimensions as the gradient's noise effectively has, or one whose length is
lognormal besides. Prints the table of docs/gradients.md, less than two minutes of one core.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from scipy import stats

from isobatch.gradients.layout import gram_of
from isobatch.gradients.variance import direct, direct_variance
from isobatch.statistics.bootstrap import Estimate, estimate

UNITS = (4, 8, 16, 64)
UNEVEN = np.array([1.0, 0.3, 0.1, 0.03])  # variances of four dimensions
Draw = Callable[[np.random.Generator, int], np.ndarray]


def normal(variances: np.ndarray) -> tuple[Draw, float]:
    return lambda rng, units: rng.normal(size=(units, len(variances))) * variances**0.5, float(variances.sum())


def lognormal(sigma: float) -> tuple[Draw, float]:
    """Normal in six dimensions, times exp(sigma z): E|x|^2 = 6 exp(2 sigma^2)."""

    def draw(rng: np.random.Generator, units: int) -> np.ndarray:
        return rng.normal(size=(units, 6)) * np.exp(sigma * rng.normal(size=(units, 1)))

    return draw, 6 * float(np.exp(2 * sigma**2))


PROBLEMS = {
    "1 dimension": normal(np.ones(1)),
    "2 dimensions": normal(np.ones(2)),
    "6 dimensions": normal(np.ones(6)),
    "variances 1, .3, .1, .03": normal(UNEVEN),
    "lognormal lengths, sigma .5": lognormal(0.5),
    "lognormal lengths, sigma 1": lognormal(1.0),
}


def bootstrap(gram: np.ndarray) -> Estimate:
    return estimate(direct(gram), len(gram), 300, least=0.0)


def jackknife_t(gram: np.ndarray) -> Estimate:
    """Student's interval of the pseudo-values."""
    units, statistic = len(gram), direct(gram)
    value = float(statistic(np.ones(units)))
    pseudo = units * value - (units - 1) * statistic(1.0 - np.eye(units))
    half = float(stats.t.ppf(0.975, units - 1) * stats.sem(pseudo))
    return Estimate(value, value - half, value + half)


INTERVALS: dict[str, Callable[[np.ndarray], Estimate]] = {
    "percentile bootstrap": bootstrap,
    "jackknife, Student": jackknife_t,
    "jackknife, skewness (taken)": direct_variance,
}


def coverage(problem: str, units: int, repetitions: int, interval: str) -> float:
    draw, truth = PROBLEMS[problem]
    rng, of = np.random.default_rng(0), INTERVALS[interval]
    found = [of(gram_of(draw(rng, units))) for _ in range(repetitions)]
    return float(np.mean([each.low <= truth <= each.high for each in found]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=2000)
    repetitions = parser.parse_args().repetitions
    print(f"| a unit | batches | {' | '.join(INTERVALS)} |\n|---|---:|{'---:|' * len(INTERVALS)}")
    for problem in PROBLEMS:
        for units in UNITS:
            shares = [f"{coverage(problem, units, repetitions, name):.0%}".replace("%", " %") for name in INTERVALS]
            print(f"| {problem} | {units} | {' | '.join(shares)} |", flush=True)


if __name__ == "__main__":
    main()
