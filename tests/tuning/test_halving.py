"""Who goes on: rungs, sizes and steps by hand, and the comparison with earlier groups."""

from tiny import tiny

from isobatch.tuning.halving import Halving

HALVING = Halving()


def test_rungs_are_whole_lines_of_metrics() -> None:
    config = tiny(total_timesteps=32 * 90)
    assert HALVING.rungs(config, 1) == [10, 30, 90]
    assert HALVING.rungs(config, 4) == [8, 32, 90]  # 2.5 lines of 4 iterations are rounded to 2, 7.5 to 8
    assert Halving(()).rungs(config, 1) == [90]
    assert HALVING.rungs(tiny(total_timesteps=32 * 2), 1) == [1, 2]  # too short for two comparisons
    assert HALVING.rungs(tiny(total_timesteps=32), 1) == [1]


def test_sizes_are_thirds_but_never_fewer_than_a_program_trains() -> None:
    assert HALVING.sizes(24, 1, 3) == [24, 8, 3]
    assert HALVING.sizes(24, 6, 3) == [24, 8, 6]
    assert HALVING.sizes(4, 6, 3) == [4, 4, 4]


def test_steps_of_a_group_by_hand() -> None:
    """24 trials x 10 iterations, 8 x 20, 6 x 60: 760 iterations of 32 steps, on 2 seeds."""
    assert HALVING.cost(tiny(total_timesteps=32 * 90), 1, 24, 6, 2) == 760 * 32 * 2


def test_the_best_go_on_if_one_of_them_is_in_the_best_third_of_all() -> None:
    scores = [1.0, 5.0, 3.0, 4.0, 2.0, 0.0]
    assert HALVING.survivors(scores, [], 2) == [1, 3]
    assert HALVING.survivors(scores, [5.0, 5.0, 5.0], 2) == [1, 3]  # of 9 the best three have 5.0
    assert HALVING.survivors(scores, [6.0] * 3, 2) == []  # of 9 the best three have 6.0
    assert HALVING.survivors([float("-inf")] * 3, [1.0], 1) == []
