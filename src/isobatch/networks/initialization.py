"""Freshly initialized networks.

Initial weights are drawn with NumPy, seed by seed, outside any compiled program: orthogonal initialization needs a QR
decomposition, and batched QR inside jit can deadlock on a CPU.

IMPALA's networks begin as those of openai/ppo-ewma do: the weights that lead to one output have a fixed length, smaller
in residual blocks, so that what six blocks add together is no larger than what they add it to.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from isobatch.envs.spaces import Box, MultiBinary, MultiDiscrete, Space, distribution_size
from isobatch.networks.actor_critic import ActorCritic, Networks, Policy
from isobatch.networks.custom_networks import STANDARD, make_custom_networks
from isobatch.networks.layers import Conv, Dense
from isobatch.networks.torso import STAGE_CONVS, Torso, channels_first, encoder_for
from isobatch.settings.config import Config, Encoder

HIDDEN_GAIN = 2**0.5  # gains of the three kinds of layers, as in CleanRL and OpenAI baselines
POLICY_GAIN = 0.01
VALUE_GAIN = 1.0
IMPALA_CONV, IMPALA_DENSE, IMPALA_HEAD = 1.0, 1.4, 0.1  # lengths of the weights of one output
KERNEL_SIZE = 3
NATURE_CONVS = ((8, 4), (4, 2), (3, 1))  # kernel size and stride of each convolution


def make_networks(config: Config, obs_shape: tuple[int, ...], action_space: Space, seed: int) -> Networks:
    """Freshly initialized networks, of this package or registered; the same seed gives the same bits."""
    if config.networks == STANDARD:
        return make_actor_critic(config, obs_shape, action_space, seed)
    return make_custom_networks(config, obs_shape, action_space, seed)


def make_actor_critic(config: Config, obs_shape: tuple[int, ...], action_space: Space, seed: int) -> ActorCritic:
    """The networks of this package, freshly initialized: orthogonal matrices (Saxe et al. 2014), biases of zero.

    https://arxiv.org/abs/1312.6120; with encoder "impala" as in https://github.com/openai/ppo-ewma.

    Args:
        config: arrangement, encoder, hidden_sizes, channels and activation.
        obs_shape: of one observation.
        action_space: `Discrete`, `MultiDiscrete`, `MultiBinary` or `Box`.
        seed: the same seed gives the same bits.

    Returns:
        `Networks` with a policy and a value function.

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> networks = ib.make_actor_critic(ib.preset("ppo", "CartPole-v1"), (4,), ib.Discrete(2), seed=0)
        >>> networks.value(jnp.zeros((5, 4))).shape
        (5,)
    """
    rng = np.random.default_rng([seed, 0x150BA7C4])
    torso = _torso(rng, config, obs_shape)
    features = torso.denses[-1].bias.size
    if isinstance(action_space, Box):
        size, log_std = len(action_space.low), _zeros(len(action_space.low))
    else:
        size, log_std = distribution_size(action_space), None

    def head_of(outputs: int, gain: float) -> Dense:
        return (
            _impala_dense(rng, features, outputs, IMPALA_HEAD)
            if torso.residual
            else _dense(rng, features, outputs, gain)
        )

    head = head_of(size, POLICY_GAIN)
    value_torso = _torso(rng, config, obs_shape) if config.arrangement == "dual" else None
    value_head = head_of(1, VALUE_GAIN)
    aux_head = head_of(1, VALUE_GAIN) if config.policy_iterations_per_phase else None
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
    denses = [
        _impala_dense(rng, i, o, IMPALA_DENSE) if encoder == "impala" else _dense(rng, i, o, HIDDEN_GAIN)
        for i, o in itertools.pairwise(sizes)
    ]
    return Torso(convs, tuple(denses), config.activation, len(obs_shape), encoder == "impala", first)


def _convs(rng: np.random.Generator, encoder: Encoder, channels: tuple[int, ...], inputs: int) -> Iterator[Conv]:
    def conv(i: int, o: int, size: int = KERNEL_SIZE, stride: int = 1) -> Conv:
        kernel = _orthogonal(rng, size * size * i, o, HIDDEN_GAIN)
        return Conv(kernel.reshape(size, size, i, o), _zeros(o), stride)

    def impala_conv(i: int, o: int, length: float) -> Conv:
        kernel = _fixed_length(rng, KERNEL_SIZE**2 * i, o, length)
        return Conv(kernel.reshape(KERNEL_SIZE, KERNEL_SIZE, i, o), _zeros(o), padding=KERNEL_SIZE // 2)

    layers = list(itertools.pairwise((inputs, *channels)))
    match encoder:
        case "nature":  # Mnih 2015
            for (i, o), (size, stride) in zip(layers, NATURE_CONVS, strict=True):
                yield conv(i, o, size, stride)
        case "impala":
            blocks_per_stage = (STAGE_CONVS - 1) // 2
            # The product of the two of a block: 1 / sqrt(number of blocks).
            inner = (len(layers) * blocks_per_stage) ** -0.25
            for i, o in layers:
                yield impala_conv(i, o, IMPALA_CONV)
                yield from (impala_conv(o, o, inner) for _ in range(STAGE_CONVS - 1))
        case _:
            yield from (conv(i, o) for i, o in layers)


def _dense(rng: np.random.Generator, inputs: int, outputs: int, gain: float) -> Dense:
    return Dense(_orthogonal(rng, inputs, outputs, gain), _zeros(outputs))


def _impala_dense(rng: np.random.Generator, inputs: int, outputs: int, length: float) -> Dense:
    return Dense(_fixed_length(rng, inputs, outputs, length), _zeros(outputs))


def _fixed_length(rng: np.random.Generator, rows: int, columns: int, length: float) -> Array:
    """Uniform numbers, each column scaled to this Euclidean length."""
    uniform = rng.uniform(-1.0, 1.0, (rows, columns))
    return _on_device(length * uniform / np.linalg.norm(uniform, axis=0))


def _orthogonal(rng: np.random.Generator, rows: int, columns: int, gain: float) -> Array:
    """A matrix with orthonormal rows or columns (Saxe 2014), uniform over all of them, times `gain`."""
    gaussian = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(gaussian)
    q *= np.sign(np.diag(r))
    return _on_device(gain * (q if rows >= columns else q.T))


def _zeros(size: int) -> Array:
    return _on_device(np.zeros(size))


def _on_device(values: np.ndarray) -> Array:
    """Without `jnp.asarray`, which compiles a program for each shape."""
    return jax.device_put(values.astype(jnp.result_type(float)))
