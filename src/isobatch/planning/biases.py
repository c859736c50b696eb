"""How short rollouts may be: from the run's diagnosis where there is one, else by a rule of thumb."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from isobatch.formatting import rounded
from isobatch.laboratory.results import from_json
from isobatch.laboratory.sections.geometries import Geometries
from isobatch.settings.config import Config
from isobatch.training.run_directory import RunDirectory

MUCH_ERROR = 1.25  # times the error of the gradient at the run's own T: ours
HORIZONS = 4  # that a rollout holds at least, where nothing was measured: ours


@dataclass(frozen=True)
class Biases:
    """What shorter rollouts do to the gradient."""

    own_steps: int
    horizon: float
    """1/(1 - gamma lambda): how far generalized advantage estimation looks ahead."""
    errors: dict[int, float]
    """T -> error of the gradient at equal data, in units of the run's own; from a diagnosis, or empty."""

    @classmethod
    def of_run(cls, directory: RunDirectory, config: Config) -> Biases:
        decay = config.hypers.gamma * config.hypers.gae_lambda
        horizon = 1 / (1 - decay) if decay < 1 else math.inf
        return cls(config.num_steps, horizon, errors_of(directory))

    def is_too_short(self, num_steps: int) -> bool:
        """Whether rollouts of this length have much more error than the run's, or hold too few horizons."""
        if num_steps >= self.own_steps:
            return False
        known = self.error(num_steps)
        return num_steps < HORIZONS * self.horizon if known is None else known > MUCH_ERROR

    def error(self, num_steps: int) -> float | None:
        """At the longest rollout that was measured up to this length."""
        below = [steps for steps in self.errors if steps <= num_steps]
        return self.errors[max(below)] if below else None

    def cautions(self, num_steps: int) -> list[str]:
        if num_steps >= self.own_steps:
            return []
        known = self.error(num_steps)
        if known is not None:
            return [
                f"num_steps {self.own_steps} -> {num_steps}: the run's diagnosis has {known:.2f} times the error of "
                "the gradient there, at equal data."
            ]
        return [
            f"num_steps {self.own_steps} -> {num_steps}: what bias that brings was not measured, and rollouts of "
            f"{HORIZONS} horizons ({rounded(HORIZONS * self.horizon)} steps) are taken to be long enough; `isobatch "
            "diagnose RUN --sections geometries` measures it."
        ]


def errors_of(directory: RunDirectory) -> dict[int, float]:
    """Of the newest diagnosis of the run that has geometries, its own among them."""
    for path in sorted((directory.path / "diagnosis").glob("*-geometries.json"), reverse=True):
        try:
            geometries = from_json(Geometries, json.loads(path.read_text())["result"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # of another version, or damaged
            continue
        errors = {row.num_steps: row.error_to_current for row in geometries.rows}
        return {steps: each.value for steps, each in errors.items() if each is not None and math.isfinite(each.value)}
    return {}
