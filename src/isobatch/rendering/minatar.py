"""Pictures of MinAtar games: their observations, a color for each channel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isobatch.envs.interface import State
from isobatch.rendering.canvas import NIGHT, Color, Size

SKY: Color = (86, 180, 233)
SUN: Color = (240, 200, 66)
ROSE: Color = (224, 92, 84)
LEAF: Color = (94, 186, 125)
SAND: Color = (222, 165, 110)
LILAC: Color = (176, 132, 214)
SNOW: Color = (238, 238, 242)
SMOKE: Color = (88, 92, 112)
FOG: Color = (128, 133, 155)
GRID: Color = (32, 35, 48)


@dataclass(frozen=True)
class GameChannel:
    name: str
    color: Color
    index: int


def channels(*named: tuple[str, Color, int]) -> tuple[GameChannel, ...]:
    return tuple(GameChannel(*entry) for entry in named)


# Painted in this order, so what matters most comes last. Channels that repeat where another one is, or that no game
# uses, are left out: the aliens' direction, and Asterix' fifth.
GAMES: dict[str, tuple[GameChannel, ...]] = {
    "Asterix-MinAtar": channels(
        ("trail", SMOKE, 2), ("gold", SUN, 3), ("enemy", ROSE, 1), ("player", SKY, 0),
    ),
    "Breakout-MinAtar": channels(
        ("brick", SAND, 3), ("trail", SMOKE, 2), ("ball", SNOW, 1), ("paddle", SKY, 0),
    ),
    "Freeway-MinAtar": channels(
        ("slow", (64, 68, 84), 2), ("speed 2", (84, 84, 92), 3), ("speed 3", (108, 98, 92), 4),
        ("speed 4", (140, 110, 86), 5), ("fast", (176, 124, 78), 6), ("car", ROSE, 1), ("chicken", SUN, 0),
    ),
    "Seaquest-MinAtar": channels(
        ("trail", SMOKE, 3), ("oxygen", SNOW, 7), ("divers aboard", LILAC, 8), ("diver", LILAC, 9), ("fish", LEAF, 5),
        ("enemy submarine", ROSE, 6), ("enemy bullet", SAND, 4), ("bullet", SUN, 2), ("stern", FOG, 1), ("bow", SKY, 0),
    ),
    "SpaceInvaders-MinAtar": channels(
        ("alien", LEAF, 1), ("enemy bullet", ROSE, 5), ("bullet", SUN, 4), ("cannon", SKY, 0),
    ),
}  # fmt: skip


def board(state: State, obs: np.ndarray, size: Size, game: str) -> np.ndarray:
    """Whole pixels a cell, so that cells are equally large; with lines between large ones."""
    cells = np.empty((*obs.shape[:2], 3), np.uint8)
    cells[:] = GRID
    for channel in GAMES[game]:
        cells[obs[..., channel.index].astype(bool)] = channel.color
    side = max(1, min(size[0] // cells.shape[1], size[1] // cells.shape[0]))
    image = cells.repeat(side, axis=0).repeat(side, axis=1)
    if side >= 8:
        gap = max(1, side // 20)
        for i in range(gap):
            image[i::side], image[:, i::side] = NIGHT, NIGHT
    return image
