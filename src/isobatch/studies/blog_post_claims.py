"""What the blog post claims, judged by what `blog_post` measured: each verdict follows from intervals of effects.

What is compared was measured on the same policy, and where it can be on the same chains or batches, which are then
resampled together: the interval is that of the difference or of the ratio.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from isobatch.laboratory.diagnosis import Diagnosis
from isobatch.laboratory.sections.cosines import SampleCosines
from isobatch.laboratory.sections.geometries import Geometries, GeometryRow
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
    SHORT,
    BatchNumbers,
    Coherence,
    CosineKind,
    Measurements,
    OverLength,
    SeedReturns,
    Shuffling,
    difference_of_sets,
    opposed,
    paired_change,
)
from isobatch.studies.judged_claims import NEGLIGIBLE, Claim, above, below, claim_of, differs, near, shown

PAIR_LAGS = (1, 10, 40)
SHORTEST_SHAPE = "1024x1"
SHOWN_SHAPES = (SHORTEST_SHAPE, "64x16", LONG)
KINDS = (("mean", "direction", "mean cosine"), ("absolute", "line", "mean absolute cosine"))  # in `CosineMeans`
BETWEEN: tuple[tuple[str, str, CosineKind, str], ...] = (
    ("aligned", "more strongly aligned or opposed", np.abs, "mean absolute cosine"),
    ("opposed", "more severely opposed", opposed, "mean negative part of the cosine"),
)  # what is claimed of the gradients of batches
FARTHER = "-farther"  # ends the name of a claim on what is more than a step apart
ALIKE = {"direction": "in direction", "line": "up to sign"}


def check_claims(measured: Measurements) -> list[Claim]:
    """The post's claims in its order."""
    one_policy, own = measured.batches, measured.own_batches
    long = one_policy[f"{LONG}, 0.95"]
    rows, staggered = (geometry_rows(each) for each in (measured.last, measured.staggered))
    return [
        *(
            claim
            for kind, name, quantity in KINDS
            for when, iteration, one in (("early", EARLY, measured.early), ("late", LATE, measured.late[0.95]))
            for claim in alike_pairs(name, kind, quantity, when, iteration, one)
        ),
        small_covariance(measured.last.get(Lags), measured.over_time),
        like_two_trajectories(measured.last.get(Lags)),
        *(
            between_batches(f"{name}-{policies}", how, kind, quantity, whose, long, short)
            for name, how, kind, quantity in BETWEEN
            for policies, whose, short in (
                ("own", "each setting's own policy", own[f"{SHORT}, 0.95"]),
                ("one", "one policy", one_policy[f"{SHORT}, 0.95"]),
            )
        ),
        noisier(rows[SHORT], one_policy),
        individual(measured.over_length),
        effective_samples(rows[LONG], measured.last.get(Lags)),
        biased(measured.over_length, rows),
        various_directions(measured.coherence),
        *(
            claim_of(
                f"lambda-{name}",
                "figure 4",
                f"No lambda removes the likeness {ALIKE[name]} along a trajectory, not even 0",
                above(excess.values()),
                f"{quantity} at lag 40 within minus across",
                excess,
            )
            for kind, name, quantity in KINDS
            for excess in [{f"at lambda {lam:g}": excess_of(one, kind)[40] for lam, one in measured.late.items()}]
        ),
        *lambda_at_lengths(measured.over_length),
        less_extreme(one_policy),
        shuffled(measured.shuffling),
        clipping(measured.last.get(TrustRegion)),
        trained(measured.scores),
        reset_together(rows, staggered),
    ]


def geometry_rows(diagnosis: Diagnosis) -> dict[str, GeometryRow]:
    return {row.name: row for row in diagnosis.get(Geometries).rows}


def excess_of(cosines: SampleCosines, kind: str) -> dict[int, Estimate]:
    """Within minus across by lag; `kind` is a field of `CosineMeans`."""
    return {lag: getattr(means, kind) for lag, means in cosines.excess.items()}


def alike_pairs(
    name: str, kind: str, quantity: str, when: str, iteration: int, cosines: SampleCosines
) -> Iterator[Claim]:
    """Of neighbors, and of what is farther apart in a trajectory."""
    excess = excess_of(cosines, kind)
    within = {lag: getattr(cosines.within[lag].means, kind) for lag in PAIR_LAGS}
    assert cosines.across is not None  # there are four environments
    for ending, which, lags in (
        ("", "of neighbors in a trajectory", PAIR_LAGS[:1]),
        (FARTHER, f"{' and '.join(map(str, PAIR_LAGS[1:]))} steps apart in a trajectory", PAIR_LAGS[1:]),
    ):
        yield claim_of(
            f"{name}-{when}{ending}",
            "figure 1",
            f"Gradients {which} are more alike {ALIKE[name]} than those of two, at step {iteration * 1024:,}",
            above(excess[lag] for lag in lags),
            f"{quantity} within minus across",
            {f"at lag {lag}": excess[lag] for lag in lags},
            "within " + ", ".join(f"{within[lag].value:+.3f} at lag {lag}" for lag in lags)
            + f", across {getattr(cosines.across.means, kind).value:+.3f}",
        )  # fmt: skip


def small_covariance(lags: Lags, over_time: Iterable[Diagnosis]) -> Claim:
    by_lag = {row.lag: row.estimate for row in lags.correlation}
    neighbors = [correlations(diagnosis)[1] for diagnosis in over_time]
    values = [each.value for each in neighbors]
    return claim_of(
        "covariance-small",
        "figure 2",
        "In covariance form the correlation is close to zero (the post: -0.007 to 0)",
        near((by_lag[lag] for lag in FIGURE_2_LAGS), 0.0),
        "correlation",
        {f"at lag {lag}": by_lag[lag] for lag in FIGURE_2_LAGS},
        f"over training {min(values):+.3f} to {max(values):+.3f} at lag 1, above 0 by its interval at "
        f"{sum(each.low > 0 for each in neighbors)} of {len(neighbors)} checkpoints",
    )


def like_two_trajectories(lags: Lags) -> Claim:
    excess = {row.lag: row.estimate for row in lags.excess}
    last = FIGURE_2_LAGS[-1]
    return claim_of(
        "covariance-baseline",
        "figure 2",
        "In covariance form the correlation approaches that of two trajectories as the lag grows",
        near([excess[last]], 0.0),
        "correlation within minus across",
        {f"at lag {last}": excess[last]},
        ", ".join(f"{shown(excess[lag])} at lag {lag}" for lag in FIGURE_2_LAGS[:-1])
        + f"; across {shown(lags.across)}",
    )


def between_batches(
    name: str, how: str, kind: CosineKind, quantity: str, whose: str, long: BatchNumbers, short: BatchNumbers
) -> Claim:
    difference = difference_of_sets(long, short, kind)
    return claim_of(
        name,
        "figure 3",
        f"Gradients of {LONG} batches are {how} than those of {SHORT} ({whose})",
        above([difference]),
        f"{quantity} between batches, {LONG} minus {SHORT}",
        {"": difference},
        f"{shown(long.mean_of(kind))} at {LONG}, {shown(short.mean_of(kind))} at {SHORT}, "
        f"{DIRECT_BATCHES} batches each",
    )


def noisier(short: GeometryRow, batches: Mapping[str, BatchNumbers]) -> Claim:
    ratio = short.variance_to_current
    assert ratio is not None  # 4x256 is the run's own
    return claim_of(
        "longer-noisier",
        "text",
        f"At equal data a longer rollout has a larger variance: {LONG} more than {SHORT}",
        below([ratio], 1.0),
        f"Var({SHORT}) / Var({LONG})",
        {"": ratio},
        f"directly, on {DIRECT_BATCHES} batches each: "
        + ", ".join(f"{shown(batches[f'{shape}, 0.95'].variance)} at {shape}" for shape in (LONG, SHORT)),
    )


def individual(lengths: OverLength) -> Claim:
    ratio = lengths.individual_ratio
    return claim_of(
        "individual-grows",
        "text",
        "The individual variance grows with T, since advantages over long horizons are noisy",
        "holds" if ratio.low > 1 else "does not hold" if ratio.high < 1 + NEGLIGIBLE else "undecided",
        f"the part of single samples at equal data, T = {LENGTHS[-1]} over T = {LENGTHS[0]}",
        {"": ratio},
        ", ".join(f"{shown(one)} at T = {steps}" for steps, one in lengths.individual.items()),
    )


def effective_samples(long: GeometryRow, lags: Lags) -> Claim:
    samples, worth = long.num_envs * long.num_steps, long.effective_samples
    few, many = worth.high < samples, worth.low > (1 - NEGLIGIBLE) * samples
    return claim_of(
        "effective-samples",
        "text",
        "It is the covariance along a trajectory that does it: long rollouts have a smaller effective sample size",
        "holds" if few else "does not hold" if many else "undecided",
        f"independent samples that {samples:,} of {LONG} are worth",
        {"": worth},
        f"single samples make {shown(lags.shares[0].estimate)} of the variance of a rollout of {lags.num_steps:,} "
        "steps",
    )


def biased(lengths: OverLength, rows: Mapping[str, GeometryRow]) -> Claim:
    return claim_of(
        "short-biased",
        "text",
        "Short rollouts are biased, long ones less so",
        above([lengths.bias_excess]),
        f"squared bias at {SHORTEST_SHAPE} minus at {LONG}",
        {"": lengths.bias_excess},
        ", ".join(f"{shown(rows[name].squared_bias)} at {name}" for name in SHOWN_SHAPES),
    )


def various_directions(coherence: Coherence) -> Claim:
    lambdas = sorted(coherence.by_lambda)
    first, last = lambdas[0], lambdas[-1]
    fall = coherence.fall(first, last)
    return claim_of(
        "lambda-coherence",
        "figure 5",
        "A larger lambda makes the directions of single gradients more various",
        above([fall]),
        f"mean cosine of a sample with the batch's gradient, lambda {first:g} minus lambda {last:g}",
        {"": fall},
        ", ".join(f"{shown(coherence.mean(lam))} at lambda {lam:g}" for lam in lambdas),
    )


def lambda_at_lengths(lengths: OverLength) -> Iterator[Claim]:
    """The post calls the effects qualitatively similar: of one direction, and how far they differ in size."""
    effects = {f"at {shape}": one for shape, one in lengths.lambda_effect.items()}
    ends = effects.values()
    up, down = above(ends, 1.0), below(ends, 1.0)
    apart = any(one.low > 1 for one in ends) and any(one.high < 1 for one in ends)
    quantity = "variance at lambda 1 over that at lambda 0"
    yield claim_of(
        "lambda-same-direction",
        "text",
        "Lambda changes the variance in the same direction at short and at long rollouts",
        "holds" if "holds" in (up, down) else "does not hold" if apart else "undecided",
        quantity,
        effects,
    )
    yield claim_of(
        "lambda-same-size",
        "text",
        "Lambda changes the variance as much at short as at long rollouts",
        near([lengths.effect_ratio], 1.0),
        f"{quantity}, {LONG} over {SHORT}",
        {"": lengths.effect_ratio},
    )


def less_extreme(batches: Mapping[str, BatchNumbers]) -> Claim:
    changes = {shape: paired_change(batches[f"{shape}, 0"], batches[f"{shape}, 1"], np.abs) for shape in (LONG, SHORT)}
    means = {name: one.mean_of(np.abs) for name, one in batches.items() if not name.endswith(", 0.95")}
    return claim_of(
        "lambda-extreme",
        "figure 6",
        "With a larger lambda the gradients of batches are less extreme",
        below(changes.values()),
        "mean absolute cosine between batches, lambda 1 minus lambda 0",
        {f"at {shape}": change for shape, change in changes.items()},
        "; ".join(f"{shown(mean)} at {' and lambda '.join(name.split(', '))}" for name, mean in means.items()),
    )


def shuffled(shuffling: Shuffling) -> Claim:
    none = shuffling.difference.high < NEGLIGIBLE * shuffling.shuffled.value
    return claim_of(
        "shuffling",
        "conclusion",
        "Shuffling takes correlation out of minibatches",
        "holds" if shuffling.difference.low > 0 else "does not hold" if none else "undecided",
        f"variance that a minibatch of {shuffling.size} adds to its batch, one environment's samples minus shuffled",
        {"": shuffling.difference},
        f"{shown(shuffling.rows)} and {shown(shuffling.shuffled)}",
    )


def clipping(region: TrustRegion) -> Claim:
    last = region.rows[-1]
    turned, not_turned = last.cosine.high < 1 - NEGLIGIBLE, last.cosine.low > 1 - NEGLIGIBLE
    return claim_of(
        "clipping",
        "text",
        "Clipping changes the direction of the update: another kind of bias",
        "holds" if turned else "does not hold" if not_turned else "undecided",
        f"cosine of the clipped gradient with the one without clipping, after {last.epoch} epochs",
        {"": last.cosine},
        f"{shown(last.clip_fraction)} of the samples are out of range",
    )


def trained(scores: Mapping[str, SeedReturns]) -> Claim:
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
        "learning",
        "conclusion",
        f"The choice of N and T influences learning: {SHORT} against {LONG}",
        differs(over_run),
        f"normalized return over the run of {SHORT} minus {LONG}, {len(scores[LONG].final)} seeds each",
        {"": over_run},
        f"{shown(final)} in the end; standard deviation over seeds in the end "
        + ", ".join(f"{value:.3f} at {shape}" for shape, value in spread.items()),
    )


def reset_together(rows: Mapping[str, GeometryRow], staggered: Mapping[str, GeometryRow]) -> Claim:
    shape = SHORTEST_SHAPE
    across, variance = rows[shape].across, rows[shape].variance.value
    none = across.high < NEGLIGIBLE * variance
    return claim_of(
        "reset-together",
        "",
        "Not in the post: environments that reach their time limit together are correlated",
        "holds" if across.low > 0 else "does not hold" if none else "undecided",
        f"part of the variance by pairs of two environments at {shape}",
        {"": across},
        "variance reset together and staggered: "
        + ", ".join(
            f"{shown(rows[name].variance)} and {shown(staggered[name].variance)} at {name}" for name in SHOWN_SHAPES
        ),
    )
