"""A blog post on parallel environments and rollout steps in PPO, on Pendulum-v1: its figures, and what it leaves open.

The post trains PPO with 4 environments x 256 steps and looks at single batches. Its six figures are made again, and the
quantity they are about, Var(G_B), is measured itself: over N x T, over lambda, over training, with intervals.
What it leaves in its directory: the run, what was measured of it (`results`), `claims.json` and the pictures.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from isobatch.drawing import COLORS, new_figure, new_panels, save_figure
from isobatch.files import replace_file
from isobatch.formatting import TO, with_interval
from isobatch.gradients.correlation import cosine_matrix
from isobatch.gradients.layout import Layout
from isobatch.gradients.variance import direct_variance
from isobatch.laboratory.batches import batch_products
from isobatch.laboratory.diagnosis import Diagnosis, Say, Watch, diagnose, subject_of
from isobatch.laboratory.options import LabOptions
from isobatch.laboratory.result_key import key_of
from isobatch.laboratory.results import load, store
from isobatch.laboratory.sections.cosines import SampleCosines, draw_heatmap, sample_cosines
from isobatch.laboratory.sections.geometries import Geometries, draw_over_training
from isobatch.laboratory.sections.lags import Lags
from isobatch.laboratory.subject import Subject
from isobatch.settings.config import Config
from isobatch.settings.presets import preset
from isobatch.statistics.bootstrap import Estimate, estimate, pair_mean
from isobatch.training.loading import load_run
from isobatch.training.trainer import train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EARLY, LATE = 390, 440  # iterations: the post's 399,360 and 450,560 steps
FIGURE_2_INTERVAL = 20  # iterations between its checkpoints
FIGURE_2_LAGS = (1, 5, 10, 20)
LAMBDAS = (0.0, 0.95, 1.0)
SHAPES = ((4, 256), (16, 64))
PAIR_LAGS = (1, 10, 40)
HEATMAP_BATCHES = 5  # as in the post
DIRECT_BATCHES = 64  # to measure the variance directly
CHAINS = 256
OVER_TRAINING = (20, 100, 200, 300, LATE)
SHOWN_SHAPES = ("1024x1", "64x16", "4x256")
KINDS = (("mean", "mean cosine", "in direction"), ("absolute", "mean absolute cosine", "up to sign"))
NEGLIGIBLE = 0.05  # of a quantity: as good as nothing


def post_config() -> Config:
    """PPO as in the post: 4 environments x 256 steps, lambda 0.95."""
    return preset(
        "ppo", "Pendulum-v1", num_envs=4, num_steps=256, gae_lambda=0.95, total_timesteps=LATE * 1024,
        lr_schedule="constant", learning_rate=3e-4,
    )  # fmt: skip


@dataclass(frozen=True)
class BatchNumbers:
    """Of DIRECT_BATCHES batches at one N x T and lambda."""

    cosines: tuple[tuple[float, ...], ...]
    variance: Estimate
    extreme: Estimate  # mean |cosine| between two batches

    def drawn(self) -> np.ndarray:
        return np.array(self.cosines)[:HEATMAP_BATCHES, :HEATMAP_BATCHES]


@dataclass(frozen=True)
class FigureNumbers:
    """What figures 1 and 3 to 6 show, from single batches as in the post; and the variance of many."""

    cosines: dict[float, SampleCosines]  # by lambda
    batches: dict[str, BatchNumbers] = field(default_factory=dict)  # by N x T and lambda, late only


@dataclass(frozen=True)
class Claim:
    claim: str
    verdict: str  # that follows from intervals
    evidence: str  # the numbers behind it


@dataclass(frozen=True)
class PostMeasurements:
    early: FigureNumbers
    late: FigureNumbers
    over_time: list[Diagnosis]  # lags at many checkpoints
    over_training: list[Diagnosis]  # geometries at some
    last: Diagnosis  # everything at the last one
    staggered: Diagnosis  # its geometries if environments were not reset together


@dataclass(frozen=True)
class PostReport:
    claims: list[Claim]
    pictures: list[Path]


def reproduce(out: Path, seed: int = 0, watch: Watch = lambda what, done: None, say: Say = print) -> PostReport:
    """Train if there is no run yet, measure what is not measured yet, draw everything, judge the claims."""
    run_dir, results = out / "run", out / "results"
    watch("training", 0.0)
    if not (run_dir / "config.yaml").is_file():
        kept = LATE // 10
        train(post_config(), run_dir=run_dir, checkpoint_interval=10, keep_checkpoints=kept, say=say)
    options = LabOptions(measure_seed=seed, chains=CHAINS, lambdas=(0.0, 0.5, 0.9, 0.95, 1.0))
    few = dataclasses.replace(options, chains=64, geometries="4x256", budget=1024)
    figure_2 = tuple(range(FIGURE_2_INTERVAL, LATE + 1, FIGURE_2_INTERVAL))
    staggered = {"staggered_resets": True}
    measured = PostMeasurements(
        early=_figures(run_dir, results, options, EARLY, watch, 0.03),
        late=_figures(run_dir, results, options, LATE, watch, 0.09),
        over_time=_diagnose(run_dir, results / "lags", few, "lags", figure_2, watch, 0.15, 0.45),
        over_training=_diagnose(run_dir, results, options, "geometries", OVER_TRAINING, watch, 0.45, 0.75),
        last=_diagnose(run_dir, results, options, "all", (LATE,), watch, 0.75, 0.97)[0],
        staggered=_diagnose(
            run_dir, out / "staggered", options, "geometries", (LATE,), watch, 0.97, 1.0, staggered
        )[0],
    )  # fmt: skip
    claims = judge(measured)
    replace_file(out / "claims.json", json.dumps({"claims": [vars(claim) for claim in claims]}, indent=1) + "\n")
    watch("drawing", 1.0)
    return PostReport(claims, draw(measured, out))


def _diagnose(
    run_dir: Path, out: Path, options: LabOptions, sections: str, iterations: tuple[int, ...], watch: Watch,
    begin: float, end: float, changes: Mapping[str, object] | None = None,
) -> list[Diagnosis]:  # fmt: skip
    options = dataclasses.replace(options, sections=sections)
    which = ",".join(map(str, iterations))

    def part(what: str, done: float) -> None:
        watch(what, begin + (end - begin) * done)

    return diagnose(run_dir, options, which, None, out, changes or {}, part)


def _figures(
    run_dir: Path, out: Path, options: LabOptions, iteration: int, watch: Watch, begin: float
) -> FigureNumbers:
    watch(f"the post's figures at iteration {iteration}", begin)
    subject = subject_of(load_run(run_dir, str(iteration)), options)
    key, path = key_of(subject, iteration, "figures"), out / f"{iteration:09d}-figures.json"
    return load(path, key, FigureNumbers) or store(path, key, _figure_numbers(subject, iteration == LATE))


def _figure_numbers(subject: Subject, late: bool) -> FigureNumbers:
    cosines = {lam: sample_cosines(subject, lam) for lam in LAMBDAS}
    if not late:
        return FigureNumbers(cosines)
    batches = {f"{n}x{t}, {lam:g}": _batch_numbers(subject, n, t, lam) for n, t in SHAPES for lam in LAMBDAS}
    return FigureNumbers(cosines, batches)


def _batch_numbers(subject: Subject, num_envs: int, num_steps: int, lam: float) -> BatchNumbers:
    config, count = subject.config.replace(gae_lambda=lam), DIRECT_BATCHES
    seed = subject.options.measure_seed + 7
    products = batch_products(config, subject.policy, subject.source, num_envs, num_steps, count, seed)
    cosines = cosine_matrix(products, Layout.of(np.arange(count)))
    extreme = estimate(lambda w: pair_mean(np.abs(cosines), w), count, what="batches")
    return BatchNumbers(tuple(map(tuple, cosines.tolist())), direct_variance(products), extreme)


def draw(measured: PostMeasurements, out: Path) -> list[Path]:
    """Every figure of the post, then those beyond it."""
    late, early = measured.late, measured.early
    paths = []

    def keep(figure: Figure, name: str, title: str = "") -> None:
        if title:
            figure.suptitle(title, fontsize=10)
        paths.append(out / name)
        save_figure(figure, out / name)

    figure, (left, right) = new_panels(1, 2, (11, 4))
    early.cosines[0.95].draw_histograms(left, (1, 3, 5, 7), f"step {EARLY * 1024:,}")
    late.cosines[0.95].draw_histograms(right, (1, 5, 10, 40), f"step {LATE * 1024:,}")
    title = "Figure 1: cosines of centered gradients, within a trajectory at some lags and across"
    keep(figure, "figure-1.png", title)

    figure, panels = new_panels(1, 2, (11, 4))
    for axes, numbers, iteration in zip(panels, (early, late), (EARLY, LATE), strict=True):
        numbers.cosines[0.95].draw_means(axes, f"step {iteration * 1024:,}")
    title = "Figure 1 in numbers: mean cosine, signed and absolute (95 % intervals)"
    keep(figure, "figure-1-means.png", title)

    keep(_figure_2(measured.over_time), "figure-2.png")

    figure, panels = new_panels(1, 2, (9, 4))
    for axes, (n, t) in zip(panels, SHAPES, strict=True):
        draw_heatmap(axes, late.batches[f"{n}x{t}, 0.95"].drawn(), f"{n}x{t}")
    keep(figure, "figure-3.png", "Figure 3: cosines between the gradients of five batches, lambda 0.95")

    figure, panels = new_panels(1, 2, (11, 4))
    for axes, lam in zip(panels, (0.0, 1.0), strict=True):
        late.cosines[lam].draw_histograms(axes, (40,), f"lambda {lam:g}")
    keep(figure, "figure-4.png", "Figure 4: cosines at lag 40")

    figure, axes = new_figure()
    for color, lam in enumerate(LAMBDAS):
        one = late.cosines[lam]
        axes.stairs(one.with_mean.density, one.edges, color=COLORS[color], label=f"lambda {lam:g}", linewidth=1.6)
    axes.set(xlabel="cosine of a sample's gradient with the mean of its batch", ylabel="density")
    axes.legend(frameon=False)
    axes.set_title("Figure 5: samples and their batch", fontsize=10)
    keep(figure, "figure-5.png")

    figure, panels = new_panels(2, 3, (11, 7))
    for axes, ((n, t), lam) in zip(panels, itertools.product(SHAPES, LAMBDAS), strict=True):
        draw_heatmap(axes, late.batches[f"{n}x{t}, {lam:g}"].drawn(), f"{n}x{t}, lambda {lam:g}")
    keep(figure, "figure-6.png", "Figure 6: cosines between the gradients of five batches")

    paths += measured.last.draw(out)
    draw_over_training(measured.over_training, out / "training-time.png")
    return [*paths, out / "training-time.png"]


def _figure_2(diagnoses: list[Diagnosis]) -> Figure:
    figure, axes = new_figure()
    steps = np.array([diagnosis.env_steps for diagnosis in diagnoses])
    by_checkpoint = [_correlations(diagnosis) for diagnosis in diagnoses]

    def draw_curve(estimates: list[Estimate], style: str, color: str, label: str, alpha: float) -> None:
        axes.plot(steps, [e.value for e in estimates], style, color=color, label=label, markersize=3)
        low, high = [e.low for e in estimates], [e.high for e in estimates]
        axes.fill_between(steps, low, high, color=color, alpha=alpha, linewidth=0)

    for color, lag in enumerate(FIGURE_2_LAGS):
        draw_curve([each[lag] for each in by_checkpoint], "o-", COLORS[color], f"lag {lag}", 0.12)
    across = [diagnosis.get(Lags).across for diagnosis in diagnoses]
    draw_curve(across, "--", "0.3", "two trajectories,\nequal times", 0.2)
    axes.axhline(0, color="0.4", linewidth=1)
    axes.set(xlabel="environment steps", ylabel="covariance / variance of one sample")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1))
    axes.set_title("Figure 2: correlation in covariance form (bands: 95 % intervals)", fontsize=10)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    return figure


def _correlations(diagnosis: Diagnosis) -> dict[int, Estimate]:
    """By lag."""
    return {row.lag: row.estimate for row in diagnosis.get(Lags).correlation}


def judge(measured: PostMeasurements) -> list[Claim]:
    """The post's claims, each with a verdict that follows from intervals, and the numbers behind it."""
    cosines, batches = measured.late.cosines, measured.late.batches
    rows = {row.name: row for row in measured.last.get(Geometries).rows}
    staggered = {row.name: row for row in measured.staggered.get(Geometries).rows}
    lags = _correlations(measured.last)
    alone = measured.last.get(Lags).shares[0].estimate
    means = {lam: one.with_mean.means.mean for lam, one in cosines.items()}
    extreme = {shape: batches[f"{shape}, 0.95"].extreme for shape in ("4x256", "16x64")}
    ratio = rows["16x64"].variance_to_own  # of 16x64 to 4x256
    assert ratio is not None  # 4x256 is the run's own
    worth = rows["4x256"].effective_samples
    short, long = rows["64x16"].squared_bias, rows["4x256"].squared_bias
    across = rows["1024x1"].across
    return [
        *(
            _alike(f"{alike} (step {iteration * 1024:,})", kind, name, numbers.cosines[0.95])
            for kind, name, alike in KINDS
            for iteration, numbers in ((EARLY, measured.early), (LATE, measured.late))
        ),
        _claim(
            "In covariance form the correlation is close to zero (the post: -0.007 to 0)",
            all(max(abs(e.low), abs(e.high)) < NEGLIGIBLE for e in lags.values()),
            any(e.low > NEGLIGIBLE or e.high < -NEGLIGIBLE for e in lags.values()),
            ", ".join(f"{_words(lags[lag])} at lag {lag}" for lag in FIGURE_2_LAGS),
        ),
        _claim(
            "Gradients of 4x256 batches are more often strongly aligned or opposed than those of 16x64",
            extreme["4x256"].low > extreme["16x64"].high,
            extreme["4x256"].high < extreme["16x64"].low,
            f"mean absolute cosine between {DIRECT_BATCHES} batches: {_words(extreme['4x256'])} at 4x256, "
            f"{_words(extreme['16x64'])} at 16x64",
        ),
        _claim(
            "At equal data a longer rollout has a larger variance: 4x256 more than 16x64",
            ratio.high < 1,
            ratio.low > 1,
            f"Var(16x64) / Var(4x256) is {_words(ratio)}; directly, on {DIRECT_BATCHES} batches each: "
            f"{_words(batches['4x256, 0.95'].variance)} at 4x256, "
            f"{_words(batches['16x64, 0.95'].variance)} at 16x64",
        ),
        _claim(
            "It is the covariance along a trajectory that does it: long rollouts have a smaller effective sample size",
            worth.high < 1024,
            worth.low > (1 - NEGLIGIBLE) * 1024,
            f"1,024 samples of 4x256 are worth {_words(worth)} independent ones; single samples make {_words(alone)} "
            "of the variance of a rollout of 1,024 steps",
        ),
        _claim(
            "Short rollouts are biased, long ones less so",
            short.low > long.high,
            short.high < long.low,
            "squared bias " + ", ".join(f"{_words(rows[name].squared_bias)} at {name}" for name in SHOWN_SHAPES),
        ),
        _claim(
            "A larger lambda makes the directions of single gradients more various",
            means[0.0].low > means[0.95].high and means[0.95].value > means[1.0].value,
            means[0.0].high < means[1.0].low,
            "mean cosine of a sample with the batch's gradient: "
            + ", ".join(f"{_words(mean)} at lambda {lam:g}" for lam, mean in means.items()),
        ),
        *(
            _claim(
                f"No lambda removes the likeness {alike} along a trajectory, not even 0",
                all(getattr(one.excess[40], kind).low > 0 for one in cosines.values()),
                any(getattr(one.excess[40], kind).high < 0 for one in cosines.values()),
                f"{name} at lag 40, minus across: "
                + ", ".join(
                    f"{_words(getattr(one.excess[40], kind))} at lambda {lam:g}" for lam, one in cosines.items()
                ),
            )
            for kind, name, alike in KINDS
        ),
        _claim(
            "Not in the post: environments that reach their time limit together are correlated",
            across.low > 0,
            across.high < NEGLIGIBLE * rows["1024x1"].variance.value,
            "variance reset together and staggered: "
            + ", ".join(
                f"{_words(rows[name].variance)} and {_words(staggered[name].variance)} at {name}"
                for name in SHOWN_SHAPES
            ),
        ),
    ]


def _alike(alike: str, kind: str, name: str, cosines: SampleCosines) -> Claim:
    """Of pairs within a trajectory and across; `kind` is a field of `CosineMeans`."""
    excess = {lag: getattr(cosines.excess[lag], kind) for lag in PAIR_LAGS}
    within = {lag: getattr(cosines.within[lag].means, kind) for lag in PAIR_LAGS}
    assert cosines.across is not None  # there are four environments
    return _claim(
        f"Gradients of one trajectory are more alike {alike} than those of different ones",
        all(each.low > 0 for each in excess.values()),
        any(each.high < 0 for each in excess.values()),
        f"{name} within: "
        + ", ".join(f"{within[lag].value:+.3f} at lag {lag}" for lag in PAIR_LAGS)
        + f"; across: {getattr(cosines.across.means, kind).value:+.3f}; within minus across: "
        + ", ".join(f"{_words(excess[lag])} at lag {lag}" for lag in PAIR_LAGS),
    )


def _claim(claim: str, holds: bool, fails: bool, evidence: str) -> Claim:
    return Claim(claim, "holds" if holds else "does not hold" if fails else "cannot be told", evidence)


def _words(measured: Estimate) -> str:
    return with_interval(measured, ends=TO)
