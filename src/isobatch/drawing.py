"""The style that all pictures share. Colors are told apart by color-blind readers (Okabe & Ito 2008)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from isobatch.errors import UsageError
from isobatch.files import draft_of, unwritable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
FORMATS = (".png", ".svg", ".pdf")


def new_figure(size: tuple[float, float] = (8, 4.5)) -> tuple[Figure, Axes]:
    """A figure in the style of this package, without a window system, and its axes."""
    figure, (axes,) = new_panels(1, 1, size)
    return figure, axes


def new_panels(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """The same with several axes, row by row."""
    import matplotlib

    matplotlib.use("Agg", force=False)
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(rows, columns, figsize=size, layout="constrained")
    panels: list[Axes] = list(np.ravel(axes))
    for each in panels:
        each.spines[["top", "right"]].set_visible(False)
        each.grid(alpha=0.25, linewidth=0.6)
        each.set_axisbelow(True)
        each.title.set_fontsize(11)
    return figure, panels


def save_figure(figure: Figure, path: Path) -> None:
    """Write the picture in the format that its name asks for."""
    from matplotlib import pyplot

    if path.suffix not in FORMATS:
        raise UsageError(f"out={str(path)!r} has no picture's ending: use {', '.join(FORMATS)}.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft_of(path) as draft:
            figure.savefig(draft, dpi=150, format=path.suffix[1:])
    except OSError as error:
        raise unwritable(f"out={str(path)!r}", error) from None
    finally:
        pyplot.close(figure)
