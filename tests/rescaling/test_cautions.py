"""Sentences about where the theory of rescaling stops, and none without a cause."""

from __future__ import annotations

from typing import Any

import pytest
from paper_settings import PAPER_WITHOUT_PHASES

from isobatch.rescaling import Rescaled, rescale


def warned(result: Rescaled, *words: str) -> bool:
    return any(all(word in w for word in words) for w in result.warnings)


@pytest.mark.parametrize(
    ("changes", "target", "words"),
    [
        (dict(update_epochs=3), dict(factor=4), ["update_epochs=3", "one policy epoch"]),
        (dict(), dict(factor=4, critical_batch=8192), ["8,192", "near", "critical batch size"]),
        (dict(), dict(factor=4, critical_batch=5000), ["above", "critical batch size", "0.53 times"]),
        (dict(), dict(factor=0.5), ["critical_batch", "not given"]),
        (dict(), dict(factor=4), ["8,192 -> 2,048", "base must itself be well under", "not given"]),
        # The LunarLander settings of rl-zoo3, a million steps: 61 iterations, and three with 256 environments.
        (
            dict(num_envs=16, num_steps=1024, total_timesteps=10**6),
            dict(num_envs=256),
            ["iterations 61 -> 3", "1,000,000 steps", "keep=iteration-batch"],
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
