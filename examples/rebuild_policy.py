"""A policy rebuilt from an exported file alone: without isobatch, in NumPy, and in PyTorch if that is installed.

The file holds tensors and a JSON description of the layers that use them; this is all it takes to read it.

Make the file  isobatch export RUN --out policy.npz   (or policy.safetensors, policy.pt)
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
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
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
    if path.endswith(".pt"):
        import torch

        content = torch.load(path, weights_only=True)
        tensors = {name: tensor.numpy() for name, tensor in content["state_dict"].items()}
        for name, x in tensors.items():
            if name.endswith(".weight"):  # from PyTorch's layout to the one that the description is about
                tensors[name] = x.transpose(2, 3, 1, 0) if x.ndim == 4 else x.T
        return tensors, json.loads(content["description"])
    with np.load(path, allow_pickle=False) as file:
        tensors = {name: file[name] for name in file.files}
    return tensors, json.loads(str(tensors.pop("description")))


def windows(x: np.ndarray, size: int, stride: int, padding: int, filling: float) -> np.ndarray:
    """What a kernel sees at each place of images [B, H, W, C]: [B, H', W', C, size, size]."""
    sides = [(0, 0), (padding, padding), (padding, padding), (0, 0)]
    x = np.pad(x, sides, constant_values=filling)
    return np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(1, 2))[:, ::stride, ::stride]


def forward(layers: list[dict], tensors: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """A batch of observations through the layers."""
    for layer in layers:
        match layer["kind"]:
            case "normalize":
                x = (x - tensors[layer["mean"]]) / (tensors[layer["std"]] + layer["eps"])
                x = x if layer["clip"] is None else np.clip(x, -layer["clip"], layer["clip"])
            case "divide":
                x = x / layer["by"]
            case "channels_last":
                x = np.moveaxis(x, 1, -1)
            case "conv":
                weight = tensors[layer["weight"]]
                seen = windows(x, weight.shape[0], layer["stride"], layer["padding"], 0)
                x = np.einsum("bhwcij,ijco->bhwo", seen, weight) + tensors[layer["bias"]]
            case "max_pool":
                x = windows(x, layer["size"], layer["stride"], layer["padding"], -np.inf).max(axis=(-2, -1))
            case "residual":
                x = x + forward(layer["layers"], tensors, x)
            case "activation":
                pass
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
    space = description["action"]
    match description["policy"]["distribution"]["kind"]:
        case "categorical":
            return output.argmax(axis=1) + space["start"]
        case "multi_categorical":
            parts = np.split(output, np.cumsum(space["sizes"])[:-1], axis=1)
            return np.stack([part.argmax(axis=1) for part in parts], axis=1) + space["start"]
        case "bernoulli":
            return (output > 0).astype(int)
    low, high = (np.array(space[name], np.float32) for name in ("low", "high"))
    if space["rescaled"]:
        output = low + (output + 1) / 2 * (high - low)
    return np.clip(output, low, high).reshape(len(obs), *space["shape"])


def torch_module(layers: list[dict], tensors: dict[str, np.ndarray]):
    """The same layers as a PyTorch module that takes a batch of observations as they come."""
    import torch
    from torch import nn

    activations = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU, "silu": nn.SiLU}
    activations["gelu"] = lambda: nn.GELU(approximate="tanh")

    class Apply(nn.Module):
        def __init__(self, function, inner=None):
            super().__init__()
            self.function, self.inner = function, inner

        def forward(self, x):
            return self.function(x) if self.inner is None else self.function(x, self.inner(x))

    def images(module: nn.Module) -> list[nn.Module]:
        """PyTorch has channels first, the file has them last."""
        return [Apply(lambda x: x.movedim(-1, 1)), module, Apply(lambda x: x.movedim(1, -1))]

    def made(layer: dict) -> list[nn.Module]:
        match layer["kind"]:
            case "normalize":
                mean, std = (torch.tensor(tensors[layer[name]]) for name in ("mean", "std"))
                clip = float("inf") if layer["clip"] is None else layer["clip"]
                return [Apply(lambda x: ((x - mean) / (std + layer["eps"])).clamp(-clip, clip))]
            case "divide":
                return [Apply(lambda x: x / layer["by"])]
            case "channels_last":
                return [Apply(lambda x: x.movedim(1, -1))]
            case "conv":
                weight = torch.tensor(tensors[layer["weight"]])
                conv = nn.Conv2d(*weight.shape[2:], weight.shape[0], layer["stride"], layer["padding"])
                conv.weight.data, conv.bias.data = weight.permute(3, 2, 0, 1), torch.tensor(tensors[layer["bias"]])
                return images(conv)
            case "max_pool":
                return images(nn.MaxPool2d(layer["size"], layer["stride"], layer["padding"]))
            case "residual":
                return [Apply(lambda x, change: x + change, torch_module(layer["layers"], tensors))]
            case "activation":
                return []
            case "flatten":
                return [nn.Flatten()]
            case "dense":
                weight = torch.tensor(tensors[layer["weight"]])
                dense = nn.Linear(*weight.shape)
                dense.weight.data, dense.bias.data = weight.T, torch.tensor(tensors[layer["bias"]])
                return [dense]
        raise ValueError(f"unknown layer {layer['kind']!r}")

    modules: list[nn.Module] = []
    for layer in layers:
        modules += made(layer)
        if layer.get("activation"):
            modules.append(activations[layer["activation"]]())
    return nn.Sequential(*modules)


def main(path: str) -> None:
    tensors, description = read(path)
    obs = np.random.default_rng(0).random((5, *description["observation"]["shape"]), np.float32)
    output = forward(description["policy"]["layers"], tensors, obs)
    value = forward(description["value"]["layers"], tensors, obs)[:, 0]
    print(f"{description['algo']} on {description['env']}, {sum(t.size for t in tensors.values()):,} numbers")
    print(f"NumPy    actions {act(description, tensors, obs).tolist()}  values {[round(float(v), 2) for v in value]}")
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
