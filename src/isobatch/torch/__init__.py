"""What isobatch adds to PyTorch programs: PPO-EWMA for Stable-Baselines3, and its formulas for scripts of one's own.

`pip install 'isobatch[sb3]'`; JAX is not imported. The formulas need PyTorch alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isobatch.torch.batch_size_monitor import BatchSizeMonitor as BatchSizeMonitor
    from isobatch.torch.formulas import AdvantageMoments as AdvantageMoments
    from isobatch.torch.formulas import Ewma as Ewma
    from isobatch.torch.formulas import LossWithProximal as LossWithProximal
    from isobatch.torch.noise_scale import NoiseScale as NoiseScale
    from isobatch.torch.ppo_ewma import PPOEWMA as PPOEWMA
    from isobatch.torch.sb3_settings import rescaled as rescaled
    from isobatch.torch.zoo import register_zoo as register_zoo

_HOME_OF = {
    "AdvantageMoments": "formulas",
    "BatchSizeMonitor": "batch_size_monitor",
    "Ewma": "formulas",
    "LossWithProximal": "formulas",
    "NoiseScale": "noise_scale",
    "PPOEWMA": "ppo_ewma",
    "register_zoo": "zoo",
    "rescaled": "sb3_settings",
}
__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'isobatch.torch' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"isobatch.torch.{_HOME_OF[name]}"), name)
    except ModuleNotFoundError as missing:
        if missing.name not in ("torch", "stable_baselines3"):
            raise
        raise ImportError(f"isobatch.torch.{name} needs {missing.name}: pip install 'isobatch[sb3]'") from missing


def __dir__() -> list[str]:
    return __all__
