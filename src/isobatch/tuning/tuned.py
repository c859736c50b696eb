"""What a search found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from isobatch.formatting import by_magnitude, counted, html_table, plain_table, setting_text
from isobatch.settings.config import Config
from isobatch.settings.parsing import SettingsByName
from isobatch.settings.presets import changed_settings
from isobatch.tuning.directory import Confirmed
from isobatch.tuning.ranges import SearchRange, settings_of
from isobatch.tuning.transfer import TransferResult
from isobatch.tuning.trials import Trial


@dataclass(frozen=True)
class Finalist:
    """One of the best trials, trained once more."""

    trial: Trial
    config: Config
    confirmed: Confirmed


@dataclass(frozen=True, repr=False)
class Tuned:
    """What a search found: `best`, and how it got there."""

    path: Path
    config: Config
    """Where it started."""
    ranges: dict[str, SearchRange]
    trials: list[Trial]
    """Best first."""
    finalists: list[Finalist]
    """Best first, by their returns on new seeds."""
    moved: TransferResult | None
    budget: int
    env_steps: int
    """Of everything: all seeds, stopped trials, the runs that confirm."""
    seconds: float
    compile_seconds: float

    @property
    def best(self) -> Config:
        """The settings that won, at the batch they are meant for."""
        return self.finalists[0].config if self.moved is None else self.moved.rescaled.after

    @property
    def settings(self) -> SettingsByName:
        """Those of `best` that are not its preset's, for YAML and flags."""
        return changed_settings(self.best)

    @property
    def start(self) -> Trial | None:
        """The trial with the settings it started from; there is none if they are outside of the choices."""
        settings = settings_of(self.config, self.ranges)
        return next((trial for trial in self.trials if trial.number == 0 and trial.settings == settings), None)

    def sentences(self) -> list[str]:
        """What was found and what it took."""
        winner, stopped = self.finalists[0], sum(not trial.finished for trial in self.trials)
        known = winner.confirmed.known
        spread = f", {by_magnitude(min(known))} to {by_magnitude(max(known))}" if known else ""
        start = self.start
        before = [] if start is None else [f"Trial 0, the settings it started from: {score_text(start)}."]
        return [
            f"Trial {winner.trial.number} won: mean return {by_magnitude(winner.confirmed.mean)} on "
            f"{counted(len(winner.confirmed.returns), 'new seed')}{spread}.",
            *before,
            f"{counted(len(self.trials), 'trial')}, {stopped} of them stopped early, "
            f"{self.env_steps:,} of {self.budget:,} environment steps, "
            f"{self.seconds:,.0f} s of work ({self.compile_seconds:,.0f} s of them to compile).",
            *(self.moved.sentences() if self.moved else []),
        ]

    def rows(self, count: int = 10) -> list[list[str]]:
        """Of a table of the best trials."""
        return [table_row(trial) for trial in self.trials[:count]]

    def columns(self) -> list[str]:
        return table_columns(self.ranges)

    def __repr__(self) -> str:
        return "\n".join([plain_table(self.columns(), self.rows()), *self.sentences()])

    def _repr_html_(self) -> str:
        return html_table(self.sentences()[0], self.columns(), self.rows())

    def to_json(self) -> dict[str, object]:
        """{"settings", "best", "finalists", "trials", "moved", "env_steps", "seconds", "sentences", ...}."""
        moved = self.moved
        return {
            "out": str(self.path),
            "settings": self.settings,
            "best": self.best.to_dict(),
            "sentences": self.sentences(),
            "finalists": [
                {"trial": each.trial.number, "settings": each.trial.settings, "returns": each.confirmed.returns}
                for each in self.finalists
            ],
            "moved": None
            if moved is None
            else {"returns": moved.there.returns, "lost": moved.lost, "seconds_there": moved.seconds_there}
            | {"search_seconds": moved.search_seconds, "search_steps": moved.search_steps}
            | {"warnings": list(moved.rescaled.warnings)},
            "trials": [trial.to_json() for trial in self.trials],
            "budget": self.budget,
            "env_steps": self.env_steps,
            "seconds": self.seconds,
            "compile_seconds": self.compile_seconds,
        }


def table_columns(ranges: Iterable[str]) -> list[str]:
    return ["trial", "return", "steps", *(name.replace("_", " ") for name in ranges)]


def table_row(trial: Trial) -> list[str]:
    values = [setting_text(value) for value in trial.settings.values()]
    return [str(trial.number), score_text(trial), f"{trial.env_steps // len(trial.returns):,}", *values]


def score_text(trial: Trial) -> str:
    score = by_magnitude(trial.score) if trial.has_return else "diverged" if trial.diverged else "no episode"
    return score if trial.finished else f"{score}, stopped"
