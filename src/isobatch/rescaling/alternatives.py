"""Other ways to have another number of environments, compared: what each holds, what it costs, what it kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from isobatch.errors import UsageError
from isobatch.rescaling import HOLD_MINIBATCH, ITERATION_BATCH, MINIBATCH_COUNT, MINIBATCH_SIZE, Rescaled, rescale
from isobatch.rescaling.cautions import share_collapses
from isobatch.rescaling.evidence import Kept, kept_by
from isobatch.settings.accounting import surely_used
from isobatch.settings.config import ENDLESS, Config

HELD = {
    ITERATION_BATCH: "N x T, so T follows and nothing else changes",
    MINIBATCH_SIZE: "T and the size of minibatches, so their number follows",
    MINIBATCH_COUNT: "T and the number of minibatches, so their size and the learning rate follow",
}


@dataclass(frozen=True)
class Alternative:
    """One way to the same number of environments."""

    keep: str
    result: Rescaled | None
    """Nothing where it cannot be had."""
    trouble: str = ""
    kept: Kept | None = None
    """Of the return of tuned settings, where it was measured."""
    time_limit: int | None = None
    """Steps of the longest episode, where whole episodes are used and it is known."""

    def to_json(self) -> dict[str, Any]:
        """{"keep", "held", "trouble", "kept"} and, where it can be had, sizes, costs and cautions."""
        kept = asdict(self.kept) if self.kept else None
        head = {"keep": self.keep, "held": HELD[self.keep], "trouble": self.trouble, "kept": kept}
        if self.result is None:
            return head
        used = {} if self.time_limit is None else {"samples_used": self.samples_used, "collapses": self.collapses}
        return head | _costs(self.result.after) | used | {"warnings": list(self.result.warnings)}

    @property
    def samples_used(self) -> int | None:
        """Samples of an iteration that whole episodes surely use."""
        if self.result is None or self.time_limit is None:
            return None
        return surely_used(self.result.after, self.time_limit)

    @property
    def collapses(self) -> bool:
        """Whether whole episodes use much less of what is collected than before."""
        return self.result is not None and share_collapses(self.result.before, self.result.after, self.time_limit)

    @property
    def cautions(self) -> list[str]:
        """What the cautions are about, without their explanations."""
        return [sentence.partition(":")[0] for sentence in self.result.warnings] if self.result else []


def _costs(after: Config) -> dict[str, Any]:
    g = after.geometry
    return {
        "num_envs": g.num_envs,
        "num_steps": g.num_steps,
        "num_minibatches": g.num_minibatches,
        "optimization_batch": g.optimization_batch,
        "learning_rate": after.hypers.learning_rate,
        "gradient_steps_per_env_step": g.gradient_steps / g.iteration_batch,
        "iterations": after.num_iterations if after.total_timesteps < ENDLESS else None,
        "samples_in_memory": g.iteration_batch,
    }


def alternatives(
    config: Config,
    num_envs: int,
    critical_batch: float | None = None,
    use: Sequence[str] = (),
    without: Sequence[str] = (),
    time_limit: int | None = None,
) -> list[Alternative]:
    """All ways to have `num_envs` environments, the one that kept most of tuned settings' return first.

    Where nothing was measured, the one that changes least is first. Ways in which whole episodes use much less of what
    is collected are last. `use` and `without` name rules as in `rescale`, and `time_limit` is that of `rescale`.
    """
    limit = time_limit if config.complete_episodes else None
    ways, use = [], [name for name in use if name != HOLD_MINIBATCH]  # which is one of the ways
    for keep in HELD:
        kept = kept_by(keep, config, num_envs)
        try:
            result = rescale(
                config,
                num_envs=num_envs,
                keep=keep,
                use=use,
                without=without,
                critical_batch=critical_batch,
                time_limit=time_limit,
            )
            ways.append(Alternative(keep, result, kept=kept, time_limit=limit))
        except UsageError as error:
            ways.append(Alternative(keep, None, str(error), kept))
    return sorted(ways, key=lambda other: (other.collapses, -(other.kept.value if other.kept else 0.0)))
