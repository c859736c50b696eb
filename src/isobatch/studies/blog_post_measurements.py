"""What is measured for the blog post, piece by piece: each is kept in a file of its own as soon as it is there.

PPO is trained with both settings that the post names, 4 environments x 256 steps and 16 x 64, on several seeds. The
first seed of the former is measured at the post's two steps, the first seed of the latter at the second of them.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from isobatch.formatting import Say
from isobatch.gradients.correlation import cosine_matrix, cosine_with_mean
from isobatch.gradients.layout import Layout
from isobatch.gradients.subsampling import minibatch_variance, row_variance
from isobatch.gradients.variance import direct_variance
from isobatch.laboratory.batches import batch_products, few_batches, mean_over_batches
from isobatch.laboratory.diagnosis import Diagnosis, Watch, diagnose, subject_of
from isobatch.laboratory.landscape import at_geometry, measure, weights_of
from isobatch.laboratory.options import LabOptions
from isobatch.laboratory.partial_results import MadePiece, PartialResults, Piece, remove_partial_results
from isobatch.laboratory.result_key import key_of
from isobatch.laboratory.results import load, store
from isobatch.laboratory.sections.cosines import PAIR_BATCHES, SampleCosines, sample_cosines
from isobatch.laboratory.sections.points import positive_part, ratio_of
from isobatch.laboratory.subject import Subject
from isobatch.settings.config import Config
from isobatch.settings.presets import preset
from isobatch.statistics.bootstrap import Estimate, estimate, of_resamples, pair_mean, ratio
from isobatch.statistics.normalization import normalize
from isobatch.studies.rows import final_return, mean_return
from isobatch.training.loading import load_run
from isobatch.training.run_directory import RunDirectory
from isobatch.training.trainer import train

EARLY, LATE = 390, 440  # iterations: the post's 399,360 and 450,560 steps
SEEDS = 8  # that are trained; one of them is measured
FIGURE_2_INTERVAL = 20  # iterations between its checkpoints
LAMBDAS = (0.0, 0.95, 1.0)
LONG, SHORT = "4x256", "16x64"
SHAPES = {LONG: (4, 256), SHORT: (16, 64)}
LENGTHS = (16, 64, 256)  # T whose individual variances are compared, at equal data
SHORTEST = 1  # T whose bias is compared with that of the longest of them
HEATMAP_BATCHES = 5  # as in the post
DIRECT_BATCHES = 64  # to measure the variance directly
CHAINS = 256
OVER_TRAINING = (20, 100, 200, 300, LATE)
CosineKind = Callable[[np.ndarray], np.ndarray]
R = TypeVar("R")


def post_config(shape: str = LONG) -> Config:
    """PPO as in the post, lambda 0.95, with one of its settings."""
    envs, steps = SHAPES[shape]
    return preset(
        "ppo", "Pendulum-v1", num_envs=envs, num_steps=steps, gae_lambda=0.95, total_timesteps=LATE * 1024,
        lr_schedule="constant", learning_rate=3e-4,
    )  # fmt: skip


@dataclass(frozen=True)
class BatchNumbers:
    """Of DIRECT_BATCHES batches at one N x T and lambda."""

    cosines: tuple[tuple[float, ...], ...]
    variance: Estimate

    def drawn(self) -> np.ndarray:
        return np.array(self.cosines)[:HEATMAP_BATCHES, :HEATMAP_BATCHES]

    def mean_of(self, kind: CosineKind) -> Estimate:
        """Of all pairs of batches."""
        cosines = kind(np.array(self.cosines))
        return estimate(lambda w: pair_mean(cosines, w), len(cosines), what="batches")


@dataclass(frozen=True)
class Coherence:
    """The mean cosine of a sample's gradient with its batch's, batch by batch: the same batches at every lambda."""

    by_lambda: dict[float, tuple[float, ...]]

    def mean(self, lam: float) -> Estimate:
        return mean_over_batches(self.by_lambda[lam], -1.0, 1.0)

    def fall(self, first: float, second: float) -> Estimate:
        """At one lambda minus at another."""
        low, high = (np.array(self.by_lambda[lam]) for lam in (first, second))
        return mean_over_batches(low - high, -2.0, 2.0)


@dataclass(frozen=True)
class OverLength:
    """Variance against T and lambda, of batches of equally many samples, from the same chains."""

    individual: dict[int, Estimate]  # by T: the part of the variance that single samples make
    individual_ratio: Estimate  # of the longest T to the shortest
    lambda_effect: dict[str, Estimate]  # by N x T: the variance at lambda 1 over that at lambda 0
    effect_ratio: Estimate  # of the long setting to the short one
    bias_excess: Estimate  # squared bias at the shortest T minus that at the longest


@dataclass(frozen=True)
class Shuffling:
    """Variance that a minibatch adds to the batch it is taken from, one of as many as there are environments."""

    size: int
    shuffled: Estimate  # by samples in a random order
    rows: Estimate  # by the samples of one environment
    difference: Estimate  # rows minus shuffled, batch by batch


@dataclass(frozen=True)
class SeedReturns:
    """Normalized returns of the seeds of a setting."""

    final: tuple[float, ...]
    mean: tuple[float, ...]  # over the run


@dataclass(frozen=True)
class Measurements:
    """Everything."""

    early: SampleCosines
    late: dict[float, SampleCosines]  # by lambda
    coherence: Coherence
    batches: dict[str, BatchNumbers]  # "N x T, lambda" of the long setting's policy
    own_batches: dict[str, BatchNumbers]  # the same of the short setting's own policy
    over_time: list[Diagnosis]  # lags at many checkpoints
    last: Diagnosis  # everything at the last one
    staggered: Diagnosis  # its geometries if environments were not reset together
    over_length: OverLength
    shuffling: Shuffling
    scores: dict[str, SeedReturns]  # by setting


class Bench:
    """The runs, and what is measured of them: piece by piece, each read from its file if it is there."""

    def __init__(self, out: Path, seed: int, watch: Watch, say: Say) -> None:
        self.out, self.watch, self.say = out, watch, say
        self.options = LabOptions(measure_seed=seed, chains=CHAINS, lambdas=(0.0, 0.5, 0.9, 0.95, 1.0))
        self.done = 0.0

    def run_dir(self, shape: str) -> Path:
        return self.out / "run" if shape == LONG else self.out / f"run-{shape}"

    def train(self, shape: str, share: float) -> SeedReturns:
        """Goes on with a run that was begun; every ten iterations are kept."""
        path, config, before = self.run_dir(shape), post_config(shape), self.done
        begun = RunDirectory.holds_run(path)
        if not begun and path.exists():
            shutil.rmtree(path)  # a kill while it was made
        result = train(
            config, num_seeds=SEEDS, run_dir=path, resume=begun, checkpoint_interval=10, keep_checkpoints=LATE // 10,
            say=self.say,
            watch=lambda now: self.watch(f"training {shape}", before + share * now.env_steps / config.env_steps),
        )  # fmt: skip
        if result.interrupted:
            raise KeyboardInterrupt
        self.done += share
        return scores_of(path, config)

    def piece(
        self, shape: str, iteration: int, name: str, kind: type[R], made: Callable[[Subject, PartialResults], R],
        share: float,
    ) -> R:  # fmt: skip
        """Measured, or read; one that was interrupted goes on inside."""
        self.watch(f"iteration {iteration} of {shape}: {name}", self.done)
        subject = subject_of(load_run(self.run_dir(shape), str(iteration)), self.options)
        text = "".join(letter if letter.isalnum() else "-" for letter in name)
        path = self.out / "results" / f"{shape}-{iteration:09d}-{text}.json"
        key = key_of(subject, iteration, name)
        result = load(path, key, kind) or store(path, key, made(subject, PartialResults(path, key)))
        remove_partial_results(path)
        self.done += share
        return result

    def cosines(self, iteration: int, lam: float) -> SampleCosines:
        def made(subject: Subject, parts: PartialResults) -> SampleCosines:
            return sample_cosines(subject, lam, parts)

        return self.piece(LONG, iteration, f"cosines, lambda {lam:g}", SampleCosines, made, 0.02)

    def batches(self, policy: str, shapes: tuple[str, ...]) -> dict[str, BatchNumbers]:
        """Of batches of some shapes and all lambda, that the last policy of a setting collects."""
        numbers = {}
        for shape in shapes:
            for lam in LAMBDAS:
                name = f"{shape}, {lam:g}"

                def made(subject: Subject, parts: PartialResults, shape: str = shape, lam: float = lam) -> BatchNumbers:
                    return batch_numbers(subject, *SHAPES[shape], lam, parts)

                numbers[name] = self.piece(policy, LATE, f"batches {name}", BatchNumbers, made, 0.01)
        return numbers

    def coherence(self) -> Coherence:
        return self.piece(LONG, LATE, "samples with their batch", Coherence, coherence, 0.01)

    def over_length(self) -> OverLength:
        return self.piece(LONG, LATE, "variance over T and lambda", OverLength, over_length, 0.04)

    def shuffling(self) -> Shuffling:
        return self.piece(LONG, LATE, "shuffling", Shuffling, shuffling, 0.02)

    def diagnose(
        self,
        folder: str,
        sections: str,
        iterations: tuple[int, ...],
        share: float,
        changes: Mapping[str, object] | None = None,
        options: LabOptions | None = None,
    ) -> list[Diagnosis]:
        """Sections of a diagnosis of the long setting's policies, each kept as it is finished."""
        chosen = dataclasses.replace(options or self.options, sections=sections)
        which, before = ",".join(map(str, iterations)), self.done
        diagnoses = diagnose(
            self.run_dir(LONG), chosen, which, None, self.out / folder, changes or {},
            lambda what, part: self.watch(what, before + share * part),
        )  # fmt: skip
        self.done = before + share
        return diagnoses


def scores_of(path: Path, config: Config) -> SeedReturns:
    table = RunDirectory.open(path).metrics()
    curves = [{name: values[table["seed"] == seed] for name, values in table.items()} for seed in range(SEEDS)]
    final = [final_return(curve, config.env_steps) for curve in curves]
    mean = [mean_return(curve) for curve in curves]
    ends, means = (tuple(normalize(config.env, np.array(each, float)).tolist()) for each in (final, mean))
    return SeedReturns(ends, means)


def batch_numbers(subject: Subject, num_envs: int, num_steps: int, lam: float, parts: PartialResults) -> BatchNumbers:
    config, count = subject.config.replace(gae_lambda=lam), DIRECT_BATCHES
    seed = subject.options.measure_seed + 7
    products = batch_products(config, subject.policy, subject.source, num_envs, num_steps, count, seed, parts)
    cosines = cosine_matrix(products, Layout.of(np.arange(count)))
    return BatchNumbers(tuple(map(tuple, cosines.tolist())), direct_variance(products))


def opposed(cosines: np.ndarray) -> np.ndarray:
    """How far two gradients point away from each other: 0 where they do not."""
    return np.maximum(-cosines, 0.0)


def paired_change(before: BatchNumbers, after: BatchNumbers, kind: CosineKind) -> Estimate:
    """Of the mean over pairs, from one lambda to another on the same batches."""
    change = kind(np.array(after.cosines)) - kind(np.array(before.cosines))
    return estimate(lambda w: pair_mean(change, w), len(change), what="batches")


def difference_of_sets(first: BatchNumbers, second: BatchNumbers, kind: CosineKind) -> Estimate:
    """First minus second, of batches that have nothing in common: each set is resampled by itself."""
    means = [
        pair_mean(kind(np.array(each.cosines)), weights_of(len(each.cosines), seed))
        for seed, each in enumerate((first, second))
    ]
    return of_resamples(means[0] - means[1])


def coherence(subject: Subject, parts: PartialResults) -> Coherence:
    count = min(PAIR_BATCHES, subject.options.batches)

    def means(lam: float) -> tuple[float, ...]:
        def make(first: int, last: MadePiece | None) -> Iterator[Piece]:
            for gram, layout in subject.sample_products(count, lam, first, parts):
                yield {"mean": np.nanmean(cosine_with_mean(gram, layout))}

        return tuple(float(made["mean"]) for made in parts.pieces(f"lambda-{lam:g}", make))

    return Coherence({lam: means(lam) for lam in LAMBDAS})


def over_length(subject: Subject, parts: PartialResults) -> OverLength:
    budget = subject.config.geometry.iteration_batch
    shapes = ",".join(f"{budget // steps}x{steps}" for steps in (SHORTEST, *LENGTHS))
    options = dataclasses.replace(subject.options, budget=budget, geometries=shapes)
    subject = dataclasses.replace(subject, options=options)
    gae_lambda = subject.config.hypers.gae_lambda
    ends = (LAMBDAS[0], LAMBDAS[-1])
    variants = [(t, gae_lambda) for t in (SHORTEST, *LENGTHS)]
    variants += [(t, lam) for _, t in SHAPES.values() for lam in ends]
    products, _ = measure(subject.config, subject.policy, subject.chains, variants, parts=parts)
    points = {
        (t, lam): at_geometry(products[t, lam], budget // t, (t, lam), False, subject.weights) for t, lam in variants
    }
    alone = {t: points[t, gae_lambda].individual for t in LENGTHS}
    bias = {t: points[t, gae_lambda].squared_bias for t in (SHORTEST, LENGTHS[-1])}
    effects = {
        name: ratio(points[t, ends[1]].variance, points[t, ends[0]].variance, otherwise=np.nan)
        for name, (_, t) in SHAPES.items()
    }
    return OverLength(
        {t: positive_part(values) for t, values in alone.items()},
        ratio_of(alone[LENGTHS[-1]], alone[LENGTHS[0]]),
        {name: positive_part(values) for name, values in effects.items()},
        ratio_of(effects[LONG], effects[SHORT]),
        of_resamples(bias[SHORTEST] - bias[LENGTHS[-1]]),
    )


def shuffling(subject: Subject, parts: PartialResults) -> Shuffling:
    envs, steps = subject.batch_shape
    environment = np.tile(np.arange(envs), steps)

    def make(first: int, last: MadePiece | None) -> Iterator[Piece]:
        for gram, _ in subject.sample_products(few_batches(subject.options.batches), None, first, parts):
            yield {"shuffled": minibatch_variance(gram, steps), "rows": row_variance(gram, environment, 1)}

    pairs = np.array([(float(made["shuffled"]), float(made["rows"])) for made in parts.pieces("batches", make)])
    shuffled, rows = pairs.T
    return Shuffling(
        steps, mean_over_batches(shuffled, 0.0), mean_over_batches(rows, 0.0), mean_over_batches(rows - shuffled)
    )
