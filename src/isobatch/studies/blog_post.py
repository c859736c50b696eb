"""A blog post on parallel environments and rollout steps in PPO, on Pendulum-v1: its figures, and what it leaves open.

The post trains PPO with 4 environments x 256 steps and with 16 x 64, and looks at single batches. Its six figures are
made again, and the quantity they are about, Var(G_B), is measured itself: over N x T, over lambda, over training, with
intervals. A figure is drawn as soon as its numbers are there; what was killed goes on with the piece it was in. What it
leaves in its directory: two runs, what was measured of them, `claims.json` with the numbers of the page, and the
pictures.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from isobatch.drawing import save_figure
from isobatch.files import replace_file
from isobatch.formatting import Say
from isobatch.laboratory.diagnosis import Watch
from isobatch.laboratory.results import to_json
from isobatch.laboratory.sections.geometries import draw_over_training
from isobatch.studies import blog_post_figures as figures
from isobatch.studies.blog_post_measurements import (
    EARLY,
    FIGURE_2_INTERVAL,
    LAMBDAS,
    LATE,
    LONG,
    OVER_TRAINING,
    SHORT,
    Bench,
    Measurements,
)
from isobatch.studies.blog_post_results import PostResults, results_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class PostReport:
    results: PostResults
    pictures: list[Path]


def reproduce(out: Path, seed: int = 0, watch: Watch = lambda what, done: None, say: Say = print) -> PostReport:
    """Train what is not trained yet, measure what is not measured yet, draw everything, judge the claims."""
    bench, pictures = Bench(out, seed, watch, say), list[Path]()

    def keep(name: str, figure: Figure) -> None:
        pictures.append(out / name)
        save_figure(figure, out / name)

    scores = {shape: bench.train(shape, 0.04) for shape in (LONG, SHORT)}

    early = bench.cosines(EARLY, 0.95)
    late = {lam: bench.cosines(LATE, lam) for lam in LAMBDAS}
    keep("figure-1.png", figures.figure_1(early, late[0.95]))
    keep("figure-1-means.png", figures.figure_1_means(early, late[0.95]))
    keep("figure-4.png", figures.figure_4(late))
    keep("figure-5.png", figures.figure_5(late))

    coherence = bench.coherence()
    batches, short_batches = bench.batches(LONG, (LONG, SHORT)), bench.batches(SHORT, (SHORT,))
    keep("figure-3.png", figures.figure_3(batches, short_batches))
    keep("figure-6.png", figures.figure_6(batches))

    checkpoints = tuple(range(FIGURE_2_INTERVAL, LATE + 1, FIGURE_2_INTERVAL))
    few = dataclasses.replace(bench.options, chains=64, geometries=LONG, budget=1024)
    over_time = bench.diagnose("results/lags", "lags", checkpoints, 0.25, options=few)
    keep("figure-2.png", figures.figure_2(over_time))

    length, shuffled = bench.over_length(), bench.shuffling()
    over_training = bench.diagnose("results", "geometries", OVER_TRAINING, 0.2)
    pictures.append(out / "training-time.png")
    draw_over_training(over_training, pictures[-1])
    last = bench.diagnose("results", "all", (LATE,), 0.15)[0]
    pictures += last.draw(out)
    staggered = bench.diagnose("staggered", "geometries", (LATE,), 0.05, {"staggered_resets": True})[0]

    results = results_of(
        Measurements(
            early,
            late,
            coherence,
            batches,
            short_batches,
            over_time,
            last,
            staggered,
            length,
            shuffled,
            scores,
        )
    )
    replace_file(out / "claims.json", json.dumps(to_json(results), indent=1) + "\n")
    watch("done", 1.0)
    return PostReport(results, pictures)
