"""How the gradient changes over training: the same geometries at several checkpoints of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from isobatch.drawing import new_panels, save_figure
from isobatch.laboratory.diagnosis import Diagnosis
from isobatch.laboratory.sections.geometries import Geometries
from isobatch.laboratory.sections.plotting import INTERVALS, TEXT_SIZE, draw_points

PANELS = {
    "error": "mean squared error of the gradient",
    "effective_samples": "effective samples",
    "critical_batch": "critical batch size",
}
MOST_GEOMETRIES = 5  # that are drawn


def draw_over_training(diagnoses: Sequence[Diagnosis], path: Path) -> None:
    """Error, effective samples and critical batch size of some geometries over the checkpoints of a run."""
    from matplotlib import ticker

    figure, panels = new_panels(1, len(PANELS), (13, 4))
    steps = np.array([diagnosis.env_steps for diagnosis in diagnoses])
    by_checkpoint = [diagnosis.get(Geometries).rows for diagnosis in diagnoses]
    count = len(by_checkpoint[0])
    shown = np.unique(np.linspace(0, count - 1, min(MOST_GEOMETRIES, count)).round().astype(int))
    for axes, (quantity, title) in zip(panels, PANELS.items(), strict=True):
        axes.set(yscale="log", xlabel="environment steps", title=title)
        for color, place in enumerate(shown):
            estimates = [getattr(rows[place], quantity) for rows in by_checkpoint]
            draw_points(axes, steps, estimates, "o-", color, by_checkpoint[0][place].name)
        axes.xaxis.set_major_formatter(ticker.EngFormatter(sep=""))
    panels[0].legend(fontsize=TEXT_SIZE, frameon=False)
    figure.suptitle(f"{diagnoses[0].title}: over training ({INTERVALS})", fontsize=10)
    save_figure(figure, path)
