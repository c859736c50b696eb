"""Who goes on: trials are compared after a part of their steps, and the best third of them gets the next part.

That is successive halving (Jamieson & Talwalkar 2016, https://arxiv.org/abs/1502.07943) in groups. As in ASHA
(Li et al. 2020, https://arxiv.org/abs/1810.05934) a group also has to hold its own against all trials before it: where
not even its best trial is in the best third of all, it ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from isobatch.settings.config import Config

KEPT = 3  # one in so many goes on
SHARES = (1 / 9, 1 / 3)  # of the steps, after which trials are compared


@dataclass(frozen=True)
class Halving:
    """When trials are compared and how many go on. Without shares all of them are trained to the end."""

    shares: tuple[float, ...] = SHARES
    kept: int = KEPT

    def rungs(self, config: Config, log_interval: int) -> list[int]:
        """Iterations at which trials are compared, the last one among them; whole lines of metrics."""
        last, marks = config.num_iterations, list[int]()
        for share in self.shares:
            mark = max(1, round(share * last / log_interval)) * log_interval
            if (marks[-1] if marks else 0) < mark < last:
                marks.append(mark)
        return [*marks, last]

    def sizes(self, trials: int, together: int, rungs: int) -> list[int]:
        """How many trials of a group train towards each rung: never fewer than a program trains at once anyway."""
        return [max(min(together, trials), -(-trials // self.kept**rung)) for rung in range(rungs)]

    def cost(self, config: Config, log_interval: int, trials: int, together: int, num_seeds: int) -> int:
        """Environment steps of a group at the most, those of all seeds."""
        rungs = self.rungs(config, log_interval)
        iterations = [end - begin for begin, end in zip([0, *rungs], rungs, strict=False)]
        counts = self.sizes(trials, together, len(rungs))
        trained = sum(count * length for count, length in zip(counts, iterations, strict=True))
        return trained * num_seeds * config.geometry.iteration_batch

    def survivors(self, scores: Sequence[float], earlier: Sequence[float], places: int) -> list[int]:
        """The indices of those who go on, in their order: the best ones, at most `places`; or nobody.

        Who has a score of minus infinity diverged. `earlier` are the scores of all trials of earlier groups at the
        same rung.
        """
        everybody = sorted([*scores, *earlier], reverse=True)
        mark = everybody[-(-len(everybody) // self.kept) - 1]
        best = sorted((i for i in range(len(scores)) if scores[i] > -math.inf), key=lambda i: -scores[i])[:places]
        return sorted(best) if best and scores[best[0]] >= mark else []
