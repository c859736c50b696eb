"""Episodes are watched at their own speed."""

from typing import Any

import numpy as np
import pytest
from pictures import still

from isobatch.rendering.scenes import END_SECONDS, Frame, watch


def test_watching_keeps_the_pace() -> None:
    """On time, frames are a tenth of a second apart; a slow display leaves some out, but never the last one."""
    now, times = [0.0], []

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def show(cost: float) -> Any:
        def shown(frame: Frame) -> None:
            times.append((frame.step, now[0]))
            now[0] += cost

        return shown

    episode = [Frame(still(), 1, step, float(step), step == 9) for step in range(10)]
    assert watch(episode, show(0.02), 1.0, lambda: now[0], sleep) == [9.0]
    assert [t for _, t in times] == pytest.approx(np.arange(10) / 10)
    assert now[0] == pytest.approx(1.0 + END_SECONDS)
    now[0], times[:] = 0.0, []
    assert watch(episode, show(0.24), 1.0, lambda: now[0], sleep) == [9.0]
    assert 4 <= len(times) <= 6
    assert times[-1][0] == 9
    assert now[0] == pytest.approx(1.0 + END_SECONDS, abs=0.25)
    now[0], times[:] = 0.0, []
    watch(episode, show(0.0), 4.0, lambda: now[0], sleep)
    assert now[0] == pytest.approx(0.25 + END_SECONDS)


def test_an_interrupt_ends_watching() -> None:
    def show(frame: Frame) -> None:
        if frame.episode == 2:
            raise KeyboardInterrupt

    episodes = [Frame(still(), episode, 0, 5.0, True) for episode in (1, 2, 3)]
    assert watch(episodes, show, 1.0, lambda: 0.0, lambda seconds: None) == [5.0]
