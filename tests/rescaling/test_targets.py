"""What may be asked of rescaling: targets that agree, those that are refused, and the nearest that work."""

from __future__ import annotations

import math
from typing import Any

import pytest
from paper_settings import PAPER, PAPER_WITHOUT_PHASES

from isobatch.errors import UsageError
from isobatch.rescaling import rescale


def test_targets_that_say_the_same_thing_agree() -> None:
    by_envs = rescale(PAPER, num_envs=16).after
    assert rescale(PAPER, factor=16).after == by_envs
    assert rescale(PAPER, optimization_batch=512).after == by_envs
    assert rescale(PAPER, devices=1, devices_before=16).after == by_envs
    assert rescale(PAPER, devices=4).after.num_envs == 1024


def test_num_steps_changes_t_alone_and_both_batches() -> None:
    after = rescale(PAPER, num_steps=64).after
    assert (after.num_envs, after.num_steps, after.num_minibatches) == (256, 64, 8)
    assert after.geometry.optimization_batch == 2048
    assert after.hypers.learning_rate == pytest.approx(2.5e-4)


def test_trading_environments_for_steps_changes_no_rule() -> None:
    result = rescale(PAPER, num_envs=64, num_steps=1024)
    assert result.factor == 1
    assert [c.name for c in result.changes] == ["num_envs", "num_steps"]
    assert any("gae_lambda" in w for w in result.warnings)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (dict(), ["no target", "num_envs", "factor"]),
        (dict(num_envs=0), ["num_envs=0", "positive whole number"]),
        (dict(num_envs=-4), ["num_envs=-4"]),
        (dict(num_envs=2.5), ["num_envs=2.5", "whole number"]),
        (dict(factor=0), ["factor=0", "positive"]),
        (dict(factor=math.nan), ["factor=nan"]),
        (dict(factor=math.inf), ["factor=inf"]),
        (dict(factor=5e-324), ["factor=5e-324 does not work", "above 9223372036854775807"]),
        (dict(devices=int(1.7e308)), ["devices=a number of 1024 bits does not work", "above 9223372036854775807"]),
        (dict(optimization_batch=int(1.7e308)), ["optimization_batch=a number", "above 9223372036854775807"]),
        (dict(factor=4, num_envs=16), ["num_envs=16 and factor=4", "one target"]),
        (dict(devices=2, optimization_batch=64), ["cannot go together"]),
        (dict(factor=3), ["factor=3", "85.3333", "factor=3.01176 (num_envs=85)", "factor=2.97674 (num_envs=86)"]),
        (dict(optimization_batch=100), ["optimization_batch=96", "optimization_batch=128"]),
        (dict(devices=3, devices_before=0), ["devices_before=0"]),
        (dict(factor=4, use=["adam"]), ["'adam'", "did you mean"]),
        (dict(factor=4, without=["warmup"]), ["'warmup'", "unknown"]),
        (dict(factor=4, without=["betas"]), ["betas", "not in use"]),
        (dict(factor=4, use=["malladi", "linear-adam"]), ["malladi", "linear-adam", "same field"]),
        (dict(factor=4, use=["sgd-linear"]), ["sgd-linear", "optimizer=adam"]),
        (dict(factor=16, use=["iteration-batch-only"]), ["8192", "factor=8"]),
        (dict(optimization_batch=64, use=["iteration-batch-only"]), ["holds constant"]),
        (dict(factor=4, critical_batch=-1), ["critical_batch=-1"]),
    ],
)
def test_bad_input_is_one_clear_sentence(arguments: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        rescale(PAPER, **arguments)
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert "\n" not in text


def test_nearest_sizes_really_work_when_minibatches_are_environment_rows() -> None:
    base = PAPER_WITHOUT_PHASES.replace(minibatch_scheme="envs", num_steps=10)
    with pytest.raises(UsageError, match="num_envs=8 and num_envs=16"):
        rescale(base, num_envs=12)
    for num_envs in (8, 16):
        assert rescale(base, num_envs=num_envs).after.num_envs == num_envs
