"""Work in a thread: what it gives, what it raises, when it hangs, and when the whole process was stopped meanwhile."""

from __future__ import annotations

import threading
import time

import pytest

from isobatch.envs import watchdog
from isobatch.envs.watchdog import HangError, Watched


def test_the_result_and_what_was_raised_are_handed_on():
    assert Watched(lambda beat: 7, 5.0).wait() == 7
    with pytest.raises(ZeroDivisionError):
        Watched(lambda beat: 1 // 0, 5.0).wait()


def test_work_without_a_sign_of_life_hangs_and_work_with_signs_does_not():
    release = threading.Event()
    with pytest.raises(HangError):
        Watched(lambda beat: release.wait(30), 0.1).wait()
    release.set()

    def slow(beat):
        for _ in range(8):
            time.sleep(0.05)
            beat()
        return "done"

    assert Watched(slow, 0.2).wait() == "done"


def test_time_in_which_the_process_itself_was_stopped_does_not_count(monkeypatch: pytest.MonkeyPatch):
    """Ctrl-Z and `fg` an hour later: one look takes an hour, and the work, stopped too, did not hang."""
    jumps = iter([3600.0])
    passed = 0.0
    join = threading.Thread.join

    def stopped(self: threading.Thread, timeout: float | None = None) -> None:
        nonlocal passed
        join(self, timeout)
        passed += next(jumps, 0.0)

    clock = time.monotonic
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: clock() + passed)
    monkeypatch.setattr(threading.Thread, "join", stopped)
    release = threading.Event()
    threading.Timer(1.2, release.set).start()
    assert Watched(lambda beat: release.wait(30), 60.0).wait()  # after two looks more
