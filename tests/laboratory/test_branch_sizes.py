"""Into which sizes a run branches: by rule, with the same samples, and what is left out."""

import pytest
from tiny import tiny

from isobatch.laboratory.branch_sizes import ITERATIONS, branch_plan, branch_size, times_the_batch
from isobatch.laboratory.options import LabOptions
from isobatch.laboratory.subject import NotMeasurableError
from isobatch.rescaling import rescale
from isobatch.settings.config import Config
from isobatch.settings.presets import preset

CARTPOLE = preset("ppo", "CartPole-v1")  # 8 x 128, 488 iterations


def batches(config: Config, iteration: int = 1, **options: object) -> list[int]:
    return [size.batch for size in branch_plan(config, iteration, LabOptions(**options)).sizes]  # type: ignore[arg-type]


def test_the_sizes_of_a_run() -> None:
    """Two iterations of 64 times the batch are 131,072 steps, which is more than the quarter of the run, 124,928."""
    plan = branch_plan(CARTPOLE, 0, LabOptions())
    assert [size.factor for size in plan.sizes] == [0.25, 1, 4, 16, 64]
    assert plan.samples == 131_072
    assert all(plan.samples % size.batch == 0 for size in plan.sizes)
    assert plan.left_out == ()
    for size in plan.sizes:
        by_rule = rescale(CARTPOLE, factor=1 / size.factor).after if size.factor != 1 else CARTPOLE
        assert size.config.hypers == by_rule.hypers
        assert size.config.num_iterations == ITERATIONS
        assert size.before == 1  # one iteration has sixteen gradient steps


def test_a_schedule_stops_where_it_is() -> None:
    """CartPole's falls linearly to 0: after half of the run every branch has half of its rate."""
    plan = branch_plan(CARTPOLE, 244, LabOptions())
    assert plan.sizes[1].config.lr_schedule == "constant"
    assert plan.sizes[1].config.hypers.learning_rate == pytest.approx(CARTPOLE.hypers.learning_rate / 2)
    falling = branch_plan(CARTPOLE.replace(clip_schedule="linear"), 244, LabOptions()).sizes[1].config
    assert (falling.clip_schedule, falling.hypers.clip_eps) == ("constant", pytest.approx(0.1))
    with pytest.raises(NotMeasurableError, match=r"0 after 488 iterations \(lr_schedule=linear\).*earlier checkpoint"):
        branch_plan(CARTPOLE, 488, LabOptions())


def test_what_does_not_fit_is_left_out() -> None:
    short = CARTPOLE.replace(total_timesteps=100_000)
    plan = branch_plan(short, 1, LabOptions())
    assert [size.factor for size in plan.sizes] == [0.25, 1, 4, 16]
    assert (
        "64 times the batch: left out. 2 iterations of each size would be 131,072 samples, more than half"
        in (plan.left_out[0])
    )
    assert batches(short, branch_samples=131_072) == [256, 1024, 4096, 16_384, 65_536]
    assert batches(short, branch_samples=5000) == [256, 1024]  # of which 5,000 hold two iterations
    assert branch_plan(short, 1, LabOptions(branch_samples=5000)).samples == 4096
    odd = CARTPOLE.replace(num_envs=6, num_minibatches=4)
    assert [round(6 * size.factor) for size in branch_plan(odd, 1, LabOptions()).sizes][:2] == [1, 6]


def test_a_batch_that_cannot_shrink() -> None:
    one = CARTPOLE.replace(num_envs=1)
    plan = branch_plan(one, 1, LabOptions())
    assert plan.sizes[0].factor == 1
    assert plan.left_out == (
        "1/4 of the batch: left out. num_envs=1 cannot shrink further: branch from a run with more environments.",
    )
    with pytest.raises(NotMeasurableError, match=r"fewer than two batch sizes.*num_envs=1.*cannot shrink further"):
        branch_plan(one, 1, LabOptions(branch_factors=(0.25, 1.0)))
    with pytest.raises(NotMeasurableError, match=r"does not evenly divide|does not work"):
        branch_plan(tiny(num_steps=3), 1, LabOptions(branch_factors=(0.25, 1.0)))  # one environment: 3 in 2 minibatches


def test_phases_stale_data_and_whole_episodes() -> None:
    """A phase is as many samples at every size that allows it, and a branch is whole phases; what fills up before it
    begins: the queue of stale data, a phase, and gradients for the optimizer's moments."""
    phases = tiny("ppg", policy_iterations_per_phase=4, total_timesteps=32 * 64)
    plan = branch_plan(phases, 1, LabOptions(branch_factors=(0.5, 1.0, 2.0)))
    assert [size.config.policy_iterations_per_phase for size in plan.sizes] == [8, 4, 2]
    assert plan.samples == 512
    assert [size.before % size.config.policy_iterations_per_phase for size in plan.sizes] == [0, 0, 0]
    stale = branch_size(tiny(staleness=3), 2.0)
    assert stale.before == 3 + 4  # four gradient steps an iteration
    whole = branch_size(tiny("reinforce"), 2.0)
    assert whole.before == 16  # one gradient step an iteration


def test_actors_are_refused() -> None:
    config = tiny(env="gymnasium/CartPole-v1", actors=2, max_lag=32)
    with pytest.raises(NotMeasurableError, match="actors=2 with max_lag=32"):
        branch_plan(config, 1, LabOptions())


def test_words() -> None:
    assert [times_the_batch(f) for f in (0.25, 0.3, 1.0, 16.0)] == [
        "1/4 of the batch", "0.3 of the batch", "1 times the batch", "16 times the batch",
    ]  # fmt: skip
