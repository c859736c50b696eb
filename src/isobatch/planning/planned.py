"""What a plan says: one recommendation, what it was chosen from, and why."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from isobatch.formatting import TO, by_magnitude, counted, html_list, html_table, plain_table, rounded, with_interval
from isobatch.planning.critical_batches import LARGEST
from isobatch.planning.devices import Link
from isobatch.planning.forecast import Forecast, Forecaster
from isobatch.planning.moves import Shape
from isobatch.planning.scores import Reached
from isobatch.planning.seconds import Line
from isobatch.settings.config import Config
from isobatch.settings.parsing import SettingsByName
from isobatch.settings.presets import changed_settings
from isobatch.statistics.bootstrap import Estimate

TITLE = "The fastest, their neighbors and the run (*: recommended, -: left out, as said below)"
COLUMNS = ["environments x steps", "minibatches", "batch", "steps to score", "steps/s", "time to score", "own = 1"]
COLUMNS += ["iterations", "seconds are"]


@dataclass(frozen=True)
class DevicesRow:
    """The fastest shape on so many devices like the one that was measured, by the model of `devices`."""

    devices: int
    link: Link
    forecast: Forecast
    speedup: float
    """Of the time to the score, against the fastest on one device."""
    same_settings: float
    """The same, with the settings that are recommended on one device."""


@dataclass(frozen=True, repr=False)
class Plan:
    """Which batch reaches the score soonest on this machine: `recommended`, `config`, and the reasons."""

    run: Config
    reached: Reached
    current: Forecast
    recommended: Forecast
    config: Config
    """The settings that are recommended, for a whole run."""
    rows: tuple[Forecast, ...]
    """The fastest, the neighbors of the recommended one, and the run's own; fastest first."""
    unfit: frozenset[Shape]
    """Those of them that are not recommended however fast they are: `left_out` says why."""
    forecaster: Forecaster
    chance: float
    """Share of the draws in which the recommended one is within `near` of the fastest."""
    near: float
    tie: float
    devices: tuple[DevicesRow, ...]
    lagged: Forecast | None
    """The recommended one with actors that are one iteration behind, where environments step outside."""
    lag_remark: str
    cautions: tuple[str, ...]
    left_out: tuple[str, ...]
    """Why what seems faster is not recommended."""
    num_seeds: int

    @property
    def settings(self) -> SettingsByName:
        """Those of `config` that are not its preset's, for YAML and flags."""
        return changed_settings(self.config)

    @property
    def speedup(self) -> Estimate:
        """Of the recommended one against the run's own."""
        ratios = self.forecaster.drawn(self.current.shape) / self.forecaster.drawn(self.recommended.shape)
        low, high = np.quantile(ratios[1:], (0.025, 0.975))
        return Estimate(float(ratios[0]), float(low), float(high))

    @property
    def critical_batches(self) -> str:
        stages = self.forecaster.need.stages
        shown = [over(stage.critical_batch.value) for stage in stages]
        values = shown[0] if len(set(shown)) == 1 else " -> ".join(shown)
        return f"{values} ({', '.join(dict.fromkeys(stage.source for stage in stages))})"

    def table(self) -> list[list[str]]:
        return [self._row(each) for each in self.rows]

    def _row(self, each: Forecast) -> list[str]:
        shape = each.shape
        marks = [mark for mark, other in (("*", self.recommended), ("run", self.current)) if other.shape == shape]
        marks += ["-"] if shape in self.unfit else []
        return [
            " ".join([shape.name, *marks]),
            f"{shape.num_minibatches:,}",
            f"{shape.optimization_batch:,}",
            f"{rounded(each.samples, 3)}",
            f"{rounded(each.steps_per_second, 3)}",
            f"{seconds_text(each.seconds)}",
            f"{self.current.seconds.value / each.seconds.value:.2f} x",
            f"{each.samples / shape.iteration_batch:,.0f}",
            each.origin,
        ]

    def sentences(self) -> list[str]:
        """The recommendation, its reasons and its uncertainty, and what devices and actors would bring."""
        return [*self._recommendation(), *self._device_sentences(), *self._lag_sentences()]

    def _recommendation(self) -> list[str]:
        best, current, need = self.recommended, self.current, self.forecaster.need
        shape, base = best.shape, current.shape
        what = f"{shape.name} in {counted(shape.num_minibatches, 'minibatch')}"
        if shape == base:
            head = f"Stay with {what}: nothing that fits is faster by more than {self.tie:.0%}."
        else:
            head = (
                f"Use {what}: {with_interval(self.speedup, '{:.2g}'.format, TO)} times as fast to the score as the run."
            )
        ratio = best.samples / current.samples
        batches = instead("minibatches", shape.optimization_batch, base.optimization_batch)
        iterations = instead("iterations", shape.iteration_batch, base.iteration_batch)
        per_step = [each.seconds.value / each.samples for each in (best, current)]
        reason = (
            f"Samples: {ratio:.2f} times as many ({batches}; {iterations}; critical batch size "
            f"{self.critical_batches}). "
            f"Seconds of a sample: {per_step[0] / per_step[1]:.2f} times as many, {best.origin}."
        )
        split = f"Of its iterations {best.collecting / (best.collecting + best.learning):.0%} are collecting"
        was = f"{current.collecting / (current.collecting + current.learning):.0%} in the run's"
        stage = need.stages[-1].critical_batch
        known = "" if not stage.low < stage.high else f", critical batch size in the last stage {with_interval(stage)}"
        sure = (
            f"In {self.chance:.0%} of {len(self.forecaster.drawn(shape)):,} draws of what is not known (critical batch "
            f"sizes, iterations, seconds) it is within {self.near:.0%} of the fastest{known}."
        )
        return [head, reason, f"{split}, {was}.", sure]

    def _device_sentences(self) -> list[str]:
        sentences = []
        for row in self.devices:
            shape = row.forecast.shape
            name = {2: "Two", 4: "Four", 8: "Eight"}.get(row.devices, str(row.devices))
            brings = f"{row.speedup:.1f} x, not {row.devices}" if row.speedup >= 1 else f"nothing ({row.speedup:.2g} x)"
            what = f", at {shape.name} in {counted(shape.num_minibatches, 'minibatch')}; with the settings above "
            what += f"{row.same_settings:.2g} x"
            if dataclasses.replace(shape, devices=1) == self.recommended.shape:
                what = ", with the settings above"
            sentences.append(f"{name} devices like this one ({row.link.name}) would bring {brings}{what}.")
        return sentences

    def _lag_sentences(self) -> list[str]:
        if self.lagged is None:
            return []
        gain = self.recommended.seconds.value / self.lagged.seconds.value
        return [
            f"Actors that collect meanwhile (--actors 2 --max-lag 1i) would bring {gain:.2f} x if data that is one "
            f"iteration older cost no more than that delay, which is not known beforehand. {self.lag_remark}"
        ]

    @property
    def summary(self) -> list[tuple[str, str]]:
        """What the plan is about, label and text."""
        score = by_magnitude(self.reached.score)
        whose = "of the run itself, short of 5 % of what it gained" if self.reached.of_run else "as asked for"
        median, seeds = self.reached.median, counted(len(self.reached.steps), "seed")
        need, lag = self.forecaster.need, self.current.shape.lag
        late = f", with actors up to {counted(lag, 'iteration')} behind" if lag else ""
        return [
            ("score", f"{score}, {whose}"),
            ("reached", f"after {with_interval(median, lambda x: f'{x:,.0f}')} steps, median of {seeds}"),
            ("critical batch", f"{self.critical_batches}, the run's batch is {need.batch:,}"),
            ("a run is", f"of {counted(self.num_seeds, 'seed')} at a time, on this machine as busy as it is now{late}"),
        ]

    def __repr__(self) -> str:
        return "\n".join([plain_table(COLUMNS, self.table()), *self.sentences()])

    def _repr_html_(self) -> str:
        return html_table(self.sentences()[0], COLUMNS, self.table()) + html_list(self.sentences()[1:])

    def to_json(self) -> dict[str, object]:
        """{"recommended", "current", "rows", "settings", "devices", "critical_batches", "sentences", ...}."""
        seconds, need = self.forecaster.seconds, self.forecaster.need
        return {
            "score": self.reached.score,
            "steps_to_score": list(self.reached.steps),
            "recommended": _json(self.recommended),
            "current": _json(self.current),
            "rows": [_json(each) for each in self.rows],
            "settings": self.settings,
            "chance": self.chance,
            "speedup": vars(self.speedup),
            "critical_batches": [
                {"first": stage.first, "last": stage.last, **vars(stage.critical_batch), "source": stage.source}
                for stage in need.stages
            ],
            "collecting": _line(seconds.collecting, "num_envs"),
            "learning": _line(seconds.learning, "optimization_batch"),
            "iterations": [vars(timed) for timed in seconds.whole],
            "devices": [
                {"devices": row.devices, "link": row.link.name, "speedup": row.speedup}
                | {"same_settings": row.same_settings, **_json(row.forecast)}
                for row in self.devices
            ],
            "lagged": None if self.lagged is None else _json(self.lagged),
            "sentences": self.sentences(),
            "cautions": list(self.cautions),
            "left_out": list(self.left_out),
        }


def seconds_text(estimate: Estimate) -> str:
    """`12 s [10, 15]`, in minutes or hours where it is long."""
    unit, name = next(
        (unit, name) for unit, name in ((3600, "h"), (60, "min"), (1, "s")) if estimate.value >= 2 * unit or unit == 1
    )
    scaled = Estimate(*(each / unit for each in (estimate.value, estimate.low, estimate.high)))
    low, high = (rounded(each, 2) for each in (scaled.low, scaled.high))
    return f"{rounded(scaled.value, 2)} {name} [{low}, {high}]"


def over(critical_batch: float) -> str:
    """A critical batch size; of one that was too large to be told, how large it is at least."""
    return f"over {LARGEST:,.0f}" if critical_batch >= LARGEST else rounded(critical_batch, 2)


def instead(what: str, new: int, current: int) -> str:
    """`minibatches of 128 samples, not 256`."""
    return f"{what} of {new:,} samples" + (f", not {current:,}" if new != current else " as in the run")


def _json(each: Forecast) -> dict[str, object]:
    return {
        **vars(each.shape),
        "samples": each.samples,
        "seconds": vars(each.seconds),
        "collecting": each.collecting,
        "learning": each.learning,
        "origin": each.origin,
    }


def _line(line: Line, name: str) -> list[dict[str, float]]:
    return [{name: size, "seconds": seconds} for size, seconds in zip(line.sizes, line.seconds, strict=True)]
