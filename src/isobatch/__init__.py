"""isobatch: policy optimization that behaves the same at any batch size, and the instruments to see why."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isobatch.advice import advise as advise
    from isobatch.errors import RunError as RunError
    from isobatch.errors import UsageError as UsageError
    from isobatch.policies.agent import Agent as Agent
    from isobatch.policies.agent import load_agent as load_agent
    from isobatch.rescaling import Rescaled as Rescaled
    from isobatch.rescaling import rescale as rescale
    from isobatch.settings.config import Config as Config
    from isobatch.settings.config import Hypers as Hypers
    from isobatch.settings.geometry import Geometry as Geometry
    from isobatch.settings.presets import preset as preset
    from isobatch.training.result import Result as Result
    from isobatch.training.trainer import train as train

# Loaded on first use: what only computes numbers should not wait for JAX.
_HOMES = {
    "Config": "settings.config",
    "Hypers": "settings.config",
    "Geometry": "settings.geometry",
    "RunError": "errors",
    "UsageError": "errors",
    "preset": "settings.presets",
    "rescale": "rescaling",
    "Rescaled": "rescaling",
    "advise": "advice",
    "Agent": "policies.agent",
    "load_agent": "policies.agent",
    "Result": "training.trainer",
    "train": "training.trainer",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'isobatch' has no attribute {name!r}")
    return getattr(importlib.import_module(f"isobatch.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
