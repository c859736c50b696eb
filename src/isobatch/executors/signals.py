"""Signals that ask a command to end, and all processes that it started."""

from __future__ import annotations

import signal

SIGHUP = getattr(signal, "SIGHUP", None)  # not every system has it
ENDING = tuple(number for number in (signal.SIGINT, signal.SIGTERM, SIGHUP) if number is not None)


def beside_ctrl_c() -> list[signal.Signals]:
    """SIGTERM, which `timeout`, batch systems and containers send, and SIGHUP, which comes when a terminal is closed,
    unless it is ignored, as by `nohup`."""
    closed = SIGHUP is not None and signal.getsignal(SIGHUP) != signal.SIG_IGN
    return [signal.SIGTERM, SIGHUP] if closed else [signal.SIGTERM]
