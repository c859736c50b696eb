"""Watch episodes as they are played, at their own speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from isobatch.rendering.scenes import Frame

END_SECONDS = 0.8  # seconds that the end of an episode stays


def watch(
    frames: Iterable[Frame],
    show: Callable[[Frame], None],
    speed: float = 1.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[float]:
    """Show each frame when its time has come, and leave out those that are late; the returns of whole episodes.

    Ctrl-C ends it, as does a window that is closed, which counts as that.
    """
    returns: list[float] = []
    try:
        due = clock()
        for frame in frames:
            frame_time = 1 / (frame.scene.fps * speed)
            late = clock() - due
            if late < frame_time or frame.over or frame.step == 0:
                show(frame)
            if late > 1:  # a compilation, or a stopped process: go on from here rather than hurry after it
                due = clock()
            if frame.over:
                returns.append(frame.episode_return)
                due += END_SECONDS
            due += frame_time
            sleep(max(0.0, due - clock()))
    except KeyboardInterrupt:
        pass
    return returns
