"""How the gradients along a trajectory are correlated: covariance against lag, and what each lag adds to the variance.

With d_i = g_i - mu and pairs i, j = i + h of one trajectory (an episode's part of a chain):
    correlation(h) = E[d_i . d_j] / E|d_i|^2,
    share(h)       = (2 / T^2) sum of d_i . d_j over these pairs, the part of a window's variance that comes from lag h.
The baseline is the same for two trajectories: pairs of samples of different chains that were reset together, at equal
times, where they have most in common.
mu comes from the other chains: with the mean of the same samples in its place every correlation would be pulled
down by about the variance of that mean.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from isobatch.drawing import COLORS, new_panels, save_figure
from isobatch.laboratory.chains import Chains, window_advantages
from isobatch.laboratory.external_policy import ExternalPolicy
from isobatch.laboratory.inner_products import gram
from isobatch.laboratory.landscape import reset_together, squared_mean, window_products
from isobatch.laboratory.partial_results import NOTHING_KEPT, MadePiece, PartialResults, Piece
from isobatch.laboratory.per_sample import vanilla
from isobatch.laboratory.projection import directional
from isobatch.laboratory.sections.plotting import INTERVALS, TEXT_SIZE, draw_bars, draw_level, draw_points, number_ticks
from isobatch.laboratory.sections.points import cell
from isobatch.laboratory.sections.section import TextTable, Watch
from isobatch.laboratory.subject import Subject
from isobatch.networks.actor_critic import Policy
from isobatch.settings.config import Config
from isobatch.statistics.bootstrap import Estimate, of_resamples, pair_mean, unit_mean

LAGS = (1, 2, 3, 5, 7, 10, 20, 40, 80, 160, 320)
NEGLIGIBLE_CORRELATION = 0.01  # as good as none
COVARIANCE = "covariance / variance of one sample"


@dataclass(frozen=True)
class LagCorrelation:
    lag: int
    estimate: Estimate


@dataclass(frozen=True)
class VarianceShare:
    part: str  # which pairs of samples
    estimate: Estimate


@dataclass(frozen=True)
class Lags:
    gae_lambda: float
    num_steps: int
    correlation: tuple[LagCorrelation, ...]
    across: Estimate  # the same for two trajectories at equal times since their reset
    excess: tuple[LagCorrelation, ...]  # within minus across, from the same chains
    shares: tuple[VarianceShare, ...]

    @classmethod
    def measure(cls, subject: Subject, parts: PartialResults, watch: Watch) -> Self:
        lam, length = subject.config.hypers.gae_lambda, subject.chains.length
        sums = lag_sums(subject.config, subject.policy, subject.chains, lam, watch, parts)
        correlations, across = sums.correlation(subject.weights), sums.across(subject.weights)
        lags = [lag for lag in LAGS if lag < length and np.isfinite(correlations[0, lag])]
        edges = [2**k for k in range((length - 1).bit_length())] + [length]
        shares = sums.shares(edges, subject.weights)
        named = ["single samples", *(_span(a, b) for a, b in itertools.pairwise(edges)), "other trajectories"]
        return cls(
            lam,
            length,
            tuple(LagCorrelation(lag, of_resamples(correlations[:, lag])) for lag in lags),
            of_resamples(across),
            tuple(LagCorrelation(lag, of_resamples(correlations[:, lag] - across)) for lag in lags),
            tuple(VarianceShare(part, of_resamples(shares[:, i])) for i, part in enumerate(named)),
        )

    def interpret(self) -> Iterator[str]:
        known = [row for row in self.correlation if not math.isnan(row.estimate.low)]
        if not known:
            return
        clear = [row for row in known if row.estimate.low > 0 or row.estimate.high < 0]
        if not clear:
            widest = max(max(abs(row.estimate.low), abs(row.estimate.high)) for row in known)
            yield f"Gradients along a trajectory are not measurably correlated at any lag (all within {widest:.2g})."
            return
        most = max(clear, key=lambda row: abs(row.estimate.value))
        value, low, high = most.estimate.value, most.estimate.low, most.estimate.high
        if abs(value) < NEGLIGIBLE_CORRELATION:
            yield f"Gradients along a trajectory are hardly correlated: by {value:+.1g} at most, at lag {most.lag}."
            return
        alone = self.shares[0].estimate.value
        yield (
            f"Gradients along a trajectory are correlated most at lag {most.lag}, by {value:+.3f} "
            f"({low:+.3f} to {high:+.3f}); single samples alone would make {alone:.0%} of the variance of a rollout of "
            f"{self.num_steps} steps."
        )

    def tables(self) -> list[TextTable]:
        shares = [[row.part, cell(row.estimate)] for row in self.shares]
        title = f"Where the variance of a rollout of {self.num_steps} steps comes from, lambda {self.gae_lambda:g}"
        tables = [TextTable(title, ["pairs of samples", "share"], shares)]
        if self.correlation:
            rows = [
                [str(row.lag), cell(row.estimate, digits=3), cell(more.estimate, digits=3)]
                for row, more in zip(self.correlation, self.excess, strict=True)
            ]
            rows.append(["two trajectories, equal times", cell(self.across, digits=3), "-"])
            title = "Correlation of gradients within a trajectory, and of two"
            tables.insert(0, TextTable(title, ["lag", COVARIANCE, "minus two trajectories"], rows))
        return tables

    def draw(self, path: Path, title: str) -> None:
        """Covariance form of the correlation against lag, and where the variance of a rollout comes from."""
        figure, (left, right) = new_panels(1, 2, (11, 4))
        x = [row.lag for row in self.correlation]
        draw_points(left, np.array(x), [row.estimate for row in self.correlation], "o-", 0, "within a trajectory")
        draw_level(left, self.across, 1, "two trajectories, equal times")
        left.axhline(0, color="0.4", linewidth=1)
        left.set(xscale="log", xlabel="lag", ylabel=COVARIANCE, title="Correlation against lag")
        number_ticks(left, x)
        left.legend(fontsize=TEXT_SIZE, frameon=False)
        estimates = [row.estimate for row in self.shares]
        colors = [COLORS[0] if estimate.value >= 0 else COLORS[1] for estimate in estimates]
        draw_bars(right, [row.part for row in self.shares], estimates, colors)
        right.tick_params(axis="y", labelsize=TEXT_SIZE)
        right.axvline(0, color="0.4", linewidth=1)
        right.set(xlabel="share", title=f"Variance of a rollout of {self.num_steps} steps: where it comes from")
        figure.suptitle(f"{title}, lambda {self.gae_lambda:g} ({INTERVALS})", fontsize=10)
        save_figure(figure, path)


def _span(low: int, high: int) -> str:
    return f"lag {low}" if high == low + 1 else f"lags {low} to {high - 1}"


@dataclass(frozen=True)
class LagSums:
    """Of each chain, for lags 0 .. L-1 within trajectories."""

    products: np.ndarray  # [C, L] sum of d_i . d_j
    counts: np.ndarray  # [C, L] number of pairs i, j
    everything: np.ndarray  # [C] sum of d_i . d_j over all i, j
    equal_times: np.ndarray  # [C, C] mean of g_i . g_j over samples i, j of two chains at the same time
    mean: np.ndarray  # [C, C] inner products of the chains' mean gradients
    together: np.ndarray  # [C, C] whether two different chains were reset at the same time

    def across(self, weights: np.ndarray) -> np.ndarray:
        """[R]: the correlation of two trajectories at equal times."""
        level = squared_mean(self.mean, weights, self.together)
        covariance = pair_mean(self.equal_times, weights, self.together) - level
        variance = unit_mean(self.products[:, 0], weights) / unit_mean(self.counts[:, 0], weights)
        return covariance / variance

    def correlation(self, weights: np.ndarray) -> np.ndarray:
        """[R, L]; not a number where no two samples are so far apart."""
        with np.errstate(invalid="ignore", divide="ignore"):
            by_lag = unit_mean(self.products, weights) / unit_mean(self.counts, weights)
        return by_lag / by_lag[:, :1]

    def shares(self, edges: list[int], weights: np.ndarray) -> np.ndarray:
        """[R, B + 1] shares of a window's variance: lags 0 .. edges[0]-1, edges[0] .. edges[1]-1, ..., and the rest."""
        twice = np.concatenate([self.products[:, :1], 2 * self.products[:, 1:]], axis=1)
        parts = [twice[:, low:high].sum(axis=1) for low, high in zip([0, *edges[:-1]], edges, strict=True)]
        parts.append(self.everything - twice[:, : edges[-1]].sum(axis=1))
        return unit_mean(np.stack(parts, axis=1), weights) / unit_mean(self.everything, weights)[:, None]


def lag_sums(
    config: Config, policy: Policy | ExternalPolicy, chains: Chains, lam: float, watch: Watch = lambda done: None,
    parts: PartialResults = NOTHING_KEPT,
) -> LagSums:  # fmt: skip
    """Sums over all pairs of samples of one chain, centered with the mean gradient of the other chains."""
    advantage = window_advantages(config, chains, chains.length, lam)
    obs, action, done = chains.segment.obs, chains.segment.action, chains.segment.terminated | chains.segment.truncated
    _, gradients, _ = window_products(policy, obs, action, advantage, chains.length, parts, "gradients")
    means, count = np.asarray(gradients, float), chains.count
    total, squares = means.sum(axis=0), np.sum(means**2, axis=1)

    def make(first: int, last: MadePiece | None) -> Iterator[Piece]:
        for u in range(first, count):
            others = total - means[u]
            # |mu|^2 by products of different chains, none of them this one.
            level = (others @ others - squares.sum() + squares[u]) / ((count - 1) * (count - 2))
            mean = jnp.asarray(others / (count - 1), advantage.dtype)
            samples = obs[:, u], action[:, u], advantage[:, u]
            yield dict(zip(SUMS, _chain_sums(policy, samples, done[:, u], mean, level), strict=True))

    sums = []
    for made in parts.pieces("chains", make):
        sums.append([np.asarray(made[name], float) for name in SUMS])
        watch(len(sums) / (count + 1))
    products, counts, everything = map(np.stack, zip(*sums, strict=True))
    equal_times = np.asarray(window_products(policy, obs, action, advantage, 1, parts, "equal-times")[0], float)
    return LagSums(products, counts, everything, equal_times, means @ means.T, reset_together(chains))


SUMS = ("products", "counts", "everything")
Sums = tuple[Float[Array, " L"], Float[Array, " L"], Float[Array, ""]]


def _chain_sums(
    policy: Policy | ExternalPolicy, samples: tuple, done: Bool[Array, " L"], mean: Float[Array, " P"], level: float
) -> Sums:
    """Of one chain: products by lag, how many they are, and the sum of all products."""
    if isinstance(policy, ExternalPolicy):
        products, along = policy.gram(samples), policy.along(samples, np.asarray(mean))
        return _sums_by_lag(jnp.asarray(products), jnp.asarray(along), done, level)
    return _own_chain_sums(policy, samples, done, mean, level)


@jax.jit
def _own_chain_sums(
    policy: Policy, samples: tuple, done: Bool[Array, " L"], mean: Float[Array, " P"], level: Float[Array, ""]
) -> Sums:
    along = directional(vanilla, policy, samples, ravel_pytree(policy)[1](mean))
    return _sums_by_lag(gram(vanilla, policy, samples), along, done, level)


@jax.jit
def _sums_by_lag(
    products: Float[Array, "L L"], along: Float[Array, " L"], done: Bool[Array, " L"], level: Float[Array, ""]
) -> Sums:
    """From g_i . g_j and g_i . mu, with |mu|^2."""
    centered = products - along[:, None] - along + level
    trajectory = jnp.cumsum(done) - done
    same = trajectory[:, None] == trajectory
    return diagonal_sums(centered * same), diagonal_sums(same.astype(float)), jnp.sum(centered)


def diagonal_sums(matrix: Float[Array, "L L"]) -> Float[Array, " L"]:
    """Sums over the diagonals j - i = 0 .. L-1."""
    length = len(matrix)
    # Rows one longer than the width they are read with: each slips by one against the row above it.
    slipped = jnp.pad(matrix[:, ::-1], ((0, 0), (0, length))).reshape(-1)[: length * (2 * length - 1)]
    return slipped.reshape(length, 2 * length - 1).sum(axis=0)[:length][::-1]
