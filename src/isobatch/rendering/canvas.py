"""Shapes in the coordinates of a world, drawn large and shrunk so that edges are smooth; and text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

Color = tuple[int, int, int]
Size = tuple[int, int]  # width and height, in pixels
Point = tuple[float, float]
Font = ImageFont.ImageFont | ImageFont.FreeTypeFont

PAPER: Color = (247, 246, 242)
INK: Color = (43, 45, 66)
FAINT: Color = (200, 200, 198)
WOOD: Color = (202, 151, 99)
RED: Color = (217, 83, 79)
BLUE: Color = (52, 101, 164)
GREEN: Color = (96, 153, 102)
MEADOW: Color = (214, 222, 208)
NIGHT: Color = (22, 24, 34)
CHALK: Color = (224, 225, 230)

OVERSAMPLING = 3
CAPTION_COLUMNS = (0.42, 0.6, 0.77)  # where episode, step and return stand in a caption, as parts of its width


def fit(size: Size, width: float, height: float) -> Size:
    """The largest picture of this shape within `size`."""
    scale = min(size[0] / width, size[1] / height)
    return max(1, int(width * scale)), max(1, int(height * scale))


class Canvas:
    """A picture of the rectangle left .. right x bottom .. top of a world, as large as fits into `size`."""

    def __init__(self, size: Size, left: float, bottom: float, right: float, top: float) -> None:
        self._size = fit(size, right - left, top - bottom)
        self._left, self._top = left, top
        self._scale = self._size[0] * OVERSAMPLING / (right - left)
        self._image = Image.new("RGB", (self._size[0] * OVERSAMPLING, self._size[1] * OVERSAMPLING), PAPER)
        self._draw = ImageDraw.Draw(self._image)

    def _pixels(self, points: Sequence[Point]) -> list[Point]:
        return [((x - self._left) * self._scale, (self._top - y) * self._scale) for x, y in points]

    def line(self, points: Sequence[Point], color: Color, width: float) -> None:
        """With round ends and joints; `width` is in the world's units, and at least a pixel."""
        pixels = self._pixels(points)
        wide = max(OVERSAMPLING, round(width * self._scale))
        self._draw.line(pixels, color, wide, joint="curve")
        for x, y in (pixels[0], pixels[-1]):
            self._draw.ellipse((x - wide / 2, y - wide / 2, x + wide / 2, y + wide / 2), color)

    def polygon(self, points: Sequence[Point], color: Color) -> None:
        self._draw.polygon(self._pixels(points), color)

    def circle(self, center: Point, radius: float, color: Color) -> None:
        ((x, y),), r = self._pixels([center]), radius * self._scale
        self._draw.ellipse((x - r, y - r, x + r, y + r), color)

    def image(self) -> np.ndarray:
        """[height, width, 3]."""
        return np.asarray(self._image.resize(self._size, Image.Resampling.BOX))


def resized(image: np.ndarray, size: Size) -> np.ndarray:
    """A picture as large as fits; small pixels stay sharp when it grows."""
    height, width = image.shape[:2]
    fitting = fit(size, width, height)
    sampling = Image.Resampling.NEAREST if fitting[0] >= width else Image.Resampling.BOX
    return np.asarray(Image.fromarray(image).resize(fitting, sampling))


def captioned(
    image: np.ndarray, title: str, facts: Sequence[str], legend: Sequence[tuple[str, Color]] = ()
) -> np.ndarray:
    """The picture with a strip under it: what it is, how far it is, and what its colors mean."""
    height, width = image.shape[:2]
    text, row = round(max(12, width / 40)), round(max(22, width / 22))
    font = ImageFont.load_default(text)
    entries = _rows(legend, font, width - row, text)
    whole = Image.new("RGB", (width, (height + row * (1 + len(entries)) + 1) // 2 * 2), NIGHT)
    whole.paste(Image.fromarray(image), (0, 0))
    draw = ImageDraw.Draw(whole)
    middle = height + row / 2
    draw.text((row / 2, middle), _cut(title, font, CAPTION_COLUMNS[0] * width - row), CHALK, font, anchor="lm")
    for x, fact in zip(CAPTION_COLUMNS, facts, strict=True):  # fixed places: text that jumps about cannot be read
        draw.text((width * x, middle), fact, CHALK, font, anchor="lm")
    for i, entry in enumerate(entries):
        x, middle = row / 2, height + row * (i + 1.45)
        for name, color in entry:
            draw.rectangle((x, middle - text / 3, x + text * 2 / 3, middle + text / 3), color)
            draw.text((x + text, middle), name, CHALK, font, anchor="lm")
            x += 2 * text + font.getlength(name)
    return np.asarray(whole)


def _cut(text: str, font: Font, width: float) -> str:
    """As much of a text as fits."""
    while font.getlength(text) > width and len(text) > 2:
        text = text[:-2] + "…"
    return text


def _rows(legend: Sequence[tuple[str, Color]], font: Font, width: float, text: int) -> list[list[tuple[str, Color]]]:
    """The entries of a legend, as many on a line as fit."""
    rows: list[list[tuple[str, Color]]] = []
    used = width
    for name, color in legend:
        needed = 2 * text + font.getlength(name)
        if used + needed - text > width:
            rows.append([])
            used = 0
        rows[-1].append((name, color))
        used += needed
    return rows
