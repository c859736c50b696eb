"""When a run reached a score, seed by seed, by its smoothed learning curve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isobatch.errors import UsageError
from isobatch.formatting import by_magnitude
from isobatch.statistics.bootstrap import LEAST_FOR_INTERVAL, Estimate, percentile_interval, resample
from isobatch.training.curves import seed_curves
from isobatch.training.metrics import EPISODES, RETURN, Table, final_returns

WINDOW = 0.05  # of a run, over which its curve is a running mean
POINTS = 400  # along it
SHORT_OF_FINAL = 0.05  # of what was gained: a curve that has flattened out crosses its last level by chance


@dataclass(frozen=True)
class Reached:
    """A score, and the environment steps at which each seed had it: nan where one never did."""

    score: float
    steps: tuple[float, ...]
    of_run: bool
    """Whether the score is that of the run itself, not one that was asked for."""

    @property
    def median(self) -> Estimate:
        """Over seeds, those that never had it last; with an interval where there are enough seeds."""
        steps = np.where(np.isnan(self.steps), np.inf, self.steps)
        middle = float(median(steps))
        if len(steps) < LEAST_FOR_INTERVAL:
            return Estimate(middle)
        drawn = [float(median(np.repeat(steps, times))) for times in resample(len(steps))]
        return percentile_interval(middle, np.array(drawn))


def median(steps: np.ndarray) -> float:
    """The lower one of the two in the middle: a mean with one that never had the score would be infinite."""
    return np.sort(steps)[(len(steps) - 1) // 2]


def reached(table: Table, env_steps: int, score: float | None = None) -> Reached:
    """When the run of this table had the score, by default its own: `own_score`."""
    missing = [name for name in (RETURN, EPISODES) if name not in table]
    if missing:
        raise UsageError(f"the metrics of this run have no {' and no '.join(missing)}: train it anew.")
    if np.all(np.isnan(table[RETURN])):
        raise UsageError(
            "no episode has ended in this run, so it has no score: train it for longer (total_timesteps) before it is "
            "planned."
        )
    x, curves = seed_curves(table, RETURN, WINDOW, POINTS)
    goal = own_score(table, env_steps, curves) if score is None else score
    result = Reached(goal, tuple(crossing(x, curve, goal) for curve in curves), score is None)
    if not np.isfinite(result.median.value):
        best = by_magnitude(float(np.median(np.nanmax(curves, axis=1))))
        raise UsageError(
            f"score={goal:g} is not what this run reached: half of its seeds must have it, and they got to {best}. Use "
            f"a lower score, or train for longer."
        )
    return result


def own_score(table: Table, env_steps: int, curves: np.ndarray) -> float:
    """The final return, short of a twentieth of what was gained since the beginning of the curves [S, P]."""
    finals = [each for each in final_returns(table, env_steps) if each is not None]
    began = [curve[~np.isnan(curve)][0] for curve in curves if not np.all(np.isnan(curve))]
    if not finals:
        raise UsageError("no episode ended in the last tenth of this run, so it has no final score: give a score.")
    final, first = float(np.median(finals)), float(np.median(began))
    if final <= first:
        raise UsageError(
            f"the run has learned nothing: its return was {by_magnitude(first)} at first and {by_magnitude(final)} in "
            "the end. Plan one that has, or give a score that it reached."
        )
    return final - SHORT_OF_FINAL * (final - first)


def crossing(x: np.ndarray, curve: np.ndarray, score: float) -> float:
    """Where a curve first is at the score, between two points by a straight line; nan where it never is."""
    above = np.flatnonzero(curve >= score)
    if not above.size:
        return float("nan")
    place = int(above[0])
    before = curve[place - 1] if place else np.nan
    if np.isnan(before):
        return float(x[place])
    share = (score - before) / (curve[place] - before)
    return float(x[place - 1] + share * (x[place] - x[place - 1]))
