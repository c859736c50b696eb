"""What the blog post claims, judged by what `blog_post` measured: each verdict follows from intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isobatch.formatting import TO, with_interval
from isobatch.laboratory.sections.cosines import SampleCosines
from isobatch.laboratory.sections.geometries import Geometries
from isobatch.laboratory.sections.lags import Lags
from isobatch.laboratory.sections.trust_region import TrustRegion
from isobatch.statistics.aggregates import contrast
from isobatch.statistics.bootstrap import Estimate
from isobatch.studies.blog_post_figures import FIGURE_2_LAGS, correlations
from isobatch.studies.blog_post_measurements import (
    DIRECT_BATCHES,
    EARLY,
    LATE,
    LENGTHS,
    LONG,
    SHAPES,
    SHORT,
    Measurements,
    OverLength,
    SeedReturns,
    Shuffling,
)

PAIR_LAGS = (1, 10, 40)
SHOWN_SHAPES = ("1024x1", "64x16", "4x256")
KINDS = (("mean", "mean cosine", "in direction"), ("absolute", "mean absolute cosine", "up to sign"))
NEGLIGIBLE = 0.05  # of a quantity, or of normalized return: as good as nothing


@dataclass(frozen=True)
class Claim:
    claim: str
    verdict: str  # that follows from intervals
    evidence: str  # the numbers behind it


def check_claims(measured: Measurements) -> list[Claim]:
    """The post's claims, each with a verdict that follows from intervals, and the numbers behind it."""
    cosines, batches = measured.late, measured.batches
    rows = {row.name: row for row in measured.last.get(Geometries).rows}
    staggered = {row.name: row for row in measured.staggered.get(Geometries).rows}
    lags = correlations(measured.last)
    alone = measured.last.get(Lags).shares[0].estimate
    means = {lam: one.with_mean.means.mean for lam, one in cosines.items()}
    ratio = rows["16x64"].variance_to_current  # of 16x64 to 4x256
    assert ratio is not None  # 4x256 is the run's own
    worth = rows["4x256"].effective_samples
    short, long = rows["64x16"].squared_bias, rows["4x256"].squared_bias
    across = rows["1024x1"].across
    return [
        *(
            alike_pairs(f"{alike} (step {iteration * 1024:,})", kind, name, one)
            for kind, name, alike in KINDS
            for iteration, one in ((EARLY, measured.early), (LATE, cosines[0.95]))
        ),
        claim_of(
            "In covariance form the correlation is close to zero (the post: -0.007 to 0)",
            all(max(abs(e.low), abs(e.high)) < NEGLIGIBLE for e in lags.values()),
            any(e.low > NEGLIGIBLE or e.high < -NEGLIGIBLE for e in lags.values()),
            ", ".join(f"{shown(lags[lag])} at lag {lag}" for lag in FIGURE_2_LAGS),
        ),
        *(
            aligned(whose, batches[f"{LONG}, 0.95"].extreme, short[f"{SHORT}, 0.95"].extreme)
            for whose, short in (("each setting's own policy", measured.own_batches), ("one policy", batches))
        ),
        claim_of(
            "At equal data a longer rollout has a larger variance: 4x256 more than 16x64",
            ratio.high < 1,
            ratio.low > 1,
            f"Var(16x64) / Var(4x256) is {shown(ratio)}; directly, on {DIRECT_BATCHES} batches each: "
            f"{shown(batches['4x256, 0.95'].variance)} at 4x256, {shown(batches['16x64, 0.95'].variance)} at 16x64",
        ),
        longer(measured.over_length),
        claim_of(
            "It is the covariance along a trajectory that does it: long rollouts have a smaller effective sample size",
            worth.high < 1024,
            worth.low > (1 - NEGLIGIBLE) * 1024,
            f"1,024 samples of 4x256 are worth {shown(worth)} independent ones; single samples make {shown(alone)} "
            "of the variance of a rollout of 1,024 steps",
        ),
        claim_of(
            "Short rollouts are biased, long ones less so",
            short.low > long.high,
            short.high < long.low,
            "squared bias " + ", ".join(f"{shown(rows[name].squared_bias)} at {name}" for name in SHOWN_SHAPES),
        ),
        claim_of(
            "A larger lambda makes the directions of single gradients more various",
            means[0.0].low > means[0.95].high and means[0.95].value > means[1.0].value,
            means[0.0].high < means[1.0].low,
            "mean cosine of a sample with the batch's gradient: "
            + ", ".join(f"{shown(mean)} at lambda {lam:g}" for lam, mean in means.items()),
        ),
        *(
            claim_of(
                f"No lambda removes the likeness {alike} along a trajectory, not even 0",
                all(getattr(one.excess[40], kind).low > 0 for one in cosines.values()),
                any(getattr(one.excess[40], kind).high < 0 for one in cosines.values()),
                f"{name} at lag 40, minus across: "
                + ", ".join(
                    f"{shown(getattr(one.excess[40], kind))} at lambda {lam:g}" for lam, one in cosines.items()
                ),
            )
            for kind, name, alike in KINDS
        ),
        lambda_at_lengths(measured.over_length),
        less_extreme({shape: (batches[f"{shape}, 0"].extreme, batches[f"{shape}, 1"].extreme) for shape in SHAPES}),
        shuffled(measured.shuffling),
        clipping(measured.last.get(TrustRegion)),
        trained(measured.scores),
        claim_of(
            "Not in the post: environments that reach their time limit together are correlated",
            across.low > 0,
            across.high < NEGLIGIBLE * rows["1024x1"].variance.value,
            "variance reset together and staggered: "
            + ", ".join(
                f"{shown(rows[name].variance)} and {shown(staggered[name].variance)} at {name}" for name in SHOWN_SHAPES
            ),
        ),
    ]


def alike_pairs(alike: str, kind: str, name: str, cosines: SampleCosines) -> Claim:
    """Of pairs within a trajectory and across; `kind` is a field of `CosineMeans`."""
    excess = {lag: getattr(cosines.excess[lag], kind) for lag in PAIR_LAGS}
    within = {lag: getattr(cosines.within[lag].means, kind) for lag in PAIR_LAGS}
    assert cosines.across is not None  # there are four environments
    return claim_of(
        f"Gradients of one trajectory are more alike {alike} than those of different ones",
        all(each.low > 0 for each in excess.values()),
        any(each.high < 0 for each in excess.values()),
        f"{name} within: "
        + ", ".join(f"{within[lag].value:+.3f} at lag {lag}" for lag in PAIR_LAGS)
        + f"; across: {getattr(cosines.across.means, kind).value:+.3f}; within minus across: "
        + ", ".join(f"{shown(excess[lag])} at lag {lag}" for lag in PAIR_LAGS),
    )


def aligned(whose: str, long: Estimate, short: Estimate) -> Claim:
    return claim_of(
        f"Gradients of {LONG} batches are more often strongly aligned or opposed than those of {SHORT} ({whose})",
        long.low > short.high,
        long.high < short.low,
        f"mean absolute cosine between {DIRECT_BATCHES} batches: {shown(long)} at {LONG}, {shown(short)} at {SHORT}",
    )


def longer(lengths: OverLength) -> Claim:
    ratio = lengths.individual_ratio
    return claim_of(
        "The individual variance grows with T, since advantages over long horizons are noisy",
        ratio.low > 1,
        ratio.high < 1 + NEGLIGIBLE,
        "the part of single samples, at equal data: "
        + ", ".join(f"{shown(one)} at T = {steps}" for steps, one in lengths.individual.items())
        + f"; T = {LENGTHS[-1]} over T = {LENGTHS[0]}: {shown(ratio)}",
    )


def lambda_at_lengths(lengths: OverLength) -> Claim:
    effects = lengths.lambda_effect
    return claim_of(
        "Lambda acts alike on the variance at short and at long rollouts",
        all(one.low > 1 for one in effects.values()) or all(one.high < 1 for one in effects.values()),
        any(one.low > 1 for one in effects.values()) and any(one.high < 1 for one in effects.values()),
        "variance at lambda 1 over that at lambda 0: "
        + ", ".join(f"{shown(one)} at {shape}" for shape, one in effects.items())
        + f"; {LONG} over {SHORT}: {shown(lengths.effect_ratio)}",
    )


def less_extreme(cosines: dict[str, tuple[Estimate, Estimate]]) -> Claim:
    return claim_of(
        "With a larger lambda the gradients of batches are less extreme",
        all(one.high < zero.low for zero, one in cosines.values()),
        any(one.low > zero.high for zero, one in cosines.values()),
        "mean absolute cosine between batches, lambda 0 and 1: "
        + ", ".join(f"{shown(zero)} and {shown(one)} at {shape}" for shape, (zero, one) in cosines.items()),
    )


def shuffled(shuffling: Shuffling) -> Claim:
    return claim_of(
        "Shuffling takes correlation out of minibatches",
        shuffling.difference.low > 0,
        shuffling.difference.high < NEGLIGIBLE * shuffling.shuffled.value,
        f"variance that a minibatch of {shuffling.size} adds to its batch: {shown(shuffling.shuffled)} shuffled, "
        f"{shown(shuffling.rows)} if it is one environment's samples; difference {shown(shuffling.difference)}",
    )


def clipping(region: TrustRegion) -> Claim:
    last = region.rows[-1]
    return claim_of(
        "Clipping changes the direction of the update: another kind of bias",
        last.cosine.high < 1 - NEGLIGIBLE,
        last.cosine.low > 1 - NEGLIGIBLE,
        f"after {last.epoch} epochs the clipped gradient has a cosine of {shown(last.cosine)} with the one without "
        f"clipping, {shown(last.clip_fraction)} of the samples are out of range",
    )


def trained(scores: dict[str, SeedReturns]) -> Claim:
    """Both settings, trained."""
    over_run, final = (
        contrast([(1.0, np.array(short)), (-1.0, np.array(long))])[0]
        for long, short in (
            (scores[LONG].mean, scores[SHORT].mean),
            (scores[LONG].final, scores[SHORT].final),
        )
    )
    spread = {shape: float(np.std(one.final, ddof=1)) for shape, one in scores.items()}
    return claim_of(
        "The choice of N and T influences learning",
        over_run.low > 0 or over_run.high < 0,
        max(abs(over_run.low), abs(over_run.high)) < NEGLIGIBLE,
        f"normalized return of {SHORT} minus {LONG}, {len(scores[LONG].final)} seeds each: {shown(over_run)} over the "
        f"run, {shown(final)} in the end; standard deviation over seeds in the end "
        + ", ".join(f"{value:.3f} at {shape}" for shape, value in spread.items()),
    )


def claim_of(claim: str, holds: bool, fails: bool, evidence: str) -> Claim:
    return Claim(claim, "holds" if holds else "does not hold" if fails else "cannot be told", evidence)


def shown(measured: Estimate) -> str:
    return with_interval(measured, ends=TO)
