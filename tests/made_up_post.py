"""What the blog post's study could have measured: every number is made up, and a few are arguments."""

import numpy as np

from isobatch.laboratory.diagnosis import Diagnosis
from isobatch.laboratory.sections.cosines import CosineMeans, Histogram, SampleCosines
from isobatch.laboratory.sections.geometries import Geometries, GeometryRow
from isobatch.laboratory.sections.lags import LAGS, LagCorrelation, Lags, VarianceShare
from isobatch.laboratory.sections.trust_region import EpochRow, TrustRegion
from isobatch.statistics.bootstrap import Estimate
from isobatch.studies.blog_post_measurements import (
    FIGURE_2_INTERVAL,
    LAMBDAS,
    LATE,
    LENGTHS,
    LONG,
    SHAPES,
    SHORT,
    BatchNumbers,
    Coherence,
    Measurements,
    OverLength,
    SeedReturns,
    Shuffling,
)

EDGES = (-1.0, 0.0, 1.0)


def around(value: float, half: float = 0.01) -> Estimate:
    return Estimate(value, value - half, value + half)


def sample_cosines(within: float, across: float) -> SampleCosines:
    """Signed means; absolute ones are .3 above them."""

    def means(signed: float, absolute: float) -> CosineMeans:
        return CosineMeans(around(signed), around(absolute))

    def histogram(signed: float) -> Histogram:
        return Histogram((0.4, 0.6), means(signed, signed + 0.3))

    lags, excess = (1, 3, 5, 7, 10, 40), within - across
    return SampleCosines(
        edges=EDGES,
        within={lag: histogram(within) for lag in lags},
        across=histogram(across),
        excess={lag: means(excess, excess) for lag in lags},
        with_mean=histogram(0.02),
    )


def lags_section(within: float, across: float = 0.0) -> Lags:
    return Lags(
        0.95,
        1024,
        tuple(LagCorrelation(lag, around(within)) for lag in LAGS),
        around(across),
        tuple(LagCorrelation(lag, around(within - across)) for lag in LAGS),
        (VarianceShare("single samples", around(0.97)),),
    )


def geometries(variance: float) -> Geometries:
    """At every N x T of 1,024 samples; 4x256 is the run's."""

    def row(steps: int) -> GeometryRow:
        return GeometryRow(
            num_envs=1024 // steps, num_steps=steps, gae_lambda=0.95, variance=around(variance * steps, 0.1),
            individual=around(1.0), within=around(0.0), across=around(1.0), squared_bias=around(1.0 / steps),
            signal=around(1.0), effective_samples=around(1010.0, 50.0), critical_batch=around(500.0, 50.0),
            error=around(variance * steps + 1.0 / steps), other_resets_variance=around(0.5), error_to_best=around(1.0),
            seconds_per_batch=0.001, current=steps == 256, error_to_current=around(1.0),
            variance_to_current=around(steps / 256),
        )  # fmt: skip

    return Geometries(
        gae_lambda=0.95, bootstrap=True, complete_episodes=False, chains=256, staggered_resets=False, sets_clocks=True,
        unseen_limits=0, time_limit=200, waited=200, budget=1024, rows=tuple(row(4**k) for k in range(6)),
    )  # fmt: skip


def diagnosis(iteration: int, *sections: Lags | Geometries | TrustRegion) -> Diagnosis:
    named = {type(section).__name__.lower(): section for section in sections}
    return Diagnosis(iteration, 1024 * iteration, "ppo on Pendulum-v1", named)


def batch_numbers(spread: float, seed: int = 0) -> BatchNumbers:
    """32 gradients in five dimensions around one of length 1."""
    vectors = np.random.default_rng(seed).normal(size=(32, 5)) * spread + np.array([1.0, 0, 0, 0, 0])
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return BatchNumbers(tuple(map(tuple, (units @ units.T).tolist())), around(spread**2))


def over_length(ratio: float = 1.5, effects: tuple[float, float] = (2.0, 3.0), half: float = 0.01) -> OverLength:
    """How individual variance grows with T, and with lambda in the long and in the short setting."""
    long, short = effects
    individual = {LENGTHS[0]: around(1.0), LENGTHS[-1]: around(ratio)}
    by_shape = {LONG: around(long), SHORT: around(short)}
    return OverLength(individual, around(ratio), by_shape, around(long / short, half), around(0.5))


def coherence(at_0: float = 0.03, at_1: float = 0.01) -> Coherence:
    noise = np.random.default_rng(0).normal(size=16) * 0.05  # of the batches, at every lambda the same
    levels = np.linspace(at_0, at_1, len(LAMBDAS))
    return Coherence({lam: tuple((level + noise).tolist()) for lam, level in zip(LAMBDAS, levels, strict=True)})


def seed_returns(mean: float) -> SeedReturns:
    values = tuple((mean + np.random.default_rng(0).normal(size=8) * 0.01).tolist())
    return SeedReturns(values, values)


def measurements(within: float = 0.3, across: float = 0.2, correlation: float = 0.0) -> Measurements:
    """At the early policy; at the late one samples of one trajectory and of two are alike."""
    checkpoints = range(FIGURE_2_INTERVAL, LATE + 1, FIGURE_2_INTERVAL)
    epochs = (EpochRow(4, around(0.5), around(1.0), around(0.1), around(0.01)),)
    return Measurements(
        early=sample_cosines(within, across),
        late={lam: sample_cosines(0.05, 0.05) for lam in LAMBDAS},
        coherence=coherence(),
        batches={f"{shape}, {lam:g}": batch_numbers(1 + lam) for shape in SHAPES for lam in LAMBDAS},
        own_batches={f"{SHORT}, {lam:g}": batch_numbers(1.0, 1) for lam in LAMBDAS},
        over_time=[diagnosis(iteration, lags_section(correlation)) for iteration in checkpoints],
        last=diagnosis(LATE, geometries(1.0), lags_section(correlation), TrustRegion("clip", 16, epochs)),
        staggered=diagnosis(LATE, geometries(0.5)),
        over_length=over_length(),
        shuffling=Shuffling(256, around(1.0), around(2.0), around(1.0)),
        scores={LONG: seed_returns(0.5), SHORT: seed_returns(0.6)},
    )
