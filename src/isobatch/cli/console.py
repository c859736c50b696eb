"""What people see: results on standard output, progress and remarks on standard error."""

from __future__ import annotations

import json
import math
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from isobatch.cli.streams import Remarks, Results, Stream
from isobatch.formatting import by_magnitude
from isobatch.formatting import number as fixed
from isobatch.settings.parsing import plain_json

if TYPE_CHECKING:
    from isobatch.training.trainer import Progress as TrainingProgress

LONGEST_SILENCE = 30.0  # seconds between two lines of progress


class Output(Console):
    """A console on which text is only text: names that people chose may look like markup."""

    def __init__(self, file: Stream, width: int | None = None) -> None:
        super().__init__(
            highlight=False, soft_wrap=True, markup=False, emoji=False, file=cast(IO[str], file), width=width
        )

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # of which the caller of the command is told; rich would exit


out = Output(Results(), None if sys.stdout is not None and sys.stdout.isatty() else 120)
err = Output(Remarks())


def say(sentence: str) -> None:
    """A remark for a person."""
    err.print(sentence)


def heading(text: str, rest: str = "") -> Text:
    """A heading, or the beginning of a line, in bold."""
    return Text.assemble((text, "bold"), rest)


def subject(algo: str, env: str, rest: str = "") -> Text:
    """What the lines below speak of."""
    return Text.assemble((algo, "bold"), " on ", (env, "bold"), rest)


def print_json(result: Mapping[str, object]) -> None:
    """Exactly one JSON object on standard output; what is not a number is null."""
    print(json.dumps(plain_json(result), allow_nan=False), file=Results())


def table(title: str, columns: list[str], rows: list[list[str]]) -> Table:
    made = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        made.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        made.add_row(*row)
    return made


def text_table(columns: list[str], rows: Sequence[Sequence[str | Text]], right: tuple[int, ...] = ()) -> Table:
    """A table whose last column is text that may run over several lines; `right` are columns of numbers."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    last = len(columns) - 1
    for i, column in enumerate(columns):
        made.add_column(column, justify="right" if i in right else "left", no_wrap=i < last, overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return made


def bullet(sentence: str, mark: str = "  - ") -> Text:
    """A sentence with a mark before it and its later lines indented."""
    indent = " " * (len(mark) if len(mark) < 10 else 2)
    return Text(textwrap.fill(sentence, out.width, initial_indent=mark, subsequent_indent=indent))


def pairs(lines: list[tuple[str, str]]) -> str:
    """Labels and texts in two columns."""
    width = max(len(label) for label, _ in lines)
    return "\n".join(f"  {label:{width}}  {text}" for label, text in lines)


@contextmanager
def training_bar(total: int, quiet: bool) -> Iterator[Callable[[TrainingProgress], None]]:
    """A function for `train(watch=...)`: a bar on a terminal, else a line for each tenth of the run."""
    newest, shown = math.nan, 0

    def facts(progress: TrainingProgress) -> str:
        nonlocal newest
        newest = newest if math.isnan(progress.episodic_return) else progress.episodic_return
        return f"{progress.env_steps:,} steps  {progress.steps_per_second:,.0f} steps/s  return {number(newest)}"

    def line(progress: TrainingProgress) -> None:
        nonlocal shown
        tenth, text = 10 * progress.env_steps // total, facts(progress)
        if tenth > shown:
            shown = tenth
            say(f"{100 * progress.env_steps // total:3d} %  {text}  {progress.seconds_left:.0f} s left")

    if quiet:
        yield lambda progress: None
    elif not err.is_terminal:
        yield line
    else:
        with _bar("compiling ...", total) as update:
            yield lambda progress: update(facts(progress), progress.env_steps)


@contextmanager
def progress_bar(quiet: bool) -> Iterator[Callable[[str, float], None]]:
    """A function of a label and the share that is done: a bar on a terminal, else a line for each label and tenth."""
    newest, shown = "", 0.0

    def line(label: str, done: float) -> None:
        nonlocal newest, shown
        is_new = label != newest or done >= shown + 0.1
        if is_new:
            newest, shown = label, done
        show(f"{math.floor(100 * done):3d} %  {label}", is_new)

    if quiet:
        yield lambda label, done: None
    elif not err.is_terminal:
        with progress_lines() as show:
            yield line
    else:
        with _bar("starting ...", 1.0) as update:
            yield update


@contextmanager
def progress_lines(silence: float = LONGEST_SILENCE) -> Iterator[Callable[[str, bool], None]]:
    """A function of a line and whether it is printed at once; the newest of the others follows after some seconds of
    silence, and then again, so that what takes long, as compiling does, does not seem to hang."""
    start = shown = time.monotonic()
    newest, over, lock = "starting", threading.Event(), threading.Lock()

    def show(text: str, at_once: bool) -> None:
        nonlocal newest, shown
        with lock:
            newest = text
            if at_once:
                shown = time.monotonic()
                say(text)

    def remind() -> None:
        nonlocal shown
        while not over.wait(max(0.0, shown + silence - time.monotonic())):
            with lock:
                now = time.monotonic()
                if now >= shown + silence:
                    shown = now
                    say(f"{newest}, {now - start:,.0f} s so far")

    reminder = threading.Thread(target=remind, daemon=True)
    reminder.start()
    try:
        yield show
    finally:
        over.set()
        reminder.join()


@contextmanager
def _bar(label: str, total: float) -> Iterator[Callable[[str, float], None]]:
    columns = (TextColumn("{task.percentage:3.0f} %"), BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeRemainingColumn(), console=err, transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda label, done: bar.update(task, completed=done, description=label)


def number(value: float | None, digits: int | None = None) -> str:
    """A return or a length; digits by magnitude unless said."""
    return by_magnitude(value) if digits is None else fixed(value, digits)
