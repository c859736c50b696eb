"""Small to large: what became of the winner of a search at a cheap batch, moved to another number of environments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isobatch.formatting import by_magnitude, with_interval
from isobatch.rescaling import Rescaled
from isobatch.statistics.bootstrap import Estimate
from isobatch.statistics.comparisons import difference
from isobatch.tuning.directory import Confirmed


@dataclass(frozen=True)
class TransferResult:
    """The winner at the batch that it is meant for."""

    rescaled: Rescaled
    here: Confirmed  # where it was searched
    there: Confirmed
    search_steps: int  # of all groups
    search_seconds: float  # without compilation

    @property
    def lost(self) -> Estimate | None:
        """Mean return here minus there, with Welch's interval; None where a seed was lost."""
        returns = [np.array(each.known) for each in (self.here, self.there)]
        if len(self.here.known) < len(self.here.returns) or len(self.there.known) < len(self.there.returns):
            return None
        env = self.rescaled.after.env
        return difference({env: returns[0]}, {env: returns[1]})[1].value

    @property
    def seconds_there(self) -> float:
        """Of the same trials at the other batch, by the speed of the runs that confirm: equally many lanes of both."""
        return self.search_seconds * self.here.steps_per_second / self.there.steps_per_second

    def sentences(self) -> list[str]:
        before, after = self.rescaled.before, self.rescaled.after
        small, large = (f"{each.num_envs} x {each.num_steps}" for each in (before, after))
        saved = self.seconds_there - self.search_seconds
        speeds = f"{self.there.steps_per_second:,.0f} steps/s at {large}, {self.here.steps_per_second:,.0f} at {small}"
        verb = f"{saved:,.0f} s less" if saved >= 0 else f"{-saved:,.0f} s more: nothing was saved"
        steps = after.env_steps / before.env_steps * self.search_steps
        lost = self.lost
        return [
            f"Moved from {small} to {large}: {_mean(self.there)} on {len(self.there.returns)} new seeds, "
            f"{_mean(self.here)} where it was searched.",
            "Lost: a run diverged."
            if lost is None
            else f"Lost: {with_interval(lost, by_magnitude)} (return here minus there, 95 % interval).",
            f"Seconds: {self.search_seconds:,.0f} of training for the search; the same trials at {large} would take "
            f"about {self.seconds_there:,.0f} ({speeds}), so the search took {verb}.",
            f"Steps: {self.search_steps:,} for the search, {steps:,.0f} for the same trials there.",
        ]


def _mean(confirmed: Confirmed) -> str:
    lost = len(confirmed.returns) - len(confirmed.known)
    mean = by_magnitude(float(np.mean(confirmed.known))) if confirmed.known else "-"
    return mean + (f" ({lost} of {len(confirmed.returns)} diverged)" if lost else "")
