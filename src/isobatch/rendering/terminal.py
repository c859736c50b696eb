"""Frames in a terminal: each character is the upper half of a block, in two colors, and so two pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
from rich.color import Color
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from isobatch.errors import UsageError
from isobatch.rendering.canvas import Size
from isobatch.rendering.scenes import Frame

SMALLEST_TERMINAL = (20, 10)  # columns and lines
UPPER_HALF = "▀"
NO_BREAK_SPACE = "\u00a0"


class Blocks:
    """A picture [height, width, 3] as colored characters, one column and half a line a pixel."""

    def __init__(self, image: np.ndarray) -> None:
        even = image if len(image) % 2 == 0 else np.concatenate([image, image[-1:]])
        self.pairs = np.concatenate([even[::2], even[1::2]], axis=2)  # [lines, columns, upper and lower color]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.pairs:
            changes = np.flatnonzero((line[1:] != line[:-1]).any(axis=1)) + 1
            for begin, end in zip([0, *changes], [*changes, len(line)], strict=True):
                yield Segment(UPPER_HALF * int(end - begin), style_of(*map(int, line[begin])))
            yield Segment.line()


@lru_cache(maxsize=4096)
def style_of(red: int, green: int, blue: int, red_below: int, green_below: int, blue_below: int) -> Style:
    return Style(color=Color.from_rgb(red, green, blue), bgcolor=Color.from_rgb(red_below, green_below, blue_below))


@contextmanager
def terminal(console: Console, title: str) -> Iterator[Callable[[Frame], None]]:
    """A function that shows a frame on the whole screen, which is as it was before when this ends."""
    if not console.is_terminal or console.color_system is None:
        needed = (
            "colors, and this terminal shows none" if console.is_terminal else "a terminal, and standard output is none"
        )
        raise UsageError(f"play needs {needed}: use --window, or isobatch eval RUN --video FILE.gif.")
    if console.width < SMALLEST_TERMINAL[0] or console.height < SMALLEST_TERMINAL[1]:
        raise UsageError(
            f"a terminal of {console.width} x {console.height} characters is too small to play in: use at least "
            f"{SMALLEST_TERMINAL[0]} x {SMALLEST_TERMINAL[1]}."
        )
    with Live(console=console, screen=True, auto_refresh=False) as live:
        yield lambda frame: live.update(view(frame, title, (console.width, console.height)), refresh=True)


def view(frame: Frame, title: str, size: Size) -> Group:
    """A frame with its caption, for a screen of so many columns and lines."""
    facts = Text("   ".join((title, *frame.facts, "Ctrl-C ends")), no_wrap=True, overflow="ellipsis")
    legend = Text("  ").join(
        Text.assemble((f"■{NO_BREAK_SPACE}", Style(color=Color.from_rgb(*color))), name.replace(" ", NO_BREAK_SPACE))
        for name, color in frame.scene.legend
    )
    lines = len(legend.wrap(Console(width=size[0]), size[0])) if legend else 0
    image = frame.scene.draw((size[0], 2 * (size[1] - 2 - lines)))
    return Group(Blocks(image), facts, *([legend] if legend else []))
