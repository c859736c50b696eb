"""`ppo_ewma` for the training scripts of rl-zoo3."""

from __future__ import annotations

import importlib

from isobatch.errors import UsageError
from isobatch.torch.ppo_ewma import PPOEWMA


def register_zoo(name: str = "ppo_ewma") -> None:
    """Let rl_zoo3's `train`, `enjoy` and the others know PPOEWMA: to be called before them.

    `python -c "import isobatch.torch as it; it.register_zoo(); from rl_zoo3.train import train; train()" --algo
    ppo_ewma --env CartPole-v1 -conf examples/ppo_ewma.yml`
    """
    try:
        zoo = importlib.import_module("rl_zoo3.utils")
    except ImportError as missing:
        raise UsageError(f"register_zoo needs rl_zoo3 ({missing}): pip install rl_zoo3.") from None
    zoo.ALGOS[name] = PPOEWMA
