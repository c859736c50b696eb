"""Policy and value networks: plain pytrees of arrays whose calls accept any leading batch axes.

Initial weights are drawn with NumPy, seed by seed, outside any compiled program: orthogonal initialization
needs a QR decomposition, and batched QR inside jit can deadlock on a CPU.
"""

from __future__ import annotations

import abc
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from isobatch.envs.spaces import Box, MultiBinary, MultiDiscrete, Space, distribution_size
from isobatch.errors import UsageError
from isobatch.networks.convolutions import convolve, few_rows, patches
from isobatch.networks.distributions import Bernoulli, Categorical, DiagonalGaussian, Distribution, MultiCategorical
from isobatch.settings.config import Activation, Arrangement, Config, Encoder

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
NATURE = ((8, 4), (4, 2), (3, 1))  # kernel and stride of each convolution
SMALLEST_NATURE = 36  # pixels a side that leave the last convolution something
LARGEST_PLAIN = 32  # beyond, plain convolutions leave far too many features


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
    """A square convolution; height x width x channels."""

    weight: Float[Array, "K K In Out"]
    bias: Float[Array, "Out"]
    stride: int = eqx.field(static=True, default=1)
    padding: int = eqx.field(static=True, default=0)  # zeros on each side

    def rows(self, x: Float[Array, "*B H W In"]) -> Float[Array, "*B H2 W2 KKIn"]:
        return patches(self.weight.shape[0], self.stride, self.padding, x)

    def __call__(self, x: Float[Array, "*B H W In"]) -> Float[Array, "*B H2 W2 Out"]:
        if few_rows(self.weight.shape[0], self.stride, x):
            return super().__call__(x)
        images = x.reshape(-1, *x.shape[-3:])
        out = convolve(self.stride, self.padding, images, self.weight)
        return out.reshape(*x.shape[:-3], *out.shape[1:]) + self.bias


class Torso(eqx.Module):
    """Observation -> features: convolutions for images, then dense layers."""

    convs: tuple[Conv, ...]
    denses: tuple[Dense, ...]
    activation: Activation = eqx.field(static=True)
    obs_ndim: int = eqx.field(static=True)
    residual: bool = eqx.field(static=True, default=False)  # the convolutions are IMPALA's stages
    channels_first: bool = eqx.field(static=True, default=False)

    def __call__(self, obs: Array) -> Float[Array, "*B F"]:
        act = ACTIVATIONS[self.activation]
        x = jnp.moveaxis(obs, -3, -1) if self.channels_first else obs
        x = x / 255.0 if x.dtype == jnp.uint8 else x.astype(jnp.result_type(float))
        if self.residual:
            x = act(residual_stages(self.convs, act, x))
        else:
            for conv in self.convs:
                x = act(conv(x))
        x = x.reshape(*x.shape[: x.ndim - self.obs_ndim], -1)
        for dense in self.denses:
            x = act(dense(x))
        return x


STAGE = 5  # convolutions of an IMPALA stage: one, and two residual blocks of two


def residual_stages(convs: Sequence[Callable[[Array], Array]], act: Callable[[Array], Array], x: Array) -> Array:
    """IMPALA (Espeholt 2018): stages of a convolution, a pooling and two residual blocks."""
    for start in range(0, len(convs), STAGE):
        first, *blocks = convs[start : start + STAGE]
        x = pooled(first(x))
        for one, two in zip(blocks[::2], blocks[1::2], strict=True):
            x = x + two(act(one(act(x))))
    return x


def pooled(x: Float[Array, "*B H W C"]) -> Float[Array, "*B H2 W2 C"]:
    """The largest of 3 x 3, at every second place; by slices, since `reduce_window` has a slow gradient on a CPU."""
    height, width = x.shape[-3:-1]
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 3) + [(1, 1), (1, 1), (0, 0)], constant_values=-jnp.inf)
    x = functools.reduce(jnp.maximum, [x[..., i : i + height : 2, :, :] for i in range(3)])
    return functools.reduce(jnp.maximum, [x[..., j : j + width : 2, :] for j in range(3)])


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


def make_networks(config: Config, obs_shape: tuple[int, ...], action_space: Space, seed: int) -> ActorCritic:
    """Freshly initialized networks; the same seed gives the same bits."""
    rng = np.random.default_rng([seed, 0x150BA7C4])
    torso = _torso(rng, config, obs_shape)
    features = torso.denses[-1].bias.size
    if isinstance(action_space, Box):
        size, log_std = len(action_space.low), jnp.zeros(len(action_space.low))
    else:
        size, log_std = distribution_size(action_space), None
    head = _dense(rng, features, size, POLICY_GAIN)
    value_torso = _torso(rng, config, obs_shape) if config.arrangement == "dual" else None
    value_head = _dense(rng, features, 1, VALUE_GAIN)
    aux_head = _dense(rng, features, 1, VALUE_GAIN) if config.policy_iterations_per_phase else None
    policy = Policy(
        torso, head, log_std, action_space if isinstance(action_space, MultiDiscrete | MultiBinary) else None
    )
    return ActorCritic(policy, value_torso, value_head, aux_head, config.arrangement)


def _torso(rng: np.random.Generator, config: Config, obs_shape: tuple[int, ...]) -> Torso:
    encoder = encoder_for(config, obs_shape)
    first = encoder != "mlp" and channels_first(obs_shape)
    image = (*obs_shape[1:], obs_shape[0]) if first else obs_shape
    convs: tuple[Conv, ...] = ()
    width = int(np.prod(obs_shape))
    if encoder != "mlp":
        convs = tuple(_convs(rng, encoder, config.channels, image[-1]))
        blank = jax.ShapeDtypeStruct(image, jnp.float32)
        narrow = Torso(convs, (), config.activation, 3, encoder == "impala")
        width = jax.eval_shape(narrow, blank).size
    sizes = (width, *config.hidden_sizes)
    denses = [_dense(rng, i, o, HIDDEN_GAIN) for i, o in itertools.pairwise(sizes)]
    return Torso(convs, tuple(denses), config.activation, len(obs_shape), encoder == "impala", first)


def encoder_for(config: Config, obs_shape: tuple[int, ...]) -> Encoder:
    """The encoder that `config` asks for, or under `auto` the one for such observations; UsageError if it cannot be."""
    image = len(obs_shape) == 3
    if config.encoder == "mlp" or (config.encoder == "auto" and not image):
        return "mlp"
    seen = " x ".join(map(str, obs_shape))
    if not image:
        raise UsageError(f"encoder={config.encoder!r} needs images, and {config.env} shows {seen}: use mlp or auto.")
    side = min(obs_shape[1:]) if channels_first(obs_shape) else min(obs_shape[:2])
    if config.encoder == "auto" and side > LARGEST_PLAIN:
        raise UsageError(f"encoder='auto' is for small images, and {config.env} shows {seen}: use impala or nature.")
    if config.encoder == "nature" and side < SMALLEST_NATURE:
        raise UsageError(
            f"encoder='nature' needs images of at least {SMALLEST_NATURE} pixels a side, and {config.env} shows "
            f"{seen}: use conv or impala."
        )
    return "conv" if config.encoder == "auto" else config.encoder


def channels_first(shape: tuple[int, ...]) -> bool:
    """Channels are the fewest: in front (Procgen and Atari in EnvPool), or at the end."""
    return shape[0] < min(shape[1:])


def _convs(rng: np.random.Generator, encoder: Encoder, channels: tuple[int, ...], inputs: int) -> Iterator[Conv]:
    def conv(i: int, o: int, size: int = KERNEL, stride: int = 1, padding: int = 0) -> Conv:
        kernel = _orthogonal(rng, size * size * i, o, HIDDEN_GAIN)
        return Conv(kernel.reshape(size, size, i, o), jnp.zeros(o), stride, padding)

    layers = list(itertools.pairwise((inputs, *channels)))
    match encoder:
        case "nature":  # Mnih 2015
            for (i, o), (size, stride) in zip(layers, NATURE, strict=True):
                yield conv(i, o, size, stride)
        case "impala":
            for i, o in layers:
                yield conv(i, o, padding=KERNEL // 2)
                yield from (conv(o, o, padding=KERNEL // 2) for _ in range(STAGE - 1))
        case _:
            yield from (conv(i, o) for i, o in layers)


def _dense(rng: np.random.Generator, inputs: int, outputs: int, gain: float) -> Dense:
    return Dense(_orthogonal(rng, inputs, outputs, gain), jnp.zeros(outputs))


def _orthogonal(rng: np.random.Generator, rows: int, columns: int, gain: float) -> Array:
    """A matrix with orthonormal rows or columns (Saxe 2014), uniform over all of them, times `gain`."""
    gaussian = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(gaussian)
    q *= np.sign(np.diag(r))
    return jnp.asarray(gain * (q if rows >= columns else q.T), jnp.result_type(float))
