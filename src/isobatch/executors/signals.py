"""Signals that ask a command to end, and all processes that it started."""

from __future__ import annotations

import signal

SIGHUP: list[signal.Signals] = [signal.SIGHUP] if hasattr(signal, "SIGHUP") else []  # not every system has it
ENDING = (signal.SIGINT, signal.SIGTERM, *SIGHUP)


def beside_ctrl_c() -> list[signal.Signals]:
    """SIGTERM, which `timeout`, batch systems and containers send, and SIGHUP, which comes when a terminal is closed,
    unless it is ignored, as by `nohup`."""
    return [signal.SIGTERM, *(number for number in SIGHUP if signal.getsignal(number) != signal.SIG_IGN)]
