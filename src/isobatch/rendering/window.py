"""Frames in a window, through pygame."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

import numpy as np

from isobatch.errors import UsageError
from isobatch.rendering.canvas import Size, captioned
from isobatch.rendering.scenes import Frame

WINDOW_SIZE: Size = (900, 600)
INVISIBLE_DRIVERS = ("dummy", "offscreen", "evdev", "")  # what SDL falls back to where there is no display


def import_pygame() -> ModuleType:
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        import pygame
    except ImportError:
        raise UsageError(
            "--window needs a package that is not installed: pip install 'isobatch[window]', or leave it out to watch "
            "in the terminal."
        ) from None
    return pygame


@contextmanager
def window(title: str) -> Iterator[Callable[[Frame], None]]:
    """A function that shows a frame. Closing the window, or escape, counts as Ctrl-C."""
    pygame = import_pygame()
    try:
        pygame.display.init()
        visible = pygame.display.get_driver() not in INVISIBLE_DRIVERS
    except pygame.error:
        visible = False
    if not visible:
        raise UsageError("--window needs a display, and there is none: leave it out to watch in the terminal.")
    pygame.display.set_caption(f"isobatch: {title}")

    def show(frame: Frame) -> None:
        for event in pygame.event.get():
            if event.type == pygame.QUIT or (event.type == pygame.KEYDOWN and event.key == pygame.K_ESCAPE):
                raise KeyboardInterrupt
        picture = captioned(frame.scene.draw(WINDOW_SIZE), title, frame.facts, frame.scene.legend)
        height, width = picture.shape[:2]
        screen = pygame.display.get_surface()
        if screen is None or screen.get_size() != (width, height):
            screen = pygame.display.set_mode((width, height))
        pygame.surfarray.blit_array(screen, np.swapaxes(picture, 0, 1))
        pygame.display.flip()

    try:
        yield show
    finally:
        pygame.display.quit()
