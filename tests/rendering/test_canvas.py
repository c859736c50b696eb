"""Shapes, sizes and captions of pictures."""

import numpy as np
from pictures import where

from isobatch.rendering.canvas import CHALK, INK, PAPER, RED, Canvas, captioned, fit, resized


def test_a_canvas_is_as_large_as_fits() -> None:
    assert fit((100, 100), 2, 1) == (100, 50)
    assert fit((100, 20), 2, 1) == (40, 20)
    canvas = Canvas((100, 100), 0, 0, 10, 5)
    canvas.polygon([(0, 0), (5, 0), (5, 5), (0, 5)], INK)
    image = canvas.image()
    assert image.shape == (50, 100, 3)
    assert (image[:, :49] == INK).all()
    assert (image[:, 51:] == PAPER).all()
    assert resized(image, (20, 20)).shape == (10, 20, 3)
    assert (resized(image, (400, 400))[:, :196] == INK).all()


def test_captions_stand_under_the_picture() -> None:
    image = np.full((60, 240, 3), 7, np.uint8)
    plain = captioned(image, "Env", ("episode 1", "step 2", "return 3.0"))
    longer = captioned(image, "Env", ("episode 1", "step 2", "return 3.0"), [(f"thing {i}", RED) for i in range(9)])
    assert np.array_equal(plain[:60], image)
    assert len(where(plain, CHALK, 40)) > 20
    assert where(plain, CHALK, 40)[:, 0].min() > 60
    assert longer.shape[0] > plain.shape[0] + 30  # several lines
    assert plain.shape[0] % 2 == longer.shape[0] % 2 == 0
    assert len(where(longer, RED)) > 9 * 20
    cut = captioned(image, "gymnasium/MountainCarContinuous-v0", ("", "", ""))
    assert where(cut, CHALK, 40)[:, 1].max() < 0.42 * 240  # where the facts begin
