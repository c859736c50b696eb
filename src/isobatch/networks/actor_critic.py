"""Policy and value networks: plain pytrees of arrays whose calls accept any leading batch axes."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from isobatch.envs.spaces import MultiBinary, MultiDiscrete, Space
from isobatch.networks.distributions import Bernoulli, Categorical, DiagonalGaussian, Distribution, MultiCategorical
from isobatch.networks.layers import Dense
from isobatch.networks.torso import Torso
from isobatch.settings.config import Arrangement


class Policy(eqx.Module):
    """Observation -> action distribution. This part alone is averaged into the proximal policy."""

    torso: Torso
    head: Dense
    log_std: Float[Array, "D"] | None  # continuous actions only; does not depend on the state
    action_space: Space | None = eqx.field(static=True, default=None)  # None: one choice, or real numbers

    def from_features(self, features: Float[Array, "*B F"]) -> Distribution:
        out = self.head(features)
        match self.action_space:
            case MultiDiscrete(sizes):
                return MultiCategorical(out, sizes)
            case MultiBinary():
                return Bernoulli(out)
        if self.log_std is None:
            return Categorical(out)
        return DiagonalGaussian(out, jnp.broadcast_to(self.log_std, out.shape))

    def __call__(self, obs: Array) -> Distribution:
        return self.from_features(self.torso(obs))


class ActorCritic(eqx.Module):
    """Policy and value function.

    dual: two networks; shared: one torso; detached: one torso that the value loss of the policy phase does not train.
    """

    policy: Policy
    value_torso: Torso | None
    value_head: Dense
    aux_head: Dense | None  # PPG: a second value function, on the policy's torso
    arrangement: Arrangement = eqx.field(static=True)

    def value(self, obs: Array) -> Float[Array, "*B"]:
        torso = self.policy.torso if self.value_torso is None else self.value_torso
        return self.value_head(torso(obs))[..., 0]

    def for_auxiliary_phase(self, obs: Array) -> tuple[Distribution, Float[Array, "*B"], Float[Array, "*B"]]:
        """Distribution, value and auxiliary value. Here values train the torso they stand on, also a detached one."""
        assert self.aux_head is not None
        features = self.policy.torso(obs)
        value_features = features if self.value_torso is None else self.value_torso(obs)
        value, aux_value = self.value_head(value_features), self.aux_head(features)
        return self.policy.from_features(features), value[..., 0], aux_value[..., 0]

    def __call__(self, obs: Array) -> tuple[Distribution, Float[Array, "*B"]]:
        """Distribution and value, the torso evaluated once where it is shared."""
        if self.value_torso is not None:
            return self.policy(obs), self.value(obs)
        features = self.policy.torso(obs)
        for_value = jax.lax.stop_gradient(features) if self.arrangement == "detached" else features
        return self.policy.from_features(features), self.value_head(for_value)[..., 0]
