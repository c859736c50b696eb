"""The sections of a diagnosis by themselves: all have all parts, survive JSON, and say what their numbers say."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import pyplot

from isobatch.drawing import new_figure
from isobatch.laboratory import LabOptions
from isobatch.laboratory.batches import few_batches, mean_over_batches
from isobatch.laboratory.landscape import Measured
from isobatch.laboratory.results import from_json, to_json
from isobatch.laboratory.sections import ALL, SECTIONS, section_class
from isobatch.laboratory.sections.aggregations import Aggregations, PairCosine
from isobatch.laboratory.sections.branches import Branches, BranchRow
from isobatch.laboratory.sections.cosines import CosineMeans, Cosines, Histogram
from isobatch.laboratory.sections.geometries import Geometries, GeometryRow
from isobatch.laboratory.sections.lags import LagCorrelation, Lags, VarianceShare
from isobatch.laboratory.sections.lambdas import LambdaRow, Lambdas
from isobatch.laboratory.sections.minibatches import Minibatches, MinibatchRow
from isobatch.laboratory.sections.plotting import draw_points
from isobatch.laboratory.sections.points import cell, point_fields, ratio_of, times
from isobatch.laboratory.sections.section import Section
from isobatch.laboratory.sections.trust_region import EpochRow, TrustRegion
from isobatch.statistics.bootstrap import Estimate

UNKNOWN = Estimate(math.nan, 0.0, math.inf)
ROOT = Path(__file__).parents[2]


def sure(value: float) -> Estimate:
    return Estimate(value, value, value)


def point(envs: int, steps: int, error: float, **more: Any) -> dict[str, Any]:
    unsure = Estimate(0.0, -1.0, 1.0)
    return {
        **dict(num_envs=envs, num_steps=steps, gae_lambda=0.95, variance=sure(error), error=sure(error)),
        **dict(individual=sure(error), within=unsure, across=unsure, squared_bias=unsure, signal=sure(1.0)),
        **dict(effective_samples=sure(1024.0), critical_batch=Estimate(500.0, 400.0, 600.0)),
        "error_to_best": sure(error),
    } | more


def row(envs: int, steps: int, error: float, **more: Any) -> GeometryRow:
    times = {"other_resets_variance": sure(error), "seconds_per_batch": 0.001}
    return GeometryRow(**point(envs, steps, error, **times | more))


def geometries(*rows: GeometryRow, **more: Any) -> Geometries:
    settings: dict[str, Any] = dict(
        gae_lambda=0.95, bootstrap=True, complete_episodes=False, chains=128, staggered_resets=False, sets_clocks=True,
        unseen_limits=0, time_limit=200, waited=200, budget=1024, rows=rows,
    )  # fmt: skip
    return Geometries(**settings | more)


def branch(factor: float, score: float, verdict: str = "") -> BranchRow:
    """A size whose policies get `score` on four seeds, at every mark."""
    compared: dict[str, Any] = {}
    if verdict:
        difference = Estimate(score - 90.0, score - 95.0, score - 85.0)
        compared = dict(difference=difference, difference_at_end=difference, verdict=verdict, verdict_at_end=verdict)
    sizes = dict(factor=factor, num_envs=int(8 * factor), iteration_batch=int(1024 * factor))
    return BranchRow(
        **sizes, optimization_batch=int(256 * factor), learning_rate=1e-3, iterations=8, diverged=0,
        returns=((score,) * 4,) * 4, over_branch=sure(score), at_end=sure(score), **compared,
    )  # fmt: skip


def branches(*rows: BranchRow, **more: Any) -> Branches:
    settings: dict[str, Any] = dict(
        samples=8192, seeds=4, episodes=32, own_batch=256, policy_return=50.0, untrained_return=20.0, tolerance=3.5,
        critical_batch=Estimate(400.0, 256.0, 1024.0), critical_batch_at_end=Estimate(300.0, 64.0, math.inf),
        noise_scale=Estimate(500.0, 450.0, 600.0), settled=True, whole_episodes=False, stopped_schedule="",
        left_out=("64 times the batch: left out. Why.",), rows=rows,
    )  # fmt: skip
    return Branches(**settings | more)


def text(section: Section) -> str:
    return " ".join(section.interpret())


MEANS = CosineMeans(Estimate(0.1, 0.05, 0.15), sure(0.3))
HISTOGRAM = Histogram((0.5, 0.5), MEANS)
EXAMPLES: dict[str, Section] = {
    "geometries": geometries(
        row(
            *(64, 16, 1.0),
            current=True,
            error_to_current=sure(1.0),
            effective_samples=UNKNOWN,
            measured_variance=sure(1.1),
        ),
        row(4, 256, 2.1, critical_batch=Estimate(math.nan), effective_samples=Estimate(900.0, 800.0, math.inf)),
    ),
    "lambdas": Lambdas(
        tuple(
            LambdaRow(**point(4, 256, error, gae_lambda=lam), own_geometry=True)
            for lam, error in ((0.5, 1.0), (0.95, 2.0))
        ),
        0.95,
    ),
    "lags": Lags(
        0.95,
        4,
        (LagCorrelation(1, Estimate(0.2, 0.1, 0.3)), LagCorrelation(2, Estimate(math.nan))),
        Estimate(0.01, -0.02, 0.04),
        (LagCorrelation(1, Estimate(0.19, 0.08, 0.3)), LagCorrelation(2, Estimate(math.nan))),
        (VarianceShare("single samples", sure(0.7)), VarianceShare("other trajectories", Estimate(0.3))),
    ),
    "cosines": Cosines(
        edges=(-1.0, 0.0, 1.0), within={1: HISTOGRAM, 3: HISTOGRAM}, across=HISTOGRAM, excess={1: MEANS, 3: MEANS},
        with_mean=HISTOGRAM, num_envs=4, num_steps=8, batches=((1.0, 0.5), (0.5, 1.0)),
    ),
    "minibatches": Minibatches(
        4, 8, 4, (MinibatchRow(8, sure(2.0), sure(1.0), True, sure(3.0)), MinibatchRow(32, sure(0.0), sure(1.0), False))
    ),
    "trust-region": TrustRegion("clip", 4, tuple(EpochRow(e, *(sure(0.5),) * 4) for e in range(3))),
    "aggregations": Aggregations(
        16, 0, 200, 4, 100.0, 20.0, sure(0.1), (PairCosine(("timestep", "trajectory-mean"), sure(0.9)),), sure(0.95)
    ),
    "branches": branches(branch(0.25, 90.0), branch(1.0, 91.0, "loses nothing"), branch(4.0, 60.0, "loses")),
}  # fmt: skip


def test_every_section_has_all_parts_and_a_place_in_the_help_and_the_documentation() -> None:
    assert tuple(EXAMPLES) == SECTIONS
    page = (ROOT / "docs" / "gradients.md").read_text()
    options = (ROOT / "src" / "isobatch" / "laboratory" / "options.py").read_text()
    for name in SECTIONS:
        kind = section_class(name)
        assert dataclasses.is_dataclass(kind)
        assert all(hasattr(kind, part) for part in ("measure", "interpret", "tables", "draw"))
        assert f"| `{name}` |" in page
    assert ",".join(SECTIONS) in options
    assert LabOptions().chosen == ALL == SECTIONS[:-1]
    files = {path.stem.replace("_", "-") for path in (ROOT / "src/isobatch/laboratory/sections").glob("*.py")}
    assert files - set(SECTIONS) == {"--init--", "section", "points", "plotting"}


@pytest.mark.parametrize("name", SECTIONS)
def test_what_is_read_back_says_and_draws_the_same(name: str, tmp_path: Path) -> None:
    section = EXAMPLES[name]
    written = json.dumps(to_json(section), allow_nan=False)
    read = from_json(section_class(name), json.loads(written))
    assert json.dumps(to_json(read)) == written
    assert repr(read) == repr(section)  # nan is not equal to itself, but it is written alike
    assert list(read.interpret()) == list(section.interpret()) != []
    assert read.tables() == section.tables() != []
    for table in section.tables():
        assert table.rows
        assert all(len(cells) == len(table.columns) for cells in table.rows)
    read.draw(tmp_path / "picture.png", "title")
    assert (tmp_path / "picture.png").stat().st_size > 5000


def test_what_is_not_finite_is_null_and_null_is_not_known_or_without_bound() -> None:
    assert to_json(Estimate(math.inf, 2.0, math.inf)) == {"value": None, "low": 2.0, "high": None}
    read = [from_json(Estimate, {"value": None, "low": low, "high": None}) for low in (2.0, None)]
    assert repr(read) == repr([Estimate(math.nan, 2.0, math.inf), Estimate(math.nan, math.nan, math.nan)])
    made = to_json(EXAMPLES["geometries"])
    assert made["rows"][0]["measured_variance"] == {"value": 1.1, "low": 1.1, "high": 1.1}
    assert "measured_variance" not in made["rows"][1]


def test_sentences_follow_the_numbers() -> None:
    short, long = row(64, 16, 1.0), row(4, 256, 2.1, error_to_best=Estimate(2.1, 1.8, 2.5), current=True)
    said = text(geometries(short, long))
    assert "64x16 has 2.1 times (1.8 to 2.5) lower gradient mean squared error than 4x256 (this run's)" in said
    assert "500 samples (400 to 600)" in said
    assert "staggered" not in said
    unsure = dataclasses.replace(long, error_to_best=Estimate(2.1, 0.8, 4.0))
    assert "cannot be told from it" in text(geometries(short, unsure))
    together = dataclasses.replace(short, across=Estimate(0.9, 0.8, 1.0), other_resets_variance=sure(0.1))
    said = text(geometries(together, long))
    assert "Environments that were reset together are correlated: at 64x16 staggered resets" in said
    assert "staggered resets (--staggered-resets) would lower the variance 10.0 times" in said
    biased = dataclasses.replace(short, squared_bias=Estimate(5.0, 4.0, 6.0))
    said = text(geometries(biased, long))
    assert "Up to T = 16, at lambda 0.95, the error is mostly bias of the value function" in said


def test_what_cannot_be_seen_outside_jax_is_said() -> None:
    only = row(64, 16, 1.0, across=Estimate(0.9, 0.8, 1.0), other_resets_variance=sure(0.1))
    outside = geometries(only, sets_clocks=False, unseen_limits=1200, time_limit=27000, waited=1000)
    said = text(outside)
    assert "at 64x16 resets at different times would lower the variance 10.0 times" in said
    assert "stands in for what would follow the 1,200 time limits in the chains" in said
    assert "The time limit of 27,000 steps is long: chains and batches were begun 1,000 to 2,000 steps after" in said
    assert "No time limit is known: chains" in text(dataclasses.replace(outside, time_limit=0))


def test_what_branches_say() -> None:
    rows = branch(0.25, 90.0), branch(1.0, 91.0, "loses nothing"), branch(4.0, 60.0, "loses")
    said = text(branches(*rows))
    assert "over 8,192 environment steps, batches of up to 400 samples a gradient step (256 to 1,024) lose" in said
    assert "noise scale of the same policy is 500 (450 to 600): the two agree within their intervals." in said
    assert "By the return at the end of the branch alone it is 300 (64 to inf)." in said
    assert "64 times the batch: left out. Why." in said
    assert "begin anew" not in said
    assert "spoils" not in said
    assert "this measures what a batch spoils" in text(branches(*rows, policy_return=89.0))
    apart = branches(*rows, noise_scale=Estimate(4000.0, 3000.0, 5000.0), settled=False, stopped_schedule="linear")
    assert "4,000 (3,000 to 5,000): 10 times more than the branches say." in text(apart)
    assert "Environments outside JAX begin anew" in text(apart)
    assert "lr_schedule=linear does not go on" in text(apart)
    free = branches(*rows, critical_batch=Estimate(1024.0, 256.0, math.inf), noise_scale=UNKNOWN)
    assert "no batch up to 1,024 samples a gradient step loses (in doubt above 256)" in text(free)
    assert "The noise scale of the same policy cannot be told" in text(free)
    unknown = Estimate(math.nan)
    said = text(branches(*rows, tolerance=0.0, critical_batch=unknown, critical_batch_at_end=unknown))
    assert "nothing can be said about what a batch loses here" in said
    assert "500 (450 to 600): there is nothing to compare it with." in said
    assert "Whether 64, the smallest" in text(branches(*rows, critical_batch=Estimate(100.0, 64.0, 256.0)))
    lost = dataclasses.replace(rows[-1], diverged=2)
    assert "some diverged (2 at 4 times the batch)" in text(branches(*rows[:-1], lost))


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_an_interval_without_an_upper_end_is_an_arrow(scale: str) -> None:
    """From its lower end, or from the value where the axis has no place for that; also where there is no value."""
    figure, axes = new_figure()
    axes.set(yscale=scale)
    endless = [Estimate(900.0, 800.0, math.inf), Estimate(900.0, -5.0, math.inf), Estimate(math.nan, 7.0, math.inf)]
    draw_points(axes, np.arange(1, 5), [sure(5.0), *endless], "o-", 0, "samples")
    arrows = [(arrow.xy, arrow.xyann) for arrow in axes.texts]
    assert arrows == [((2, 1), (2, 800.0)), ((3, 1), (3, 900.0 if scale == "log" else -5.0)), ((4, 1), (4, 7.0))]
    assert axes.get_ylim()[0] < 7  # there is room for all of it
    pyplot.close(figure)


def test_time_buys_less_variance_but_not_less_bias() -> None:
    """100 batches of 4x256 in the time of one of 64x16: their error is 2.1/100 if all of it is variance."""
    slow, quick = row(64, 16, 1.0), row(4, 256, 2.1, seconds_per_batch=0.00001)
    said = text(geometries(slow, quick))
    assert "Weighed against time 4x256 is best" in said
    assert "has 47.6 times less error" in said
    biased = dataclasses.replace(quick, variance=sure(0.1), squared_bias=sure(2.0))
    assert "Weighed against time" not in text(geometries(slow, biased))


def test_estimates_of_zero_and_without_a_value_make_sentences() -> None:
    """With few chains a variance can come out as 0: ratios to it are then unknown, and so are effective samples."""
    said = text(
        geometries(
            row(64, 16, 0.0, error_to_best=UNKNOWN, current=True, effective_samples=UNKNOWN),
            row(4, 256, 2.1, error_to_best=UNKNOWN, effective_samples=Estimate(100.0, 50.0, 200.0)),
        )
    )
    assert "4x256 cannot be told from it (at least 0.0 times)" in said
    assert "samples of 4x256 are worth 100 (50 to 200) independent ones; those of 64x16 more than can be told" in said


@pytest.mark.parametrize("current", [False, True])
def test_one_geometry_alone_is_not_compared(current: bool) -> None:
    said = text(geometries(row(4, 256, 1.0, current=current)))
    assert "error" not in said
    assert "500 samples (400 to 600)" in said


def test_episodes_that_were_left_out_are_counted() -> None:
    """12 ended and 4 did not, within 200 steps."""
    example = EXAMPLES["aggregations"]
    assert isinstance(example, Aggregations)
    assert "left out" not in text(example)
    some = dataclasses.replace(example, episodes=12, unfinished=4)
    assert text(some).startswith("4 of 16 episodes did not end within 200 steps and are left out")


def test_intervals_of_means_over_batches_hold() -> None:
    """Of sixteen batches, 93 % of the time or more, for numbers from normal ones to squares of such, which are as
    skewed as a squared length in one dimension; Student's would do so 89 % of the time. At 4,000 trials a share has a
    standard error of .004. Intervals end where the quantity does."""
    rng = np.random.default_rng(0)
    assert few_batches(32) == 16
    for draw, mean in (
        (lambda n: rng.normal(size=n), 0.0),
        (lambda n: rng.chisquare(8, size=n), 8.0),
        (lambda n: rng.exponential(size=n), 1.0),
        (lambda n: rng.chisquare(1, size=n), 1.0),
        (lambda n: 1 - rng.exponential(0.1, size=n), 0.9),  # cosines near 1
    ):
        found = [mean_over_batches(draw(few_batches(32))) for _ in range(4000)]
        assert np.mean([each.low <= mean <= each.high for each in found]) >= 0.93
    bounded = mean_over_batches([0.9, 1.0, 1.0, 0.4], 0.0, 1.0)
    assert 0 <= bounded.low < 0.375  # Student's
    assert bounded.high == 1


def test_what_cannot_be_negative_has_no_negative_end() -> None:
    """Resamples around a truth of 0: half of them are below it.

    A covariance may be negative, and keeps its sign; so does the signal, which is averaged over policies.
    """
    noise = np.random.default_rng(0).normal(size=1001)
    measured = Measured(8, 4, 0.95, *(noise - 0.5 for _ in range(8)))
    fields = point_fields(measured)
    for name in ("variance", "squared_bias", "individual", "effective_samples", "critical_batch", "error"):
        assert fields[name].value >= 0
        assert fields[name].low == 0 < fields[name].high
    assert fields["across"].low < 0
    assert fields["signal"].value == noise[0] - 0.5
    assert fields["signal"].low < 0
    assert ratio_of(noise - 0.5, np.abs(noise)).low == 0


def test_cells_of_a_table_and_ratios_in_words() -> None:
    assert cell(Estimate(-0.0004, -0.0, 12345.678)) == "0.00 [0.00, 12,345.68]"
    assert cell(Estimate(3.0, 1.0, math.inf), 0.1, 0) == "30 [10, inf]"
    assert cell(Estimate(3.0)) == "3.00"
    assert cell(Estimate(math.nan)) == "-"
    assert times(Estimate(2.0, 0.0, math.inf)) == "2.0 times (0.0 to inf)"
