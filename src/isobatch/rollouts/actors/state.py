"""What actors need to go on where their last used rollouts ended."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from isobatch.networks.actor_critic import Networks
from isobatch.networks.moments import Moments

PastPolicy = tuple[Networks, Moments | None]  # without where observations are clipped, which is a hyperparameter


class ActorsState(eqx.Module):
    """Of K actors, after the rollouts that were used: whatever was collected beyond is collected again."""

    key: Key[Array, "K"]  # where the randomness of their next rollouts comes from
    rollouts: Int[Array, "K"]  # that were used
    past: tuple[PastPolicy, ...]  # the policies of the last L versions, oldest first

    @classmethod
    def start(cls, actors: int, lag: int, key: Key[Array, ""], policy: PastPolicy) -> ActorsState:
        """Before the first update: there was no other policy yet."""
        return cls(jnp.broadcast_to(key, (actors,)), jnp.zeros(actors, jnp.int32), (policy,) * lag)
