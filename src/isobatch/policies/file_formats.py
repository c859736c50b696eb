"""Formats of exported files: each turns tensors and their description into bytes, with the package that it needs."""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isobatch.errors import UsageError

Tensors = Mapping[str, np.ndarray]
Layer = dict[str, Any]  # of a network, as `exports.KINDS` explains them
Description = dict[str, Any]
TORCH_LAYOUT = "weights as PyTorch has them: out x in, kernels out x in x height x width"


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
