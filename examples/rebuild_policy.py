"""A policy rebuilt from an exported file alone: without isobatch, in NumPy, and in PyTorch if that is installed.

The file holds tensors and a JSON description of the layers that use them; this is all it takes to read it.

Make the file  isobatch export RUN --out policy.npz          (or policy.safetensors)
Run            python examples/rebuild_policy.py policy.npz
"""

from __future__ import annotations

import json
import sys

import numpy as np

ACTIVATIONS = {
    None: lambda x: x,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x * (1 + np.tanh(x / 2)) / 2,  # = x / (1 + exp(-x)), which can overflow
    "gelu": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


def read(path: str) -> tuple[dict[str, np.ndarray], dict]:
    """Tensors by name, and the description."""
    if path.endswith(".safetensors"):
        from safetensors import safe_open

        with safe_open(path, framework="numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, json.loads(file.metadata()["description"])
    with np.load(path, allow_pickle=False) as file:
        tensors = {name: file[name] for name in file.files}
    return tensors, json.loads(str(tensors.pop("description")))


def forward(layers: list[dict], tensors: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """A batch of observations through the layers."""
    for layer in layers:
        match layer["kind"]:
            case "normalize":
                x = (x - tensors[layer["mean"]]) / (tensors[layer["std"]] + layer["eps"])
                x = x if layer["clip"] is None else np.clip(x, -layer["clip"], layer["clip"])
            case "divide":
                x = x / layer["by"]
            case "conv":
                weight = tensors[layer["weight"]]
                windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[:2], axis=(1, 2))
                x = np.einsum("bhwcij,ijco->bhwo", windows, weight) + tensors[layer["bias"]]
            case "flatten":
                x = x.reshape(len(x), -1)
            case "dense":
                x = x @ tensors[layer["weight"]] + tensors[layer["bias"]]
            case kind:
                raise ValueError(f"unknown layer {kind!r}")
        x = ACTIVATIONS[layer.get("activation")](x)
    return x


def act(description: dict, tensors: dict[str, np.ndarray], obs: np.ndarray) -> np.ndarray:
    """The most likely actions."""
    output = forward(description["policy"]["layers"], tensors, obs.astype(np.float32))
    if description["policy"]["distribution"]["kind"] == "categorical":
        return output.argmax(axis=1)
    space = description["action"]
    low, high = (np.array(space[name], np.float32) for name in ("low", "high"))
    return np.clip(output, low, high).reshape(len(obs), *space["shape"])


def torch_module(layers: list[dict], tensors: dict[str, np.ndarray]):
    """The same layers as a PyTorch module that takes a batch of observations, images with their channels last."""
    import torch
    from torch import nn

    activations = {"tanh": nn.Tanh, "relu": nn.ReLU, "silu": nn.SiLU, "gelu": lambda: nn.GELU(approximate="tanh")}

    class Apply(nn.Module):
        def __init__(self, function):
            super().__init__()
            self.function = function

        def forward(self, x):
            return self.function(x)

    def linear(layer: dict) -> nn.Module:
        weight, bias = (torch.tensor(tensors[layer[name]]) for name in ("weight", "bias"))
        made = (
            nn.Linear(*weight.shape)
            if weight.ndim == 2
            else nn.Conv2d(weight.shape[2], weight.shape[3], weight.shape[0])
        )
        made.weight.data = weight.T if weight.ndim == 2 else weight.permute(3, 2, 0, 1)
        made.bias.data = bias
        return made

    def normalize(layer: dict):
        mean, std = (torch.tensor(tensors[layer[name]]) for name in ("mean", "std"))
        clip = float("inf") if layer["clip"] is None else layer["clip"]
        return Apply(lambda x: ((x - mean) / (std + layer["eps"])).clamp(-clip, clip))

    modules: list[nn.Module] = []
    for layer in layers:
        match layer["kind"]:
            case "normalize":
                modules.append(normalize(layer))
            case "divide":
                modules.append(Apply(lambda x, by=layer["by"]: x / by))
            case "conv":
                modules += [Apply(lambda x: x.movedim(-1, 1)), linear(layer), Apply(lambda x: x.movedim(1, -1))]
            case "flatten":
                modules.append(nn.Flatten())
            case "dense":
                modules.append(linear(layer))
            case kind:
                raise ValueError(f"unknown layer {kind!r}")
        if layer.get("activation"):
            modules.append(activations[layer["activation"]]())
    return nn.Sequential(*modules)


def main(path: str) -> None:
    tensors, description = read(path)
    obs = np.random.default_rng(0).random((5, *description["observation"]["shape"]), np.float32)
    output = forward(description["policy"]["layers"], tensors, obs)
    value = forward(description["value"]["layers"], tensors, obs)[:, 0]
    print(f"{description['algo']} on {description['env']}, {sum(t.size for t in tensors.values()):,} numbers")
    print(f"NumPy    actions {act(description, tensors, obs).tolist()}  values {np.round(value, 3).tolist()}")
    try:
        import torch
    except ImportError:
        print("PyTorch  is not installed: pip install torch")
        return
    with torch.no_grad():
        theirs = torch_module(description["policy"]["layers"], tensors)(torch.tensor(obs)).numpy()
    print(f"PyTorch  largest difference from NumPy {np.abs(theirs - output).max():.1e}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/rebuild_policy.py FILE")
    main(sys.argv[1])
