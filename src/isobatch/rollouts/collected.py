"""One type for a rollout, wherever its environments stepped: inside a compiled program, or outside in NumPy."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Bool, Float, PyTree

from isobatch.networks.distributions import Distribution


class CollectedRollout(eqx.Module):
    """What happened in T steps of N environments, before anything is computed from it.

    Outside compiled programs there is an axis of seeds in front.
    """

    obs: Array  # [T, N, ...], raw
    last_obs: Array  # [N, ...], to act on next
    action: Array
    behavior: Distribution
    reward: Float[Array, "T N"]
    terminated: Bool[Array, "T N"]
    truncated: Bool[Array, "T N"]
    next_obs: Array | None = None  # [T, N, ...], where the actions led, before resets
    final_value: Float[Array, "T N"] | None = None  # where there is no `next_obs`: of what episodes were cut off at
    value: Float[Array, "T N"] | None = None  # of the observations, if it was found when acting

    @classmethod
    def of_leaves(cls, **fields: PyTree) -> CollectedRollout:
        """From other leaves than the annotations say: arrays of NumPy with seeds in front, or axes of arrays."""
        return cls(**fields)

    @property
    def done(self) -> Bool[Array, "T N"]:
        return self.terminated | self.truncated
