"""Policy and value networks: plain pytrees of arrays whose calls accept any leading batch axes.

`Networks` is what training needs of them; `ActorCritic` are those of this package.
"""

import abc
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from isobatch.envs.spaces import MultiBinary, MultiDiscrete, Space
from isobatch.errors import UsageError
from isobatch.networks.distributions import Bernoulli, Categorical, DiagonalGaussian, Distribution, MultiCategorical
from isobatch.networks.layers import Dense
from isobatch.networks.torso import Torso
from isobatch.settings.config import Arrangement


@runtime_checkable
class PolicyFunction(Protocol):
    """Observations [*B, *obs_shape] -> a distribution over actions [*B]."""

    def __call__(self, obs: Array, /) -> Distribution: ...


class Networks(eqx.Module):
    """What training needs of a policy and a value function: the class to derive networks of one's own from.

    `policy` is a field, itself a module, since it alone is averaged into the proximal policy of PPO-EWMA
    (Hilton, Cobbe & Schulman 2021, section 4, https://arxiv.org/abs/2110.00641). Both take observations with any
    leading axes: `jnp.vectorize(layers, signature="(i)->(o)")` makes a function of one vector such a function.

    | member          | takes                | gives                                                               |
    |-----------------|----------------------|---------------------------------------------------------------------|
    | `policy(obs)`   | obs [*B, *obs_shape] | `Categorical`, `DiagonalGaussian`, `MultiCategorical` or `Bernoulli` |
    | `value(obs)`    | obs [*B, *obs_shape] | values [*B]                                                         |
    | `networks(obs)` | obs [*B, *obs_shape] | both; to be overridden where they share layers                      |

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> class Linear(ib.Networks):
        ...     policy: ib.PolicyFunction
        ...     weights: jnp.ndarray
        ...     def value(self, obs):
        ...         return obs @ self.weights
        >>> networks = Linear(lambda obs: ib.Categorical(jnp.stack([obs[..., 0], obs[..., 1]], -1)), jnp.ones(2))
        >>> distribution, value = networks(jnp.array([[1.0, 3.0], [2.0, 0.0]]))
        >>> distribution.mode().tolist(), value.tolist()
        ([1, 0], [4.0, 2.0])
    """

    policy: eqx.AbstractVar[PolicyFunction]

    @abc.abstractmethod
    def value(self, obs: Array) -> Float[Array, "*B"]:
        """Values of the states that are seen as `obs` [*B, *obs_shape]."""

    @property
    def shares_layers(self) -> bool:
        """Whether a value costs next to nothing where the policy is computed."""
        return False

    def __call__(self, obs: Array) -> tuple[Distribution, Float[Array, "*B"]]:
        """Distribution and value."""
        return self.policy(obs), self.value(obs)


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


class ActorCritic(Networks):
    """Policy and value function.

    dual: two networks; shared: one torso; detached: one torso that the value loss of the policy phase does not train.
    """

    policy: Policy
    value_torso: Torso | None
    value_head: Dense
    aux_head: Dense | None  # PPG: a second value function, on the policy's torso
    arrangement: Arrangement = eqx.field(static=True)

    @property
    def shares_layers(self) -> bool:
        return self.value_torso is None

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


def require_standard(networks: Networks, purpose: str) -> ActorCritic:
    """The networks if they are those of this package, which `purpose` needs."""
    if not isinstance(networks, ActorCritic):
        raise UsageError(
            f"{purpose} needs the layers of the networks of this package, and these are {type(networks).__name__}: "
            "use networks='standard'."
        )
    return networks
