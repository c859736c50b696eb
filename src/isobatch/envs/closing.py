"""The end of environments that may not want to end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

CLOSE_SECONDS = 5.0  # that closing may take


def closed_in_time(close: Callable[[], object]) -> bool:
    """Close, whatever that raises; False if it hangs, and then it goes on hanging in a thread that holds up nobody."""

    def quietly() -> None:
        with suppress(Exception):
            close()

    thread = threading.Thread(target=quietly, daemon=True)
    thread.start()
    thread.join(CLOSE_SECONDS)
    return not thread.is_alive()
