"""What a diagnosis measures: one policy with everything that training would use with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import jax
import numpy as np

from isobatch.errors import UsageError
from isobatch.gradients.layout import Layout
from isobatch.laboratory.batches import batch_products, samples_of
from isobatch.laboratory.chains import Chains, chain_bytes, num_groups
from isobatch.laboratory.external_policy import ExternalPolicy
from isobatch.laboratory.inner_products import check_memory, compiled_gram
from isobatch.laboratory.landscape import weights_of
from isobatch.laboratory.options import LabOptions, chain_length, geometries_of
from isobatch.laboratory.partial_results import NOTHING_KEPT, PartialResults
from isobatch.laboratory.per_sample import vanilla
from isobatch.laboratory.source import Source, draws
from isobatch.learning.state import TrainState
from isobatch.networks.actor_critic import Policy, require_standard
from isobatch.settings.config import Config
from isobatch.settings.options import Options

LARGEST_BATCH = 2048  # samples whose inner products are computed, for cosines and minibatches


class NotMeasurableError(UsageError):
    """This policy does not have what a section measures."""


@dataclass(frozen=True)
class Subject:
    """A policy, where its data comes from, and what is asked about it."""

    config: Config
    source: Source
    trained: TrainState | ExternalPolicy  # all that a run of this package has, or a policy of another one
    options: LabOptions
    env_timeout: float = Options.env_timeout
    collected: PartialResults = NOTHING_KEPT  # of the chains, which several sections share

    @property
    def state(self) -> TrainState:
        """For what needs more than a policy: networks, optimizer and moments."""
        if isinstance(self.trained, ExternalPolicy):
            raise NotMeasurableError(
                f"It needs the optimizer of a run of isobatch, and of this {self.config.algo} only the policy is known."
            )
        return self.trained

    @property
    def policy(self) -> Policy | ExternalPolicy:
        if isinstance(self.trained, ExternalPolicy):
            return self.trained
        return require_standard(self.trained.networks, "a diagnosis").policy

    @property
    def parameters(self) -> int:
        """Of the policy."""
        policy = self.policy
        if isinstance(policy, ExternalPolicy):
            return policy.size
        return sum(leaf.size for leaf in jax.tree.leaves(policy))

    @property
    def own_geometry(self) -> tuple[int, int]:
        """N x T of the run."""
        return self.config.num_envs, self.config.num_steps

    @cached_property
    def geometries(self) -> list[tuple[int, int]]:
        return geometries_of(self.options, *self.own_geometry)

    @cached_property
    def budget(self) -> int:
        return self.geometries[0][0] * self.geometries[0][1]

    @cached_property
    def chains(self) -> Chains:
        """The data that several sections share."""
        length = chain_length(self.geometries)
        groups = num_groups(self.source.time_limit, length)
        count = -(-max(self.options.chains, 2 * groups) // groups) * groups
        need = chain_bytes(self.source.obs_bytes, self.parameters, count, length)
        check_memory(need, f"{count} chains of {length} steps", "chains, the budget or the longest geometry")
        return self.source.chains(count, length, self.options.measure_seed, self.collected)

    @cached_property
    def weights(self) -> np.ndarray:
        """Of the chains, for estimates with intervals: see `landscape.weights_of`."""
        return weights_of(self.chains.count, seed=self.options.measure_seed)

    @property
    def batch_shape(self) -> tuple[int, int]:
        """The run's N x T, with fewer environments where the batch is too large for its inner products."""
        steps = min(self.config.num_steps, LARGEST_BATCH)
        return max(1, min(self.config.num_envs, LARGEST_BATCH // steps)), steps

    def batch_products(
        self, num_envs: int, num_steps: int, seed_offset: int, parts: PartialResults = NOTHING_KEPT
    ) -> np.ndarray:
        """Inner products [K, K] of the gradients of K independent batches."""
        count, seed = self.options.batches, self.options.measure_seed + seed_offset
        return batch_products(self.config, self.policy, self.source, num_envs, num_steps, count, seed, parts)

    def sample_products(
        self, batches: int, lam: float | None = None, first: int = 0, parts: PartialResults = NOTHING_KEPT
    ) -> Iterator[tuple[np.ndarray, Layout]]:
        """Inner products of the samples of some batches, from batch `first` on, and their layout."""
        config = self.config if lam is None else self.config.replace(gae_lambda=lam)
        n, t = self.batch_shape
        for segment in self.source.batches(n, t, draws(batches, self.options.measure_seed + 5), first, parts):
            samples, policy = samples_of(config, segment), self.policy
            if isinstance(policy, ExternalPolicy):
                gram = policy.gram(samples)
            else:
                gram = np.asarray(compiled_gram(vanilla)(policy, samples))
            done = np.asarray(segment.terminated | segment.truncated)
            episode = np.cumsum(done, axis=0) - done + np.arange(n) * (t + 1)
            yield gram.astype(float), Layout.of(episode.ravel(), np.zeros(n * t, int))
