"""Numbers as people read them: with intervals, infinity as `inf`, and what is not known as `-`; and small tables."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from typing import Protocol

TO = "({} to {})"  # an interval inside a sentence
BYTE_UNITS = ("bytes", "KB", "MB", "GB", "TB")

Say = Callable[[str], None]  # shows a sentence to a person


class HasInterval(Protocol):
    """A value with the ends of its interval, which are nan where there is none: `statistics.bootstrap.Estimate`."""

    @property
    def value(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


def number(value: float | None, digits: int = 1) -> str:
    """1,234.5, never -0.0; `inf` where it is infinite, `-` where it is not known."""
    return "-" if value is None or math.isnan(value) else f"{value:z,.{digits}f}"


def significant(value: float | None) -> str:
    """Whole from 100 on, three digits below."""
    if value is None or math.isnan(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def with_interval(estimate: HasInterval, text: Callable[[float], str] = significant, ends: str = "[{}, {}]") -> str:
    """`value [low, high]`; the value alone where there is no interval, `-` where there is no value."""
    if math.isnan(estimate.value) or math.isnan(estimate.low):
        return text(estimate.value)
    return f"{text(estimate.value)} {ends.format(text(estimate.low), text(estimate.high))}"


def percent(estimate: HasInterval) -> str:
    """`97 % [90, 104]` for a share of .97."""
    text = with_interval(estimate, lambda share: f"{100 * share:.0f}")
    return text.replace(" [", " % [", 1) if "[" in text else f"{text} %"


def plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns side by side, the first one to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    aligned = [
        [cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths, strict=True))]
        for row in (columns, *rows)
    ]
    return "\n".join("  ".join(row).rstrip() for row in aligned)


def html_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same for a notebook."""

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<p><b>{html.escape(title)}</b></p><table>{line(columns, 'th')}{body}</table>"


def html_list(sentences: Sequence[str]) -> str:
    """Sentences for a notebook."""
    return f"<ul>{''.join(f'<li>{html.escape(sentence)}</li>' for sentence in sentences)}</ul>" if sentences else ""


def counted(count: int, noun: str) -> str:
    """1 environment, 2 environments, 1,024 minibatches."""
    plural = "es" if noun.endswith("batch") else "s"
    return f"{count:,} {noun}{'' if count == 1 else plural}"


def rounded(value: float, digits: int = 3) -> str:
    """So many significant digits, and never 4.09e+03: whole where there are more before the point."""
    return f"{value:,.0f}" if 10**digits - 0.5 <= abs(value) < math.inf else f"{value:.{digits}g}"


def byte_text(count: int) -> str:
    """`15.6 KB`."""
    power = min((len(str(count)) - 1) // 3, len(BYTE_UNITS) - 1)
    return f"{rounded(count / 1000**power)} {BYTE_UNITS[power]}"


def by_magnitude(value: float | None) -> str:
    """A return: one digit after the point from 10 on, two from 1 on, three significant ones below; never -0.0."""
    if value is None or math.isnan(value):
        return "-"
    if value == 0 or abs(value) >= 10 or math.isinf(value):
        return number(value, 1)
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"


def setting_text(value: object, digits: int = 4) -> str:
    """The value of a setting in a few characters."""
    return rounded(value, digits) if isinstance(value, float) else str(value)


def fraction_text(value: float) -> str:
    """`1/16`, `4`: what is one part of a whole number as a fraction, other numbers in six digits."""
    return f"1/{1 / value:g}" if 0 < value < 1 and (1 / value).is_integer() else f"{value:g}"
