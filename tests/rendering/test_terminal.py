"""Pictures in a terminal."""

import io

import numpy as np
import pytest
from pictures import still
from rich.console import Console

import isobatch as ib
from isobatch.rendering.canvas import RED
from isobatch.rendering.scenes import Frame
from isobatch.rendering.terminal import Blocks, terminal, view


def test_blocks_are_two_pixels_a_character() -> None:
    image = np.zeros((3, 4, 3), np.uint8)
    image[0, :2], image[1, 2:], image[2] = (255, 0, 0), (0, 0, 255), (0, 255, 0)
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=20)
    console.print(Blocks(image))
    first, second = console.file.getvalue().splitlines()[:2]
    assert first == "\x1b[38;2;255;0;0;48;2;0;0;0m▀▀\x1b[0m\x1b[38;2;0;0;0;48;2;0;0;255m▀▀\x1b[0m"
    assert second == "\x1b[38;2;0;255;0;48;2;0;255;0m▀▀▀▀\x1b[0m"


def test_a_view_fits_the_screen() -> None:
    legend = tuple((f"thing number {i}", RED) for i in range(8))
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=40, height=20)
    scene = still(legend=legend)
    scene.draw = lambda size: np.zeros((size[1], size[0], 3), np.uint8)
    console.print(view(Frame(scene, 1, 0, 0.0, False), "Env", (40, 20)))
    lines = console.file.getvalue().splitlines()
    assert 17 <= len(lines) <= 20
    assert sum("▀" in line for line in lines) >= 12
    assert any("thing\u00a0number\u00a07" in line for line in lines)


def test_terminals_that_are_too_small_or_gray() -> None:
    for console, complaint in (
        (Console(file=io.StringIO(), force_terminal=True, width=10, height=5), "10 x 5 characters is too small"),
        (Console(file=io.StringIO(), force_terminal=True, no_color=True, color_system=None), "colors, and this"),
    ):
        with pytest.raises(ib.UsageError, match=complaint), terminal(console, "Env"):
            pass
