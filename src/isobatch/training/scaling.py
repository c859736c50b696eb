"""Whether several devices are worth it: what a sum over them takes, against what they save."""

from __future__ import annotations

import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float

from isobatch.formatting import rounded
from isobatch.learning.state import TrainState
from isobatch.networks.shards import DEVICES
from isobatch.settings.config import Config
from isobatch.training.sharding import ShardLayout

SUMS = 20  # that are timed


def seconds_per_sum(layout: ShardLayout, size: int) -> float:
    """What it takes to add up so many numbers over the devices of a seed; every process has to ask."""

    def sums(value: Float[Array, " P"]) -> Float[Array, " P"]:
        return jax.lax.fori_loop(0, SUMS, lambda _, x: jax.lax.pmean(x, DEVICES), value)

    whole = PartitionSpec()
    timed = jax.jit(jax.shard_map(sums, mesh=layout.mesh, in_specs=whole, out_specs=whole, check_vma=False))
    value = jnp.zeros(size)
    jax.block_until_ready(timed(value))  # compiled
    clock = time.perf_counter()
    jax.block_until_ready(timed(value))
    return (time.perf_counter() - clock) / SUMS


@dataclass(frozen=True)
class Sharing:
    """What sharing a run costs: seconds of a sum over its devices, one for each gradient step."""

    config: Config
    devices: int
    seconds: float

    @classmethod
    def of(cls, config: Config, layout: ShardLayout | None, states: TrainState, num_seeds: int) -> Sharing | None:
        """None where there is one device."""
        if layout is None or layout.mesh.shape[DEVICES] == 1:
            return None
        size = sum(leaf.size for leaf in jax.tree.leaves(states.networks)) // num_seeds
        return cls(config, layout.mesh.shape[DEVICES], seconds_per_sum(layout, size))

    def remark(self, iteration_seconds: float) -> str:
        """What to say after iterations of this length; nothing where the devices pay.

        With t seconds a sample an iteration of B samples takes B t on one device, B t / D + G a on D of them, with G
        gradient steps and sums of a seconds: they pay from B = G a / (t (1 - 1/D)).
        """
        geometry = self.config.geometry
        sums = geometry.gradient_steps * self.seconds
        per_sample = max(iteration_seconds - sums, 1e-9) * self.devices / geometry.iteration_batch
        pays_from = sums / (per_sample * (1 - 1 / self.devices))
        if geometry.iteration_batch >= pays_from:
            return ""
        batch, share = pays_from / geometry.num_minibatches, min(sums / iteration_seconds, 1)
        return (
            f"note: {self.devices} devices are slower than one here: adding up gradients takes "
            f"{rounded(1e3 * self.seconds)} ms of each gradient step, {share:.0%} of the time. They pay from an "
            f"optimization batch of about {rounded(batch, 2)} samples (now {geometry.optimization_batch:,})."
        )
