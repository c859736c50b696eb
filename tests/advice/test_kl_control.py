"""What a controller of the KL divergence does, and how its target goes with the batch."""

from __future__ import annotations

import numpy as np
import pytest

from isobatch.advice.kl_control import KlControl, kl_sentences
from isobatch.rescaling import rescale
from isobatch.settings.config import Config

ROBOT = Config(num_envs=4096, num_steps=24, num_minibatches=4, update_epochs=5, total_timesteps=10**9).replace(
    learning_rate=1e-3
)
CONTROL = KlControl("desired_kl", 0.01, "adaptive")


def test_the_target_that_holds_the_movement_is_that_of_the_square_root_rule() -> None:
    """A Gaussian policy whose mean takes G noisy steps of size a: KL = |mean|^2 / 2, measured, not derived.

    At steps of a/sqrt(c) the divergence of an iteration is what `target_at` says, 1/c of the one before.
    """
    rng, steps, runs = np.random.default_rng(0), 20, 200_000

    def divergence(size: float) -> float:
        walk = size * rng.choice([-1.0, 1.0], (runs, steps)).sum(axis=1)
        return float((walk**2).mean() / 2)

    for c in (4.0, 0.25):
        measured = divergence(1e-2 / np.sqrt(c)) / divergence(1e-2)
        assert CONTROL.target_at(c) / CONTROL.target == pytest.approx(measured, rel=0.02)


def test_a_controller_is_described_with_its_numbers() -> None:
    """sqrt(4) = 2 is made up for by ln 2 / ln 1.5 = 1.7, so 2 changes."""
    after = rescale(ROBOT, num_envs=1024).after
    does, batch = kl_sentences(CONTROL, ROBOT, after)
    for part in ("0.0005 is only a start", "20 times an iteration", "above 0.02", "below 0.005", "2 such changes"):
        assert part in does
    for part in ("98,304 to 24,576", "4 times as often", "desired_kl=0.0025", "0.000625"):
        assert part in batch


def test_targets_that_the_clipping_would_not_let_through() -> None:
    """clip_eps^2 / 2 = 0.02: at 16,384 environments the target would be 0.04."""
    sentences = kl_sentences(CONTROL, ROBOT, rescale(ROBOT, factor=1 / 4).after)
    assert "1/4 as often" in sentences[1]
    assert "clip_eps^2 / 2 = 0.02" in sentences[2]


def test_epochs_that_end_early_and_batches_that_stay() -> None:
    stop = KlControl("target_kl", 0.02, "stop")
    after = rescale(ROBOT, num_envs=1024, keep="iteration-batch").after
    (sentence,) = kl_sentences(stop, ROBOT, after)
    assert "above 0.03" in sentence
    assert "fewer gradient steps than the 20" in sentence
