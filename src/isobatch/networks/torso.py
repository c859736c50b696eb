"""From observations to features: dense layers, plain convolutions, or those of Mnih (2015) or Espeholt (2018)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from isobatch.errors import UsageError
from isobatch.networks.layers import Conv, Dense
from isobatch.settings.config import Activation, Config, Encoder

ACTIVATIONS: dict[Activation, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "elu": jax.nn.elu,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
}
STAGE_CONVS = 5  # of IMPALA: one, and two residual blocks of two
SMALLEST_NATURE_IMAGE = 36  # pixels a side that leave the last convolution something
LARGEST_PLAIN_IMAGE = 32  # pixels a side; beyond, plain convolutions leave far too many features


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


def residual_stages(convs: Sequence[Callable[[Array], Array]], act: Callable[[Array], Array], x: Array) -> Array:
    """IMPALA (Espeholt 2018): stages of a convolution, a pooling and two residual blocks."""
    for start in range(0, len(convs), STAGE_CONVS):
        first, *blocks = convs[start : start + STAGE_CONVS]
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


def encoder_for(config: Config, obs_shape: tuple[int, ...]) -> Encoder:
    """The encoder that `config` asks for, or under `auto` the one for such observations; UsageError if it cannot be."""
    image = len(obs_shape) == 3
    if config.encoder == "mlp" or (config.encoder == "auto" and not image):
        return "mlp"
    seen = " x ".join(map(str, obs_shape))
    if not image:
        raise UsageError(f"encoder={config.encoder!r} needs images, and {config.env} shows {seen}: use mlp or auto.")
    side = min(obs_shape[1:]) if channels_first(obs_shape) else min(obs_shape[:2])
    if config.encoder == "auto" and side > LARGEST_PLAIN_IMAGE:
        raise UsageError(f"encoder='auto' is for small images, and {config.env} shows {seen}: use impala or nature.")
    if config.encoder == "nature" and side < SMALLEST_NATURE_IMAGE:
        raise UsageError(
            f"encoder='nature' needs images of at least {SMALLEST_NATURE_IMAGE} pixels a side, and {config.env} shows "
            f"{seen}: use conv or impala."
        )
    return "conv" if config.encoder == "auto" else config.encoder


def channels_first(shape: tuple[int, ...]) -> bool:
    """Channels are the fewest: in front (Procgen and Atari in EnvPool), or at the end."""
    return shape[0] < min(shape[1:])
