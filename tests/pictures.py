"""Where a color is in a picture, and a scene that stands still."""

from types import SimpleNamespace
from typing import Any

import numpy as np


def where(image: np.ndarray, color: tuple[int, int, int], off: int = 0) -> np.ndarray:
    """Rows and columns of the pixels of a color, or of one not further `off`: thin lines are only nearly so."""
    return np.argwhere(np.abs(image.astype(int) - color).max(axis=2) <= off)


def still(fps: float = 10.0, legend: Any = ()) -> Any:
    """A scene in which nothing happens."""
    return SimpleNamespace(fps=fps, legend=legend, draw=lambda size: np.zeros((4, 6, 3), np.uint8))
