"""isobatch: policy optimisation that behaves the same at any batch size, and the instruments to see why."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isobatch.advice import advise as advise
    from isobatch.agent import Agent as Agent
    from isobatch.agent import load_agent as load_agent
    from isobatch.config import Config as Config
    from isobatch.config import Hypers as Hypers
    from isobatch.errors import RunError as RunError
    from isobatch.errors import UsageError as UsageError
    from isobatch.geometry import Geometry as Geometry
    from isobatch.presets import preset as preset
    from isobatch.rescaling import Rescaled as Rescaled
    from isobatch.rescaling import rescale as rescale
    from isobatch.trainer import Result as Result
    from isobatch.trainer import train as train

# Loaded on first use: what only computes numbers should not wait for JAX.
_HOMES = {
    "Config": "config",
    "Hypers": "config",
    "Geometry": "geometry",
    "RunError": "errors",
    "UsageError": "errors",
    "preset": "presets",
    "rescale": "rescaling",
    "Rescaled": "rescaling",
    "advise": "advice",
    "Agent": "agent",
    "load_agent": "agent",
    "Result": "trainer",
    "train": "trainer",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'isobatch' has no attribute {name!r}")
    return getattr(importlib.import_module(f"isobatch.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
