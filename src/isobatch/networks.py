"""Policy and value networks: plain pytrees of arrays whose calls accept any leading batch axes.

Initial weights are drawn with NumPy, seed by seed, outside any compiled program: orthogonal initialisation
needs a QR decomposition, and batched QR inside jit can deadlock on a CPU.
"""

from __future__ import annotations

import abc
import itertools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from isobatch.config import Activation, Arrangement, Config
from isobatch.distributions import Categorical, DiagonalGaussian, Distribution
from isobatch.envs.spaces import Box, Discrete, Space

ACTIVATIONS: dict[Activation, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
}
HIDDEN_GAIN = 2**0.5  # gains of the three kinds of layers, as in CleanRL and OpenAI baselines
POLICY_GAIN = 0.01
VALUE_GAIN = 1.0
KERNEL = 3


@jax.custom_vjp
def matmul(x: Float[Array, "*B In"], weight: Float[Array, "In Out"]) -> Float[Array, "*B Out"]:
    """x W, with a fast gradient of W on the CPU.

    That gradient is x' g, summed over samples. XLA's CPU backend multiplies by a transpose that exists in memory about
    twice as fast as it contracts leading axes, and the barrier keeps it from turning one into the other.
    """
    return x @ weight


def _matmul_forwards(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return x @ weight, (x, weight)


def _matmul_backwards(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    x, weight = saved
    transposed = jax.lax.optimization_barrier(x.reshape(-1, x.shape[-1]).T)
    return gradient @ weight.T, transposed @ gradient.reshape(-1, gradient.shape[-1])


matmul.defvjp(_matmul_forwards, _matmul_backwards)


class Affine(eqx.Module):
    """rows(x) W + b: what layers with weights have in common, and all that the gradient laboratory knows of them."""

    weight: eqx.AbstractVar[Array]
    bias: eqx.AbstractVar[Float[Array, "Out"]]

    @abc.abstractmethod
    def rows(self, x: Array) -> Array:
        """The input as rows [..., In] that are multiplied by the weights, one for each position of the output."""

    @property
    def matrix(self) -> Float[Array, "In Out"]:
        return self.weight.reshape(-1, self.weight.shape[-1])

    def __call__(self, x: Array) -> Array:
        return matmul(self.rows(x), self.matrix) + self.bias


class Dense(Affine):
    """x W + b."""

    weight: Float[Array, "In Out"]
    bias: Float[Array, "Out"]

    def rows(self, x: Float[Array, "*B In"]) -> Float[Array, "*B In"]:
        return x


class Conv(Affine):
    """A KERNEL x KERNEL convolution, stride 1, without padding; height x width x channels."""

    weight: Float[Array, "K K In Out"]
    bias: Float[Array, "Out"]

    def rows(self, x: Float[Array, "*B H W In"]) -> Float[Array, "*B H2 W2 KKIn"]:
        # Shifted copies and one matrix product: inside a loop XLA's own convolution was 7 times slower on a CPU.
        size = self.weight.shape[0]
        height, width = x.shape[-3] - size + 1, x.shape[-2] - size + 1
        shifts = [x[..., i : i + height, j : j + width, :] for i in range(size) for j in range(size)]
        return jnp.concatenate(shifts, axis=-1)


class Torso(eqx.Module):
    """Observation -> features: convolutions for images, then dense layers."""

    convs: tuple[Conv, ...]
    denses: tuple[Dense, ...]
    activation: Activation = eqx.field(static=True)
    obs_ndim: int = eqx.field(static=True)

    def __call__(self, obs: Array) -> Float[Array, "*B F"]:
        act = ACTIVATIONS[self.activation]
        x = obs / 255.0 if obs.dtype == jnp.uint8 else obs.astype(jnp.result_type(float))
        for conv in self.convs:
            x = act(conv(x))
        x = x.reshape(*x.shape[: x.ndim - self.obs_ndim], -1)
        for dense in self.denses:
            x = act(dense(x))
        return x


class Policy(eqx.Module):
    """Observation -> action distribution. This part alone is averaged into the proximal policy."""

    torso: Torso
    head: Dense
    log_std: Float[Array, "D"] | None  # continuous actions only; does not depend on the state

    def from_features(self, features: Float[Array, "*B F"]) -> Distribution:
        out = self.head(features)
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


def make_networks(config: Config, obs_shape: tuple[int, ...], action_space: Space, seed: int) -> ActorCritic:
    """Freshly initialised networks; the same seed gives the same bits."""
    rng = np.random.default_rng([seed, 0x150BA7C4])
    torso = _torso(rng, config, obs_shape)
    features = torso.denses[-1].bias.size
    match action_space:
        case Discrete(n):
            head, log_std = _dense(rng, features, n, POLICY_GAIN), None
        case Box(shape):
            size = int(np.prod(shape))
            head, log_std = _dense(rng, features, size, POLICY_GAIN), jnp.zeros(size)
    value_torso = _torso(rng, config, obs_shape) if config.arrangement == "dual" else None
    value_head = _dense(rng, features, 1, VALUE_GAIN)
    aux_head = _dense(rng, features, 1, VALUE_GAIN) if config.policy_iterations_per_phase else None
    return ActorCritic(Policy(torso, head, log_std), value_torso, value_head, aux_head, config.arrangement)


def _torso(rng: np.random.Generator, config: Config, obs_shape: tuple[int, ...]) -> Torso:
    convs: list[Conv] = []
    width = int(np.prod(obs_shape))
    if len(obs_shape) == 3:
        height, broad, channels = obs_shape
        for out in config.channels:
            kernel = _orthogonal(rng, KERNEL * KERNEL * channels, out, HIDDEN_GAIN)
            convs.append(Conv(kernel.reshape(KERNEL, KERNEL, channels, out), jnp.zeros(out)))
            height, broad, channels = height - KERNEL + 1, broad - KERNEL + 1, out
        width = height * broad * channels
    sizes = (width, *config.hidden_sizes)
    denses = [_dense(rng, i, o, HIDDEN_GAIN) for i, o in itertools.pairwise(sizes)]
    return Torso(tuple(convs), tuple(denses), config.activation, len(obs_shape))


def _dense(rng: np.random.Generator, inputs: int, outputs: int, gain: float) -> Dense:
    return Dense(_orthogonal(rng, inputs, outputs, gain), jnp.zeros(outputs))


def _orthogonal(rng: np.random.Generator, rows: int, columns: int, gain: float) -> Array:
    """A matrix with orthonormal rows or columns (Saxe 2014), uniform over all of them, times `gain`."""
    gaussian = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(gaussian)
    q *= np.sign(np.diag(r))
    return jnp.asarray(gain * (q if rows >= columns else q.T), jnp.result_type(float))
