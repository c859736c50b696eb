"""What the page on gradients says of the blog post, in one small file: claims, and the numbers that its words use."""

from __future__ import annotations

from dataclasses import dataclass

from isobatch.laboratory.diagnosis import Diagnosis
from isobatch.laboratory.sections.cosines import CosineMeans, SampleCosines
from isobatch.laboratory.sections.geometries import Geometries
from isobatch.laboratory.sections.lags import Lags
from isobatch.statistics.bootstrap import Estimate
from isobatch.studies.blog_post_claims import check_claims
from isobatch.studies.blog_post_figures import FIGURE_2_LAGS, correlations
from isobatch.studies.blog_post_measurements import EARLY, LATE, Measurements
from isobatch.studies.judged_claims import Claim


@dataclass(frozen=True)
class CosineNumbers:
    """Of pairs of samples of a batch, signed and absolute."""

    env_steps: int  # after which the policy was measured
    within: dict[int, CosineMeans]  # of one trajectory, by lag
    across: CosineMeans  # of two

    @classmethod
    def of(cls, cosines: SampleCosines, iteration: int) -> CosineNumbers:
        assert cosines.across is not None  # there are four environments
        within = {lag: histogram.means for lag, histogram in cosines.within.items()}
        return cls(iteration * 1024, within, cosines.across.means)


@dataclass(frozen=True)
class CorrelationNumbers:
    """In covariance form."""

    env_steps: int
    within: dict[int, Estimate]  # one trajectory, by lag
    across: Estimate  # two trajectories at equal times

    @classmethod
    def of(cls, diagnosis: Diagnosis) -> CorrelationNumbers:
        by_lag = correlations(diagnosis)
        return cls(diagnosis.env_steps, {lag: by_lag[lag] for lag in FIGURE_2_LAGS}, diagnosis.get(Lags).across)


@dataclass(frozen=True)
class GeometryNumbers:
    name: str  # N x T
    variance: Estimate
    squared_bias: Estimate
    error: Estimate
    effective_samples: Estimate


@dataclass(frozen=True)
class PostResults:
    claims: tuple[Claim, ...]
    cosines: tuple[CosineNumbers, ...]
    correlations: tuple[CorrelationNumbers, ...]  # over training
    geometries: tuple[GeometryNumbers, ...]  # of the last policy

    def claim(self, name: str) -> Claim:
        return next(each for each in self.claims if each.name == name)


def results_of(measured: Measurements) -> PostResults:
    both = ((measured.early, EARLY), (measured.late[0.95], LATE))
    return PostResults(
        tuple(check_claims(measured)),
        tuple(CosineNumbers.of(*each) for each in both),
        tuple(map(CorrelationNumbers.of, measured.over_time)),
        tuple(
            GeometryNumbers(row.name, row.variance, row.squared_bias, row.error, row.effective_samples)
            for row in measured.last.get(Geometries).rows
        ),
    )
