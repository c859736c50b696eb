"""Parameters of a policy and its value function in one file, described so that others can compute what they compute.

A network is a list of layers, applied one after the other. Every layer says its kind and names its tensors; `KINDS`
explains each kind in words, and the words go into the file. Nothing is pickled. `FORMATS` turns tensors and their
description into bytes, with the package that a format needs.
"""

from __future__ import annotations

import importlib
import io
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, NotRequired, Required, TypedDict

import numpy as np

from isobatch.envs.host_interface import HostEnvironment
from isobatch.envs.interface import Environment
from isobatch.envs.registry import environment_of
from isobatch.envs.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space
from isobatch.errors import UsageError
from isobatch.files import write_file
from isobatch.networks.actor_critic import require_standard
from isobatch.networks.layers import Affine, Conv
from isobatch.networks.torso import STAGE_CONVS, Torso
from isobatch.rollouts.segment import OBS_EPS
from isobatch.settings.parsing import SettingsByName, inf_as_text
from isobatch.settings.versions import versions
from isobatch.training.agent import TrainedSeed

Tensors = Mapping[str, np.ndarray]
TORCH_LAYOUT = "weights as PyTorch has them: out x in, kernels out x in x height x width"
KINDS = {
    "normalize": "clip((x - mean) / (std + eps), -clip, clip); clip null: not clipped",
    "divide": "x / by",
    "channels_last": "from channels x height x width to height x width x channels",
    "conv": "y[h, w] = sum over i, j of x[stride h + i, stride w + j] @ weight[i, j] + bias; x is height x width x "
    "channels with `padding` zeros on each side, weight kernel height x kernel width x in x out; for PyTorch: "
    "weight.permute(3, 2, 0, 1), x with channels first",
    "max_pool": "the largest of size x size, every `stride` pixels, with `padding` pixels of -infinity on each side",
    "residual": "x + layers(x)",
    "activation": "only the activation",
    "flatten": "x as one vector, the last axis runs fastest (images: height, width, channels)",
    "dense": "x @ weight + bias, weight is in x out; for PyTorch: weight.T",
}
ACTIVATIONS = {
    "tanh": "tanh(x)",
    "relu": "max(x, 0)",
    "elu": "x where x > 0, else exp(x) - 1",
    "silu": "x / (1 + exp(-x))",
    "gelu": "x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))",
}
DISTRIBUTIONS = {
    "categorical": "action i has probability softmax(output)[i]; deterministic: argmax(output)",
    "multi_categorical": "output is cut into parts of `sizes`, each of which is categorical",
    "bernoulli": "switch i is on with probability 1 / (1 + exp(-output[i])); deterministic: output > 0",
    "diagonal_gaussian": "mean output, standard deviation exp(log_std); deterministic: the mean; then, if the action "
    "is rescaled, low + (x + 1) / 2 (high - low); then clipped to [low, high]",
}

FLATTENED = (
    "parts one after another, a Dict by sorted keys and a Tuple in order; Discrete and MultiDiscrete are one-hot, "
    "others as they are, the last axis runs fastest"
)


class Layer(TypedDict, total=False):
    """A layer of a network, with what its kind needs, as `KINDS` explains it; tensors by their names."""

    kind: Required[str]
    name: Required[str]
    weight: str
    bias: str
    shape: list[int]  # of the weight
    activation: str | None
    stride: int
    padding: int
    size: int
    layers: list[Layer]
    by: float
    mean: str
    std: str
    eps: float
    clip: float | None


class DistributionDescription(TypedDict):
    """What the output of the policy is a distribution of."""

    kind: str
    log_std: NotRequired[str]
    meaning: str


class PolicyDescription(TypedDict):
    """From an observation to the distribution of actions."""

    layers: list[Layer]
    distribution: DistributionDescription


class ValueDescription(TypedDict):
    """From an observation to its value."""

    layers: list[Layer]
    trained: bool
    rewards_divided_by: float | None


class ObservationDescription(TypedDict):
    """What the environment shows."""

    shape: list[int]
    dtype: str
    space: NotRequired[str]
    flattened: NotRequired[str]


class Description(TypedDict):
    """What the tensors of a file are for."""

    format: str
    format_version: int
    isobatch: str
    env: str
    algo: str
    policy_seed: int
    iteration: int
    env_steps: int
    observation: ObservationDescription
    action: dict[str, object]
    policy: PolicyDescription
    value: ValueDescription
    kinds: dict[str, str]
    activations: dict[str, str]
    config: SettingsByName


def contents(learned: TrainedSeed) -> tuple[dict[str, np.ndarray], Description]:
    """Tensors by name, and the description of what they are for."""
    config, networks = learned.config, require_standard(learned.networks, "an export")
    policy = networks.policy
    env = environment_of(config)
    tensors: dict[str, np.ndarray] = {}
    preprocessing = preprocessing_layers(learned, env.obs_dtype, tensors)
    policy_torso = torso_layers(policy.torso, "policy.torso", tensors)
    value_torso = (
        policy_torso if networks.value_torso is None else torso_layers(networks.value_torso, "value.torso", tensors)
    )
    head = affine_layer(policy.head, "policy.head", None, tensors)
    value_head = affine_layer(networks.value_head, "value.head", None, tensors)
    kind = distribution_kind(env.action_space)
    distribution: DistributionDescription = {"kind": kind, "meaning": DISTRIBUTIONS[kind]}
    if policy.log_std is not None:
        distribution = {"kind": kind, "log_std": "policy.log_std", "meaning": DISTRIBUTIONS[kind]}
        tensors["policy.log_std"] = np.asarray(policy.log_std)
    policy_layers, value_layers = [*preprocessing, *policy_torso, head], [*preprocessing, *value_torso, value_head]
    used = kinds_in(policy_layers + value_layers)
    description: Description = {
        "format": "isobatch policy",
        "format_version": 1,
        "isobatch": versions()["isobatch"],
        "env": config.env,
        "algo": config.algo,
        "policy_seed": learned.seed,
        "iteration": learned.iteration,
        "env_steps": learned.iteration * config.geometry.iteration_batch,
        "observation": describe_observation(env),
        "action": describe_action(env),
        "policy": {"layers": policy_layers, "distribution": distribution},
        "value": {"layers": value_layers, "trained": config.baseline, "rewards_divided_by": learned.reward_std},
        "kinds": {kind: text for kind, text in KINDS.items() if kind in used},
        "activations": {config.activation: ACTIVATIONS[config.activation]},
        "config": {name: inf_as_text(value) for name, value in config.to_dict().items()},
    }
    return tensors, description


def preprocessing_layers(learned: TrainedSeed, obs_dtype: str, tensors: dict[str, np.ndarray]) -> list[Layer]:
    """From a raw observation to what the networks see."""
    if learned.obs_moments is None:
        return [{"kind": "divide", "name": "observation", "by": 255.0}] if obs_dtype == "uint8" else []
    tensors["observation.mean"] = np.asarray(learned.obs_moments.mean)
    tensors["observation.std"] = np.sqrt(np.asarray(learned.obs_moments.variance))
    clip = learned.config.hypers.obs_clip
    return [
        {
            "kind": "normalize",
            "name": "observation",
            "mean": "observation.mean",
            "std": "observation.std",
            "eps": OBS_EPS,
            "clip": clip if math.isfinite(clip) else None,
        }
    ]


def torso_layers(torso: Torso, name: str, tensors: dict[str, np.ndarray]) -> list[Layer]:
    act = torso.activation
    turned: list[Layer] = [{"kind": "channels_last", "name": f"{name}.channels_last"}] if torso.channels_first else []
    plain = not torso.residual
    convs = [affine_layer(c, f"{name}.conv{i}", act if plain else None, tensors) for i, c in enumerate(torso.convs)]
    denses = [affine_layer(layer, f"{name}.dense{i}", act, tensors) for i, layer in enumerate(torso.denses)]
    flatten: list[Layer] = [{"kind": "flatten", "name": f"{name}.flatten"}] if torso.obs_ndim > 1 else []
    return [*turned, *(convs if plain else residual_layers(convs, name, act)), *flatten, *denses]


def residual_layers(convs: list[Layer], name: str, act: str) -> list[Layer]:
    """IMPALA's stages, as `networks.residual_stages` computes them."""
    layers: list[Layer] = []
    for start in range(0, len(convs), STAGE_CONVS):
        first, *blocks = convs[start : start + STAGE_CONVS]
        pool = f"{name}.pool{start // STAGE_CONVS}"
        layers += [first, {"kind": "max_pool", "name": pool, "size": 3, "stride": 2, "padding": 1}]
        for one, two in zip(blocks[::2], blocks[1::2], strict=True):
            before: Layer = {"kind": "activation", "name": f"{one['name']}.before", "activation": act}
            inner = [before, one | {"activation": act}, two]
            layers.append({"kind": "residual", "name": f"{one['name']}.block", "layers": inner})
    return [*layers, {"kind": "activation", "name": f"{name}.after", "activation": act}]


def kinds_in(layers: list[Layer]) -> set[str]:
    return {layer["kind"] for layer in layers}.union(*(kinds_in(layer.get("layers", [])) for layer in layers))


def affine_layer(layer: Affine, name: str, activation: str | None, tensors: dict[str, np.ndarray]) -> Layer:
    tensors[f"{name}.weight"], tensors[f"{name}.bias"] = np.asarray(layer.weight), np.asarray(layer.bias)
    described: Layer = {
        "kind": "conv" if isinstance(layer, Conv) else "dense",
        "name": name,
        "weight": f"{name}.weight",
        "bias": f"{name}.bias",
        "shape": list(layer.weight.shape),
        "activation": activation,
    }
    if isinstance(layer, Conv):
        described["stride"], described["padding"] = layer.stride, layer.padding
    return described


def describe_observation(env: Environment | HostEnvironment) -> ObservationDescription:
    description: ObservationDescription = {"shape": list(env.obs_shape), "dtype": env.obs_dtype}
    if isinstance(env, HostEnvironment) and not env.observations.is_box:
        description["space"], description["flattened"] = str(env.observations.space), FLATTENED
    return description


def distribution_kind(space: Space) -> str:
    kinds: dict[type, str] = {
        Discrete: "categorical",
        MultiDiscrete: "multi_categorical",
        MultiBinary: "bernoulli",
        Box: "diagonal_gaussian",
    }
    return kinds[type(space)]


def describe_action(env: Environment | HostEnvironment) -> dict[str, object]:
    """The action space; `start` is added to what the policy chooses, where an environment does not count from 0."""
    start = np.asarray(env.actions.offset).tolist() if isinstance(env, HostEnvironment) else 0
    match env.action_space:
        case Discrete(n):
            return {"kind": "discrete", "n": n, "start": start}
        case MultiDiscrete(sizes):
            return {"kind": "multi_discrete", "sizes": list(sizes), "start": start}
        case MultiBinary(n):
            return {"kind": "multi_binary", "n": n}
        case Box() as space:
            low, high = ([inf_as_text(v) for v in bound] for bound in (space.low, space.high))
            return {"kind": "box", "shape": list(space.shape), "low": low, "high": high, "rescaled": space.rescaled}


def export(learned: TrainedSeed, path: Path, format_name: str) -> Description:
    """Write the file; the description that is in it."""
    tensors, description = contents(learned)
    write_file(path, FORMATS[format_name].write(tensors, description))
    return description


class Format(NamedTuple):
    write: Callable[[Tensors, Description], bytes]
    module: str | None  # that must be there
    install: str | None  # what to install if it is not


def npz(tensors: Tensors, description: Description) -> bytes:
    """NumPy's archive; the description is the array of that name."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, description=np.array(as_text(description)), **tensors)
    return buffer.getvalue()


def safetensors(tensors: Tensors, description: Description) -> bytes:
    """The description is in the metadata."""
    import safetensors.numpy as library

    whole = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    content: bytes = library.save(whole, metadata={"description": as_text(description)})
    return content


def onnx(tensors: Tensors, description: Description) -> bytes:
    """A graph from observations to the policy's output and the value; the description is in the metadata."""
    from isobatch.policies.onnx_graph import onnx_model

    return onnx_model(tensors, description)


def pt(tensors: Tensors, description: Description) -> bytes:
    """PyTorch's file, {"state_dict", "layout", "description"}, readable with `weights_only`."""
    import torch

    state = {name: torch.tensor(torch_layout(name, tensor)) for name, tensor in tensors.items()}
    buffer = io.BytesIO()
    torch.save({"state_dict": state, "layout": TORCH_LAYOUT, "description": as_text(description)}, buffer)
    return buffer.getvalue()


def torch_layout(name: str, tensor: np.ndarray) -> np.ndarray:
    if not name.endswith(".weight"):
        return tensor
    return tensor.transpose(3, 2, 0, 1) if tensor.ndim == 4 else tensor.T


def as_text(description: Description) -> str:
    return json.dumps(description, allow_nan=False)


EXTRA = "pip install 'isobatch[export]'"
FORMATS = {
    "npz": Format(npz, None, None),
    "safetensors": Format(safetensors, "safetensors.numpy", EXTRA),
    "onnx": Format(onnx, "onnx", EXTRA),
    "pt": Format(pt, "torch", "pip install torch"),
}


def format_of(path: Path, wanted: str | None) -> str:
    """The format that was asked for, or the one that the file's ending names; UsageError if it cannot be written."""
    name = wanted or path.suffix.removeprefix(".")
    if name not in FORMATS:
        what = f"format={wanted!r} is unknown" if wanted else f"out={str(path)!r} has no ending that names a format"
        raise UsageError(f"{what}: use {', '.join(FORMATS)}.")
    needed = FORMATS[name]
    try:
        importlib.import_module(needed.module or "numpy")
    except ImportError:
        raise UsageError(
            f"format={name!r} needs a package that is not installed: {needed.install}, or use npz."
        ) from None
    return name
