"""What became of a trial, and which of two is better."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from isobatch.settings.config import Config
from isobatch.settings.parsing import SettingsByName
from isobatch.studies.rows import Outcome, final_return, mean_return

LOST = -math.inf  # the score of a trial of which a seed diverged
UNKNOWN = -sys.float_info.max  # the score of a trial of which a seed has not ended an episode yet


class TrialRecord(TypedDict):
    """A trial in JSON, which has neither infinity nor tuples."""

    number: int
    settings: SettingsByName
    scores: list[float | None]
    rungs: int
    returns: list[float | None]
    mean_return: float | None
    diverged: int
    env_steps: int
    group: int


@dataclass(frozen=True)
class Trial:
    """Settings that were trained on some seeds, perhaps not to the end."""

    number: int
    settings: SettingsByName  # of what is searched
    scores: tuple[float, ...]  # mean return of the seeds at each rung that it reached: in the last tenth of its steps
    rungs: int  # of the whole way
    returns: tuple[float | None, ...]  # of each seed, at the last rung it reached
    mean_return: float | None  # along its curve
    diverged: int  # seeds
    env_steps: int  # of all seeds
    group: int = 0

    @property
    def finished(self) -> bool:
        """Whether it was trained to the end."""
        return len(self.scores) == self.rungs

    @property
    def score(self) -> float:
        return self.scores[-1]

    @property
    def has_return(self) -> bool:
        """Whether its score is one."""
        return self.score > UNKNOWN

    @property
    def worth(self) -> float:
        """A number for samplers: whoever went further was better, then the score counts, whatever its magnitude."""
        return len(self.scores) + 0.5 + math.atan(self.score) / math.pi

    def to_json(self) -> dict[str, object]:
        scores = [None if score == LOST else score for score in self.scores]
        return dataclasses.asdict(self) | {"scores": scores, "returns": list(self.returns)}

    @classmethod
    def from_json(cls, known: TrialRecord) -> Trial:
        return cls(
            known["number"], known["settings"], tuple(LOST if score is None else score for score in known["scores"]),
            known["rungs"], tuple(known["returns"]), known["mean_return"], known["diverged"], known["env_steps"],
            known["group"],
        )  # fmt: skip


def ranked(trials: Sequence[Trial]) -> list[Trial]:
    """Best first: those that were trained to the end, by their score; of equal ones the sooner one."""

    def key(trial: Trial) -> tuple[float, ...]:
        soon = LOST if trial.mean_return is None else trial.mean_return
        return -len(trial.scores), -round(trial.score, 6), -soon, trial.number

    return sorted(trials, key=key)


def trial_of(
    number: int, group: int, settings: SettingsByName, config: Config, outcome: Outcome, scores: Sequence[float],
    rungs: Sequence[int], seeds: Sequence[int],
) -> Trial:  # fmt: skip
    """From the curves of a trial that went as far as its scores."""
    steps = rungs[len(scores) - 1] * config.geometry.iteration_batch
    means = [mean_return(curve) for curve in curves_of(outcome, seeds) if len(curve["seed"])]
    known = [mean for mean in means if mean is not None]
    return Trial(
        number=number,
        settings=settings,
        scores=tuple(scores),
        rungs=len(rungs),
        returns=tuple(seed_returns(outcome, seeds, steps)),
        mean_return=float(np.mean(known)) if known else None,
        diverged=len(outcome.diverged),
        env_steps=steps * len(seeds),
        group=group,
    )


def seed_returns(outcome: Outcome, seeds: Sequence[int], env_steps: int) -> list[float | None]:
    """Of each seed the mean return at the end of these steps; None if it diverged or ended no episode."""
    return [
        None if seed in outcome.diverged else final_return(curve, env_steps)
        for seed, curve in zip(seeds, curves_of(outcome, seeds), strict=True)
    ]


def score_of(outcome: Outcome, seeds: Sequence[int], env_steps: int) -> float:
    """The mean over seeds; lost with any one of them."""
    if outcome.diverged:
        return LOST
    returns = [each for each in seed_returns(outcome, seeds, env_steps) if each is not None]
    return float(np.mean(returns)) if len(returns) == len(seeds) else UNKNOWN


def curves_of(outcome: Outcome, seeds: Sequence[int]) -> list[dict[str, np.ndarray]]:
    table = outcome.table
    return [{name: values[table["seed"] == seed] for name, values in table.items()} for seed in seeds]
