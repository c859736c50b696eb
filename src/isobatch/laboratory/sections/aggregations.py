"""The four aggregations of a loss, on batches of whole episodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from isobatch.drawing import COLORS, new_figure, save_figure
from isobatch.gradients.aggregations import compare
from isobatch.laboratory.batches import first_episodes
from isobatch.laboratory.chains import chain_bytes
from isobatch.laboratory.inner_products import check_memory
from isobatch.laboratory.partial_results import PartialResults
from isobatch.laboratory.sections.plotting import draw_bars
from isobatch.laboratory.sections.points import cell
from isobatch.laboratory.sections.section import TextTable, Watch
from isobatch.laboratory.subject import NotMeasurableError, Subject
from isobatch.statistics.bootstrap import Estimate

FEWEST_EPISODES = 8  # that can be compared


@dataclass(frozen=True)
class PairCosine:
    """Between the gradients of two aggregations of the same episodes."""

    pair: tuple[str, str]
    estimate: Estimate

    @property
    def name(self) -> str:
        return " and ".join(self.pair)


@dataclass(frozen=True)
class Aggregations:
    episodes: int
    unfinished: int
    horizon: int
    episodes_per_batch: int
    length_mean: float
    length_deviation: float
    factor_variation: Estimate  # of N / sum T_i over batches: deviation / mean
    cosines: tuple[PairCosine, ...]
    expected_cosine: Estimate  # between `trajectory` and `trajectory-mean`, free of noise

    @classmethod
    def measure(cls, subject: Subject, parts: PartialResults, watch: Watch) -> Self:
        config, options = subject.config, subject.options
        horizon = options.horizon or subject.source.time_limit
        count = max(4 * config.num_envs, options.chains)
        vectors, lengths = _episodes(subject, count, horizon, parts)
        per_batch = min(config.num_envs, max(2, len(lengths) // 8))
        comparison = compare(vectors @ vectors.T, lengths, per_batch, seed=options.measure_seed)
        return cls(
            episodes=len(lengths),
            unfinished=count - len(lengths),
            horizon=horizon,
            episodes_per_batch=per_batch,
            length_mean=float(np.mean(lengths)),
            length_deviation=float(np.std(lengths)),
            factor_variation=comparison.factor_variation,
            cosines=tuple(PairCosine(pair, value) for pair, value in comparison.cosines.items()),
            expected_cosine=comparison.expected_cosine,
        )

    def interpret(self) -> Iterator[str]:
        if self.unfinished:
            yield (
                f"{self.unfinished:,} of {self.unfinished + self.episodes:,} episodes did not end within "
                f"{self.horizon:,} steps and are left out, so the compared ones are the shorter ones: a larger horizon "
                "has more of them."
            )
        variation = self.factor_variation.value
        if variation == 0:
            yield "All episodes are equally long: the aggregations differ by constant factors only."
            return
        cosine = next(row.estimate for row in self.cosines if row.pair == ("timestep", "trajectory-mean"))
        yield (
            f"Batches of {self.episodes_per_batch} whole episodes: the factor N / sum T_i between timestep and "
            f"trajectory aggregation varies by {variation:.0%} from batch to batch, and trajectory-mean has a cosine "
            f"of {cosine.value:.2f} with them."
        )

    def tables(self) -> list[TextTable]:
        title = (
            f"Cosines between aggregations of {self.episodes_per_batch} whole episodes of {self.length_mean:.0f} "
            f"± {self.length_deviation:.0f} steps"
        )
        return [TextTable(title, ["aggregations", "cosine"], [[r.name, cell(r.estimate)] for r in self.cosines])]

    def draw(self, path: Path, title: str) -> None:
        """The cosine between each two aggregations."""
        figure, axes = new_figure(size=(8, 3.2))
        draw_bars(axes, [row.name for row in self.cosines], [row.estimate for row in self.cosines], COLORS[0])
        axes.set(xlabel="cosine of the gradients of the same episodes (bars: 95 % intervals)")
        axes.set_title(f"{title}, batches of {self.episodes_per_batch} whole episodes", fontsize=10)
        save_figure(figure, path)


def _episodes(subject: Subject, count: int, horizon: int, parts: PartialResults) -> tuple[np.ndarray, np.ndarray]:
    """Sums of the gradients of whole episodes [E, P] and their lengths, of those that end within the horizon."""
    need = chain_bytes(subject.source.obs_bytes, subject.parameters, count, horizon)
    check_memory(need, f"{count} episodes of up to {horizon} steps", "chains, num_envs or horizon")
    segment = subject.source.episodes(count, horizon, subject.options.measure_seed + 4, parts)
    vectors, lengths, ended = first_episodes(subject.config, subject.policy, segment, parts)
    if ended.sum() < FEWEST_EPISODES:
        limit = subject.source.known_limit
        most = f"up to {limit}, the time limit" if limit else "more"
        raise NotMeasurableError(
            f"horizon={horizon}: {int(ended.sum())} of {count} episodes end within it, too few to compare them: "
            f"use {most}."
        )
    return vectors[ended].astype(float), lengths[ended]
