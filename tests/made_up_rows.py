"""Rows of studies that nobody trained."""

from typing import Any

import numpy as np

from isobatch.studies.claims import STUDIES
from isobatch.studies.grid import Row


def made_up(name: str, good: dict[str, Any] | None = None) -> list[Row]:
    """Rows of a quick grid: 0.5 with some noise, 0.9 for cells with the factors `good`."""
    rng = np.random.default_rng(0)
    rows = []
    for cell in STUDIES[name].grid("laptop").cells:
        better = good is not None and all(cell.factors.get(k) == v for k, v in good.items())
        for seed in range(4):
            value = (0.9 if better else 0.5) + 0.01 * rng.normal()
            row = {"cell": cell.name, "seed": seed, "env": cell.config.env, **cell.factors}
            row |= {"normalized_final": value, "normalized_mean": value, "final_return": 1.0, "diverged": False}
            rows.append(row | {"approx_kl": 0.01})
    return rows


def at_shapes() -> list[Row]:
    """As the laboratory leaves them: the variance doubles from 128 x 8 to 32 x 32."""
    shapes = {(128, 8): 3.0, (32, 32): 6.0}
    return [
        {"env": "CartPole-v1", "env_steps": 100, "num_envs": n, "num_steps": t}
        | {"variance": v, "variance_low": v / 2, "variance_high": 2 * v}
        | {"signal": n * t * v / 1000, "signal_low": n * t * v / 1200, "signal_high": n * t * v / 900}
        | {"critical_batch": 1000.0, "critical_batch_low": 900.0, "critical_batch_high": 1200.0}
        for (n, t), v in shapes.items()
    ]
