"""The progress of a run that was started from Python: one line on a terminal or in a notebook."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from isobatch.settings.config import Config
from isobatch.training.result import Progress

Watch = Callable[[Progress], None]
CLEAR_LINE = "\r\x1b[K"  # of a terminal


def is_notebook() -> bool:
    """Whether this runs in a kernel of Jupyter, which has loaded IPython."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config


def is_watched() -> bool:
    """Whether somebody sees what is written to standard error."""
    return is_notebook() or sys.stderr.isatty()


def print_remark(sentence: str) -> None:
    """A sentence for a person, in place of the line that is shown, which comes back below it."""
    print(f"{CLEAR_LINE if sys.stderr.isatty() else ''}{sentence}", file=sys.stderr)


@contextmanager
def shown_progress(config: Config) -> Iterator[Watch]:
    """A function for `train(watch=...)` that shows one line, again and again."""
    write = _notebook_line() if is_notebook() else _terminal_line
    newest = math.nan

    def watch(progress: Progress) -> None:
        nonlocal newest
        newest = newest if math.isnan(progress.episodic_return) else progress.episodic_return
        reached = "-" if math.isnan(newest) else f"{newest:,.1f}"
        write(
            f"{100 * progress.env_steps / progress.total_steps:3.0f} %  {progress.env_steps:,} steps  "
            f"{progress.steps_per_second:,.0f} steps/s  return {reached}  {progress.seconds_left:.0f} s left"
        )

    write(f"{config.algo} on {config.env}: compiling ...")
    try:
        yield watch
    finally:
        write("")


def _terminal_line(text: str) -> None:
    sys.stderr.write(f"{CLEAR_LINE}{text}")
    sys.stderr.flush()


def _notebook_line() -> Callable[[str], None]:
    from IPython.display import display

    def line(text: str) -> dict[str, str]:
        return {"text/plain": text}

    handle = display(line(""), raw=True, display_id=True)
    return lambda text: handle.update(line(text), raw=True)
