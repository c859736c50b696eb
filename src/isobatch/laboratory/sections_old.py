"""The measurements of one policy, section by section, as plain numbers ready for JSON.

An estimate is {value, low, high}: the ends are those of its 95 % interval.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from isobatch.errors import UsageError
from isobatch.gradients.aggregations import compare
from isobatch.gradients.correlation import cosine_across, cosine_matrix, cosine_pairs, cosine_with_mean
from isobatch.gradients.layout import Layout
from isobatch.gradients.subsampling import minibatch_variance, row_variance
from isobatch.gradients.variance import direct_variance
from isobatch.laboratory.batches import batch_products, first_episodes, gradient_seconds, samples_of
from isobatch.laboratory.chains import Chains, chain_bytes, num_groups
from isobatch.laboratory.clipping import QUANTITIES, restrained
from isobatch.laboratory.gram import check_memory, compiled_gram
from isobatch.laboratory.lag_sums import lag_sums
from isobatch.laboratory.landscape import Measured, at_geometry, measure, weights_of
from isobatch.laboratory.objectives import vanilla
from isobatch.laboratory.options import LabOptions, chain_length, doubling, geometries_of
from isobatch.laboratory.source import Source, draws
from isobatch.learning.state import TrainState
from isobatch.settings.config import Config
from isobatch.statistics.bootstrap import Estimate, estimate, of_resamples, ratio, unit_mean

DIRECT_GEOMETRIES = 4
LAGS = (1, 2, 3, 5, 7, 10, 20, 40, 80, 160, 320)
HISTOGRAM_LAGS = (1, 3, 5, 7, 10, 40)
BINS = 40  # of cosines from -1 to 1
LARGEST_BATCH = 2048  # samples whose inner products are computed, for cosines and minibatches
MOST_SIZES = 6  # of minibatches
LEAST_EPISODES = 4

Watch = Callable[[float], None]
Found = dict[str, Any]


class NotHereError(UsageError):
    """This policy does not have what a section measures."""


@dataclass(frozen=True)
class Policy:
    """What is measured: a policy with everything that training would use with it."""

    config: Config
    source: Source
    state: TrainState
    options: LabOptions

    @cached_property
    def geometries(self) -> list[tuple[int, int]]:
        return geometries_of(self.options, self.config.num_envs, self.config.num_steps)

    @cached_property
    def budget(self) -> int:
        return self.geometries[0][0] * self.geometries[0][1]

    @cached_property
    def chains(self) -> Chains:
        """The data that several sections share."""
        length = chain_length(self.geometries)
        groups = num_groups(self.source.time_limit, length)
        count = -(-max(self.options.chains, 2 * groups) // groups) * groups
        need = chain_bytes(self.source.obs_bytes, self.policy, count, length)
        check_memory(need, f"{count} chains of {length} steps", "chains, the budget or the longest geometry")
        return self.source.chains(count, length, self.options.measure_seed)

    @cached_property
    def weights(self) -> np.ndarray:
        return weights_of(self.chains.count, seed=self.options.measure_seed)

    @property
    def policy(self) -> Any:
        return self.state.networks.policy


def geometries(about: Policy, watch: Watch) -> Found:
    """Variance, bias and error at every N x T, predicted from chains and, for some, measured directly; and the time."""
    config, options, lam = about.config, about.options, about.config.hypers.gae_lambda
    variants = [(steps, lam) for _, steps in about.geometries]
    moments, _ = measure(config, about.policy, about.chains, variants, lambda done: watch(0.6 * done))
    arrangements = {
        staggered: [at_geometry(moments[t, lam], n, (t, lam), staggered, about.weights) for n, t in about.geometries]
        for staggered in (False, True)
    }
    points = arrangements[config.staggered_resets]
    best = min(points, key=lambda p: p.error[0])
    own = next((p for p in points if (p.num_envs, p.num_steps) == (config.num_envs, config.num_steps)), None)
    directly, gradient = _worth_measuring(about), gradient_seconds(about.policy, about.chains, about.budget)
    rows = []
    for i, (point, other) in enumerate(zip(points, arrangements[not config.staggered_resets], strict=True)):
        n, t = point.num_envs, point.num_steps
        row = _row(point) | {
            "other_resets_variance": of_resamples(other.variance),
            "error_to_best": of_resamples(ratio(point.error, best.error, otherwise=np.inf)),
            "seconds_per_batch": about.source.seconds(n, t) + gradient,
        }
        if own is not None:
            row["own"] = point is own
            row["error_to_own"] = of_resamples(ratio(point.error, own.error, otherwise=np.inf))
            row["variance_to_own"] = of_resamples(ratio(point.variance, own.variance, otherwise=np.inf))
        if (n, t) in directly:
            products = batch_products(
                config, about.policy, about.source, n, t, options.batches, options.measure_seed + 1
            )
            row["measured_variance"] = direct_variance(products)
        rows.append(row)
        watch(0.6 + 0.4 * (i + 1) / len(points))
    return {
        "gae_lambda": lam,
        "bootstrap": config.bootstrap,
        "complete_episodes": config.complete_episodes,
        "chains": about.chains.count,
        "staggered_resets": config.staggered_resets,
        "sets_clocks": about.source.sets_clocks,
        "unseen_limits": 0 if about.source.sets_clocks or not config.bootstrap else _limits(about.chains),
        "time_limit": about.source.known_limit,
        "waited": about.source.time_limit,
        "budget": about.budget,
        "rows": rows,
    }


def _limits(chains: Chains) -> int:
    """How often an episode was cut off by a time limit."""
    return int(np.sum(np.asarray(chains.segment.truncated & ~chains.segment.terminated)))


def _worth_measuring(about: Policy) -> list[tuple[int, int]]:
    """The run's own geometry and some others that are spread over the list, where environments are started cheaply."""
    cost = about.options.batches * 1.5 * about.source.time_limit
    cheap = [g for g in about.geometries if g[0] * cost <= about.source.cheap_steps]
    own = [g for g in cheap if g == (about.config.num_envs, about.config.num_steps)]
    places = np.linspace(0, len(cheap) - 1, min(DIRECT_GEOMETRIES, len(cheap))).round().astype(int)
    return own + [cheap[i] for i in places]


def _row(point: Measured) -> Found:
    names = [f.name for f in dataclasses.fields(Measured)]
    arrays = {name: getattr(point, name) for name in [*names[3:], "error"]}
    return {name: getattr(point, name) for name in names[:3]} | {k: of_resamples(v) for k, v in arrays.items()}


def lambdas(about: Policy, watch: Watch) -> Found:
    """The same at several lambda, for a short, a long and the run's own rollout length."""
    if not about.config.baseline:
        raise NotHereError("sections='lambdas' needs a value function: this run was trained with baseline=False.")
    ends = [about.geometries[len(about.geometries) // 3], about.geometries[-1]]
    own = [g for g in about.geometries if g == (about.config.num_envs, about.config.num_steps)]
    chosen = sorted({*ends, *own}, key=lambda g: g[1])
    compared = sorted({*about.options.lambdas, about.config.hypers.gae_lambda})
    variants = [(t, lam) for _, t in chosen for lam in compared]
    moments, _ = measure(about.config, about.policy, about.chains, variants, watch)
    rows = []
    for n, t in chosen:
        points = [
            at_geometry(moments[t, lam], n, (t, lam), about.config.staggered_resets, about.weights) for lam in compared
        ]
        best = min(points, key=lambda p: p.error[0])
        for point in points:
            to_best = of_resamples(ratio(point.error, best.error, otherwise=np.inf))
            rows.append(_row(point) | {"own_geometry": (n, t) in own, "error_to_best": to_best})
    return {"rows": rows, "own": about.config.hypers.gae_lambda}


def lags(about: Policy, watch: Watch) -> Found:
    """Correlation of gradients within a trajectory against lag, and what each lag adds to the variance."""
    lam = about.config.hypers.gae_lambda
    sums = lag_sums(about.config, about.policy, about.chains, lam, watch)
    correlations = sums.correlation(about.weights)
    there = [lag for lag in LAGS if lag < about.chains.length and np.isfinite(correlations[0, lag])]
    edges = [2**k for k in range((about.chains.length - 1).bit_length())] + [about.chains.length]
    shares = sums.shares(edges, about.weights)
    names = ["single samples", *(_span(a, b) for a, b in itertools.pairwise(edges)), "other trajectories"]
    return {
        "gae_lambda": lam,
        "num_steps": about.chains.length,
        "correlation": [{"lag": lag, "estimate": of_resamples(correlations[:, lag])} for lag in there],
        "shares": [{"part": n, "estimate": of_resamples(shares[:, i])} for i, n in enumerate(names)],
    }


def _span(low: int, high: int) -> str:
    return f"lag {low}" if high == low + 1 else f"lags {low} to {high - 1}"


def cosines(about: Policy, watch: Watch) -> Found:
    """The blog post's pictures: cosines of pairs, of samples with their batch, and of batches with each other."""
    options = about.options
    n, t = batch_shape(about)
    found = sample_cosines(about, about.config.hypers.gae_lambda)
    watch(0.5)
    products = batch_products(about.config, about.policy, about.source, n, t, options.batches, options.measure_seed + 2)
    between = cosine_matrix(products, Layout.of(np.arange(options.batches)))
    return {"num_envs": n, "num_steps": t, **found, "batches": between}


def sample_cosines(about: Policy, lam: float) -> Found:
    """Histograms of the cosines of centered gradients in one batch, within and across trajectories, and with its mean.

    `spread` is the mean of |cosine|: how much two gradients share a line, whichever way along it they point.
    """
    gram, layout = next(batches(about, 1, lam))
    edges = np.linspace(-1, 1, BINS + 1)

    def histogram(values: np.ndarray) -> Found:
        density = np.histogram(values, edges, density=True)[0]
        return {"density": density, "mean": values.mean(), "spread": np.abs(values).mean()}

    lags = [lag for lag in HISTOGRAM_LAGS if lag <= layout.longest_lag]
    several = layout.trajectory.max() > 0
    return {
        "edges": edges,
        "within": {str(lag): histogram(cosine_pairs(gram, layout, lag)) for lag in lags},
        "across": histogram(cosine_across(gram, layout, seed=about.options.measure_seed)) if several else None,
        "with_mean": histogram(cosine_with_mean(gram, layout)),
    }


def minibatches(about: Policy, watch: Watch) -> Found:
    """Variance that a minibatch adds to its batch, for shuffled samples and for whole environment rows."""
    n, t = batch_shape(about)
    count = max(4, min(8, about.options.batches))
    grams = [gram for gram, _ in batches(about, count)]
    watch(0.7)
    rows = []
    own = about.config.geometry.optimization_batch
    sizes = sorted({n * t // parts for parts in doubling(n * t)[:MOST_SIZES]} | ({own} if own < n * t else set()))
    squared = np.array([np.mean(gram) for gram in grams])  # |G_B|^2
    for size in sizes:
        shuffled = np.array([minibatch_variance(gram, size) for gram in grams])
        row: Found = {"size": size, "added": _mean_of(shuffled), "squared_batch_gradient": _mean_of(squared)}
        row["own"] = size == own
        if size % t == 0:
            whole = [row_variance(gram, np.tile(np.arange(n), t), size // t) for gram in grams]
            row["added_by_rows"] = _mean_of(np.array(whole))
        rows.append(row)
    return {"num_envs": n, "num_steps": t, "batches": count, "rows": rows}


def restraint(about: Policy, watch: Watch) -> Found:
    """What clipping or the KL penalty does to the gradient as the policy moves away over the epochs of an iteration."""
    config, options = about.config, about.options
    if config.objective == "policy-gradient":
        raise NotHereError(f"sections='restraint' needs an objective with a ratio: {config.algo} has none.")
    if config.complete_episodes:
        raise NotHereError(f"sections='restraint' needs rollouts, and {config.algo} learns from whole episodes here.")
    count = max(4, min(8, options.batches))
    drawn = draws(count, options.measure_seed + 3)
    segments = about.source.batches(config.num_envs, config.num_steps, drawn)
    table = np.stack(
        [
            np.asarray(restrained(config, about.state, segment, jax.random.fold_in(key, 1)))
            for key, segment in zip(drawn.key, segments, strict=True)
        ]
    )
    rows = [
        {"epoch": e} | {name: _mean_of(table[:, e, q]) for q, name in enumerate(QUANTITIES)}
        for e in range(table.shape[1])
    ]
    return {"objective": config.objective, "batches": count, "rows": rows}


def aggregation(about: Policy, watch: Watch) -> Found:
    """The four aggregations on batches of whole episodes."""
    config, options = about.config, about.options
    horizon = options.horizon or about.source.time_limit
    count = max(4 * config.num_envs, options.chains)
    vectors, lengths = _episodes(about, count, horizon)
    per_batch = min(config.num_envs, max(2, len(lengths) // 8))
    found = compare(vectors @ vectors.T, lengths, per_batch, seed=options.measure_seed)
    return {
        "episodes": len(lengths),
        "unfinished": count - len(lengths),
        "horizon": horizon,
        "episodes_per_batch": per_batch,
        "length_mean": float(np.mean(lengths)),
        "length_deviation": float(np.std(lengths)),
        "factor_variation": found.factor_variation,
        "cosines": [{"pair": list(pair), "estimate": value} for pair, value in found.cosines.items()],
        "expected_cosine": found.expected_cosine,
    }


def _episodes(about: Policy, count: int, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums of the gradients of whole episodes [E, P] and their lengths, of those that end within the horizon."""
    need = chain_bytes(about.source.obs_bytes, about.policy, count, horizon)
    check_memory(need, f"{count} episodes of up to {horizon} steps", "chains, num_envs or horizon")
    segment = about.source.episodes(count, horizon, about.options.measure_seed + 4)
    vectors, lengths, ended = (np.asarray(x) for x in first_episodes(about.config, about.policy, segment))
    if ended.sum() < 2 * LEAST_EPISODES:
        limit = about.source.known_limit
        most = f"up to {limit}, the time limit" if limit else "more"
        raise NotHereError(
            f"horizon={horizon}: {int(ended.sum())} of {count} episodes end within it, too few to compare them: "
            f"use {most}."
        )
    return vectors[ended].astype(float), lengths[ended]


def batch_shape(about: Policy) -> tuple[int, int]:
    """The run's own geometry, with fewer environments where the batch is too large for its inner products."""
    steps = min(about.config.num_steps, LARGEST_BATCH)
    return max(1, min(about.config.num_envs, LARGEST_BATCH // steps)), steps


def batches(about: Policy, count: int, lam: float | None = None) -> Iterator[tuple[np.ndarray, Layout]]:
    """Inner products of the samples of some batches, and their layout."""
    config = about.config if lam is None else about.config.replace(gae_lambda=lam)
    n, t = batch_shape(about)
    for segment in about.source.batches(n, t, draws(count, about.options.measure_seed + 5)):
        gram = compiled_gram(vanilla)(about.policy, samples_of(config, segment))
        done = np.asarray(segment.terminated | segment.truncated)
        episode = np.cumsum(done, axis=0) - done + np.arange(n) * (t + 1)
        yield np.asarray(gram, float), Layout.of(episode.ravel(), np.zeros(n * t, int))


def _mean_of(values: np.ndarray) -> Estimate:
    return estimate(lambda w: unit_mean(np.asarray(values, float), w), len(values), what="batches")


RUN: dict[str, Callable[[Policy, Watch], Found]] = {
    "geometries": geometries,
    "lambdas": lambdas,
    "lags": lags,
    "cosines": cosines,
    "minibatches": minibatches,
    "restraint": restraint,
    "aggregations": aggregation,
}
