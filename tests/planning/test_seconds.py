"""Seconds by straight lines and the law of devices, by hand."""

import pytest

from isobatch.planning.devices import Link, measured_link
from isobatch.planning.moves import Shape
from isobatch.planning.seconds import Line, Seconds
from isobatch.planning.timing import Timed


def timed(num_envs: int, num_steps: int, minibatches: int, seconds: float) -> Timed:
    return Timed(num_envs, num_steps, minibatches, 2, seconds, 0.02, 1.0)


def seconds_by_hand() -> Seconds:
    """c(N) = .001 + .0001 N, and g(B) = .01 + .0001 B: at N = 10, T = 10, M = 1 an iteration of two epochs takes
    10 x .002 + 2 x .02 = .06 seconds; with M = 2 10 x .002 + 4 x .015 = .08."""
    return Seconds.of({10: 0.002, 20: 0.003}, [timed(10, 10, 1, 0.06), timed(10, 10, 2, 0.08)])


def test_lines_go_through_what_was_measured_and_on() -> None:
    line = Line.through({20: 3.0, 10: 2.0})
    assert [line.at(size) for size in (10, 15, 20, 30)] == pytest.approx([2.0, 2.5, 3.0, 4.0])
    assert line.at(0) == pytest.approx(1.0)
    assert line.at(-1000) == pytest.approx(1.0)  # half of the smallest at least
    assert [line.origin(size) for size in (10, 12, 21)] == ["measured", "interpolated", "extrapolated"]


def test_a_smaller_size_never_takes_longer() -> None:
    assert Line.through({1: 5.0, 2: 1.0, 4: 2.0}).seconds == (1.0, 1.0, 2.0)


def test_learning_is_what_collecting_leaves() -> None:
    seconds = seconds_by_hand()
    assert seconds.learning.sizes == (50, 100)
    assert seconds.learning.seconds == pytest.approx((0.015, 0.02))


def test_collecting_takes_no_longer_than_iterations() -> None:
    """Ten steps in an iteration of .06 seconds: at most .006 each, though .009 were found."""
    seconds = Seconds.of({10: 0.009, 20: 0.009}, [timed(10, 10, 1, 0.06)])
    assert seconds.collecting.seconds == pytest.approx((0.006, 0.009))


def test_an_iteration_is_the_sum_of_its_parts() -> None:
    """20 environments x 5 steps in 2 minibatches of 50: 5 x .003 + 4 x .015."""
    seconds = seconds_by_hand()
    assert sum(seconds.parts(Shape(20, 5, 2))) == pytest.approx(0.075)
    assert seconds.origin(Shape(20, 5, 2)) == "interpolated"
    assert seconds.origin(Shape(40, 5, 2)) == "extrapolated"
    assert sum(seconds.parts(Shape(10, 10, 2))) == pytest.approx(0.08)
    assert seconds.origin(Shape(10, 10, 2)) == "measured"


def test_devices_do_their_share_and_add_up() -> None:
    """20 x 10 in 2 minibatches on two devices: each has 10 environments and 50 samples: 10 x .002 + 4 x (.015 + .1)."""
    assert sum(seconds_by_hand().parts(Shape(20, 10, 2, devices=2), sum_seconds=0.1)) == pytest.approx(0.02 + 4 * 0.115)


def test_sums_over_devices() -> None:
    """8 devices: 2 x 3 messages of 1 ms, and 2 x 7/8 of 4,000 bytes at 1 MB/s = 7 ms."""
    link = Link("by hand", 1e-3, 1e6)
    assert link.sum_seconds(1, 1000) == 0
    assert link.sum_seconds(8, 1000) == pytest.approx(13e-3)


def test_a_link_from_two_sums() -> None:
    """2 ms for one number, 6 for a thousand: a latency of 1 ms, and 4,000 bytes in 4 ms."""
    link = measured_link("here", 2e-3, 6e-3, 1000)
    assert (link.latency, link.bandwidth) == pytest.approx((1e-3, 1e6))
    assert link.sum_seconds(2, 1000) == pytest.approx(6e-3)
