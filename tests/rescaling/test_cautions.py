"""Sentences about where the theory of rescaling stops, and none without a cause."""

from __future__ import annotations

from typing import Any

import pytest
from paper_settings import PAPER_WITHOUT_PHASES

from isobatch.errors import UsageError
from isobatch.rescaling import SAMPLES_USED, Rescaled, rescale
from isobatch.settings.presets import preset


def warned(result: Rescaled, *words: str) -> bool:
    return any(all(word in w for word in words) for w in result.warnings)


@pytest.mark.parametrize(
    ("changes", "target", "words"),
    [
        (dict(update_epochs=3), dict(factor=4), ["update_epochs=3", "one policy epoch"]),
        (dict(), dict(factor=4, critical_batch=8192), ["8,192", "near", "critical batch size"]),
        (
            dict(),
            dict(factor=4, critical_batch=5000),
            ["base's own optimization batch of 8,192 is above", "5000", "costs nothing", "0.53 times", "upwards"],
        ),
        (dict(), dict(factor=0.5, critical_batch=5000), ["16,384 is above", "and so is the base", "1.62 times"]),
        (dict(), dict(factor=0.5, critical_batch=10_000), ["16,384 is above the critical batch size of 10000:"]),
        (dict(), dict(factor=0.5), ["critical_batch", "not given"]),
        (dict(), dict(factor=4), ["8,192 -> 2,048", "base must itself be well under", "not given"]),
        # The LunarLander settings of rl-zoo3, a million steps: 61 iterations, and three with 256 environments.
        (
            dict(num_envs=16, num_steps=1024, total_timesteps=10**6),
            dict(num_envs=256),
            ["iterations 61 -> 3", "1,000,000 steps", "keep=iteration-batch"],
        ),
        # 110 iterations, and 51 of 34 x 1,024 steps, of which 5 only collect.
        (
            dict(num_envs=16, num_steps=1024, total_timesteps=110 * 16 * 1024, staleness=5),
            dict(num_envs=34),
            ["iterations with an update (staleness=5) 105 -> 46"],
        ),
        (dict(proximal_policy="behavior"), dict(factor=4), ["65,536", "16,384", "beta_prox=0.933333"]),
        (dict(advantage_norm="minibatch"), dict(factor=4), ["2,048", "8,192", "advantage_norm=iteration"]),
        (dict(gamma=0.9, gae_lambda=0.5), dict(num_steps=64), ["256 -> 64", "1.82 steps", "gae_lambda"]),
        (dict(), dict(factor=1 / 16, use=["malladi"]), ["malladi", "beta1 breaks above 10", "16-fold"]),
        (dict(), dict(factor=0.25), ["adam-sqrt", "0.001 in place of 0.0005", "Tune it again"]),
        (dict(), dict(factor=0.25), ["advantage decay 0", "65,536", "262,144"]),
        (dict(staleness=4), dict(factor=4), ["staleness=4", "65,536", "262,144", "staleness=16"]),
        (dict(max_grad_norm=0.5), dict(factor=4), ["max_grad_norm=0.5", "2-fold", "clip-noise makes it 1;"]),
        (dict(max_grad_norm=0.5), dict(factor=4, critical_batch=8192), ["clip-noise makes it 0.7906;"]),
        (dict(max_grad_norm=0.5), dict(factor=4, use=["clip-noise"]), ["0.5 -> 1 counts", "as noise"]),
        (dict(), dict(factor=0.5, use=["surge"], critical_batch=1e4), ["16,384 is beyond", "10000", "falls again"]),
        (dict(), dict(factor=1 / 256, use=["beta2-half-life"]), ["beta2=0.774", "beta1=0.9", "use betas"]),
    ],
)
def test_warnings_where_the_theory_stops(changes: dict, target: dict[str, Any], words: list[str]) -> None:
    assert warned(rescale(PAPER_WITHOUT_PHASES.replace(**changes), **target), *words)


def test_no_warning_without_a_cause() -> None:
    assert rescale(PAPER_WITHOUT_PHASES, factor=4, critical_batch=1e6).warnings == ()
    a2c = PAPER_WITHOUT_PHASES.replace(objective="policy-gradient", proximal_policy="behavior", num_minibatches=1)
    clipped = PAPER_WITHOUT_PHASES.replace(max_grad_norm=0.5)
    newer = ["surge", "clip-noise", "beta2-half-life"]
    assert rescale(clipped, factor=4, use=newer, critical_batch=1e6).warnings == ()
    # Without a proximal policy there is no age to change.
    assert rescale(a2c, factor=4, critical_batch=1e6).warnings == ()


def test_sample_cost_near_the_critical_batch_by_hand() -> None:
    """B = 8192 -> 2048 at B_crit = 5000: (1 + .4096)/(1 + 1.6384) = .534 (McCandlish 2018)."""
    assert warned(rescale(PAPER_WITHOUT_PHASES, factor=4, critical_batch=5000), "0.53 times")


def test_a_batch_that_stays_is_not_cautioned_about() -> None:
    kept = rescale(PAPER_WITHOUT_PHASES, num_envs=64, keep="minibatch-size", critical_batch=5000)
    assert not warned(kept, "critical batch size")


WHOLE = preset("reinforce")  # 2 x 2,000 steps, 1,501 of each used where episodes last up to 500


def used(result: Rescaled) -> tuple[object, object]:
    return next((c.before, c.after) for c in result.changes if c.name == SAMPLES_USED)


@pytest.mark.parametrize(
    ("target", "samples", "words"),
    [
        # 8 x 500 uses 1 step of each row, 16 x 250 nothing that is sure.
        (dict(num_envs=8, keep="iteration-batch"), (3002, 8), ["8 of 4,000", "75% before", "keep num_steps."]),
        (dict(num_envs=16, keep="iteration-batch"), (3002, 0), ["3,002 of 4,000 -> 0 of 4,000", "Training refuses"]),
        (dict(num_steps=700), (3002, 402), ["402 of 1,400", "29%", "keep num_steps and change num_envs"]),
        (dict(num_steps=1000), (3002, 1002), ["divided by c = 2, what is used by 3.", "50% at the least, 75% before"]),
        (dict(num_steps=1900), (3002, 2802), []),  # 74 %: by 1.05 and by 1.07
        (dict(num_envs=1, keep="iteration-batch"), (3002, 3501), ["c = 1, what is used by 0.857", "keep num_steps."]),
        (dict(num_envs=8, keep="minibatch-count"), (3002, 12_008), []),
    ],
)
def test_samples_used_by_whole_episodes_by_hand(target: dict, samples: tuple[int, int], words: list[str]) -> None:
    result = rescale(WHOLE, **target, time_limit=500)
    assert used(result) == samples
    assert warned(result, SAMPLES_USED) == bool(words)
    assert warned(result, *words)


def test_rows_that_become_long_enough_are_not_told_to_stay_short() -> None:
    """8 x 501 of 8 x 1,000 steps, then 8 x 1,501 of 8 x 2,000: twice as many collected, three times as many used."""
    short = WHOLE.replace(num_envs=8, num_steps=1000)
    result = rescale(short, num_steps=2000, time_limit=500)
    assert warned(result, "c = 0.5, what is used by 0.334", "Rows of 4 time limits or more", "learning rate again")
    assert not warned(result, "samples used", "Instead")


def test_rows_that_were_too_short_before_stay_so() -> None:
    """Nothing is used before and after, which training refuses: four time limits are named."""
    short = WHOLE.replace(num_envs=8, num_steps=256)
    assert warned(rescale(short, num_envs=16, time_limit=500), "0 of 2,048 -> 0 of 4,096", "num_steps of 2,000, 4 time")


def test_the_critical_batch_is_compared_with_what_is_surely_used() -> None:
    """Of 4,000 and of 2,000 samples 3,002 and 1,501: (1 + 1501/6500)/(1 + 3002/6500) = .84, and 3,002 is below half of
    6,500; 4,000 would be above."""
    assert not warned(rescale(WHOLE, num_envs=1, time_limit=500, critical_batch=6500), "critical batch size of")
    near = rescale(WHOLE, num_envs=1, time_limit=500, critical_batch=6000)
    assert warned(near, "optimization batch of at least 3,002 is near", "0.83 times")
    assert warned(rescale(WHOLE, num_envs=1, time_limit=500), "batch at least 3,002 -> at least 1,501")
    assert warned(rescale(WHOLE, num_envs=1, critical_batch=6500), "batch of up to 4,000 is near")


def test_without_a_time_limit_what_is_collected_is_said_to_be_so() -> None:
    result = rescale(WHOLE, num_envs=8)
    assert warned(result, "are those that are collected")
    assert SAMPLES_USED not in [change.name for change in result.changes]
    assert not warned(rescale(PAPER_WITHOUT_PHASES, factor=4, time_limit=500), "samples used")
    with pytest.raises(UsageError, match="time_limit=0 must be at least 1"):
        rescale(WHOLE, num_envs=8, time_limit=0)


def test_whole_episodes_are_not_told_to_keep_the_iteration_batch() -> None:
    warnings = " ".join(rescale(WHOLE, num_envs=16, time_limit=500).warnings)
    assert "iterations 250 -> 31" in warnings
    assert "adam-sqrt" in warnings
    assert "keep=iteration-batch" not in warnings
    assert "keep N x T" not in warnings
