"""Recommendations from made-up measurements."""

import numpy as np
import pytest

from isobatch.errors import UsageError
from isobatch.planning.devices import Link
from isobatch.planning.forecast import Forecaster, choose, doublings, grid
from isobatch.planning.moves import Shape, moved, shape_of, whole_run
from isobatch.planning.samples import Need, Stage
from isobatch.planning.seconds import Seconds
from isobatch.planning.timing import Timed
from isobatch.settings.config import Config
from isobatch.settings.presets import preset
from isobatch.statistics.bootstrap import Estimate

OWN = Shape(8, 128, 4)
FREE = Link("without cost", 0.0, 1e12)
SAMPLES = 10**9  # so many that delays of thousands do not count


def forecaster(critical: float, overhead: float = 0.0, sample: float = 1e-5, step: float = 0.0) -> Forecaster:
    """A gradient step of B samples takes overhead + sample x B seconds, a step of any number of environments `step`."""
    batches = {64: 16, 256: 4, 1024: 1}
    collecting = {2.0: step, 8.0: step, 128.0: step}
    whole = [Timed(8, 128, m, 1, m * (overhead + sample * b) + 128 * step, 0.02, 1) for b, m in batches.items()]
    whole.append(Timed(32, 128, 1, 1, overhead + sample * 4096 + 128 * step, 0.02, 1))
    need = Need((Stage(0, SAMPLES, Estimate(critical, critical / 2, 2 * critical), "by hand"),), 256, OWN.delay)
    return Forecaster(need, Seconds.of(collecting, whole), FREE, 1000, 0.0)


def best(known: Forecaster, shapes: list[Shape] | None = None) -> Shape:
    inside = [each for s in shapes or grid(OWN) if (each := known.quick(s)).origin != "extrapolated"]
    found = choose(inside, OWN, lambda shape: True, 0.05)
    assert found is not None
    return found.shape


def test_time_is_samples_times_seconds_of_one() -> None:
    """10^9 samples at B = 256; 4 gradient steps of 2.56 ms for 1,024 samples: 10,000 s; at B = 1,024 with B_crit = 256
    S_min = .5 10^9, so 2.5 10^9 samples and 25,000 s."""
    known = forecaster(critical=256)
    assert known.at(OWN).seconds.value == pytest.approx(1e4)
    assert known.at(Shape(8, 128, 1)).seconds.value == pytest.approx(2.5e4, rel=1e-4)
    assert known.at(Shape(8, 128, 1)).samples == pytest.approx(2.5e9, rel=1e-4)


def test_without_overhead_the_smallest_batch_wins_and_with_it_a_larger_one() -> None:
    assert best(forecaster(critical=256)).optimization_batch == 64
    assert best(forecaster(critical=100_000, overhead=0.1)).optimization_batch == 4096


def test_of_equals_the_run_itself_is_kept() -> None:
    known = forecaster(critical=1e6)
    assert best(known) == OWN


def test_fewer_longer_steps_of_environments_cost_time() -> None:
    """Where a step takes as long for 128 environments as for 2, many environments for few steps are best."""
    shape = best(forecaster(critical=1e6, step=1e-3), [OWN, Shape(32, 32, 4), Shape(128, 8, 4)])
    assert shape == Shape(128, 8, 4)


def test_overlap_is_the_longer_of_the_two() -> None:
    known = forecaster(critical=1e6, step=8e-5)  # 10.24 ms of collecting and as much learning
    together = known.at(Shape(8, 128, 4, lag=1)).seconds.value
    assert known.at(OWN).seconds.value == pytest.approx(2 * together, rel=1e-4)


def test_draws_belong_together_and_have_an_interval() -> None:
    known = forecaster(critical=256)
    large, small = known.at(Shape(8, 128, 1)), known.at(OWN)
    assert large.seconds.low < 2.5e4 < large.seconds.high
    assert known.chance(OWN, [large.shape], within=0.0) > 0.9
    assert known.drawn(small.shape)[0] == pytest.approx(1e4)
    assert np.array_equal(known.drawn(OWN), known.drawn(OWN))


def test_eight_devices_bring_less_than_eight() -> None:
    """At D = 8 a gradient step of B = 2,048 costs each device one of 256, and samples grow with B."""
    known = forecaster(critical=1024)
    shape = Shape(64, 128, 4, devices=8)
    speedup = known.at(OWN).seconds.value / known.at(shape).seconds.value
    assert speedup == pytest.approx(8 * (1 + 256 / 1024) / (1 + 2048 / 1024), rel=1e-4)


def test_doublings_are_whole() -> None:
    assert doublings(12, -3, 1) == [3, 6, 12, 24]
    assert OWN in grid(OWN)
    assert all(shape.iteration_batch % shape.num_minibatches == 0 for shape in grid(OWN))


@pytest.mark.parametrize(("shape", "rate"), [(OWN, 1.0), (Shape(8, 128, 16), 0.5), (Shape(32, 128, 16), 1.0)])
def test_settings_move_by_rule_with_the_optimization_batch(shape: Shape, rate: float) -> None:
    """Adam's step size goes by the root of the optimization batch, however that comes about."""
    config = preset("ppo", "CartPole-v1")
    after = moved(config, shape, 100_000)
    assert shape_of(after) == shape
    assert after.hypers.learning_rate == pytest.approx(rate * config.hypers.learning_rate)
    assert after.num_iterations == np.ceil(100_000 / shape.iteration_batch)


def test_a_move_that_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="num_minibatches=3 does not divide 8 x 128 samples"):
        moved(preset("ppo", "CartPole-v1"), Shape(8, 128, 3), 1000)


def test_runs_are_whole_phases() -> None:
    config: Config = preset("ppg", "CartPole-v1", total_timesteps=1024 * 16)
    assert whole_run(config, 1024 * 9) == 1024 * 16


def test_actors_are_kept_or_added_with_the_lag() -> None:
    config = preset("ppo", "gymnasium/CartPole-v1", actors=4)
    after = moved(config, Shape(32, 128, 4, lag=1), 100_000)
    assert (after.actors, after.lag_iterations) == (4, 1)
    without = moved(config, Shape(32, 128, 4), 100_000)
    assert (without.actors, without.max_lag) == (0, 0)
    assert moved(without, Shape(8, 128, 4, lag=1), 100_000).actors == 2


def test_nothing_is_chosen_where_nothing_fits() -> None:
    known = forecaster(critical=256)
    assert choose([known.at(OWN)], OWN, lambda shape: False, 0.05) is None
