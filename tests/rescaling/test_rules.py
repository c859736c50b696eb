"""The rules of rescaling against numbers derived by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paper_settings import PAPER

from isobatch.rescaling import rescale, rules
from isobatch.settings.geometry import center_of_mass, span

# c, envs, lr, beta_prox, advantage decay, N_pi, beta1, beta2, optimization batch, iteration batch
BATCH_SIZES = [
    (1, 256, 5e-4, 0.888889, 0, 32, 0.9, 0.999, 8192, 65536),
    (4, 64, 2.5e-4, 0.969697, 0.6, 128, 0.974004, 0.999750, 2048, 16384),
    (16, 16, 1.25e-4, 0.992248, 0.882353, 512, 0.993437, 0.999937, 512, 4096),
    (64, 4, 6.25e-5, 0.998051, 0.969231, 2048, 0.998355, 0.999984, 128, 1024),
    (256, 1, 3.125e-5, 0.999512, 0.992218, 8192, 0.999589, 0.999996, 32, 256),
]


@pytest.mark.parametrize("row", BATCH_SIZES)
def test_the_papers_batch_sizes_to_six_digits(row: tuple) -> None:
    c, envs, rate, beta_prox, decay, phase, beta1, beta2, optimization, iteration = row
    result = rescale(PAPER, num_envs=envs, use=["betas"], critical_batch=1e6)
    after, h = result.after, result.after.hypers
    assert result.factor == c
    assert (after.num_envs, after.num_steps, after.num_minibatches) == (envs, 256, 8)
    assert h.learning_rate == h.aux_learning_rate == pytest.approx(rate, rel=1e-12)
    assert [round(x, 6) for x in (h.beta_prox, h.adv_norm_decay, h.beta1, h.beta2)] == [beta_prox, decay, beta1, beta2]
    assert after.policy_iterations_per_phase == phase
    assert (after.geometry.optimization_batch, after.geometry.iteration_batch) == (optimization, iteration)
    assert result.warnings == ()


def test_published_alternatives_by_hand() -> None:
    """At c = 4: Busbridge (8/9)^(1/4) = .97098; Malladi, kappa = 1/4: 1 - .1/4 = .975, 1 - .001/4, eps x 2, lr / 2."""
    busbridge = rescale(PAPER, factor=4, use=["busbridge"]).after.hypers
    assert round(busbridge.beta_prox, 5) == 0.97098
    malladi = rescale(PAPER, factor=4, use=["malladi"]).after.hypers
    assert malladi.beta1 == pytest.approx(0.975)
    assert malladi.beta2 == pytest.approx(0.99975)
    assert malladi.optimizer_eps == pytest.approx(2 * PAPER.hypers.optimizer_eps)
    assert malladi.learning_rate == pytest.approx(2.5e-4)
    assert rescale(PAPER, factor=4, use=["linear-adam"]).after.hypers.learning_rate == pytest.approx(1.25e-4)
    assert rescale(PAPER.replace(optimizer="sgd"), factor=4).after.hypers.learning_rate == pytest.approx(1.25e-4)
    assert rescale(PAPER.replace(optimizer="rmsprop"), factor=4).after.hypers.learning_rate == pytest.approx(2.5e-4)


def test_iteration_batch_only_holds_minibatch_size_learning_rate_and_proximal_policy() -> None:
    """A quarter of the iteration batch in a quarter of the minibatches; the advantage span still goes by iterations."""
    after = rescale(PAPER, num_envs=64, use=["iteration-batch-only"]).after
    assert (after.num_minibatches, after.geometry.optimization_batch) == (2, 8192)
    assert after.hypers.learning_rate == PAPER.hypers.learning_rate
    assert after.hypers.beta_prox == PAPER.hypers.beta_prox
    assert after.hypers.adv_norm_decay == pytest.approx(0.6)
    assert after.policy_iterations_per_phase == 128


@given(st.floats(1e-3, 0.9999), st.floats(1e-3, 1e3))
def test_formulas_do_what_their_names_say(beta: float, c: float) -> None:
    assert center_of_mass(rules.center_of_mass_times(beta, c)) == pytest.approx(c * center_of_mass(beta), rel=1e-6)
    longer = c * span(beta)
    assert span(rules.span_times(beta, c)) == pytest.approx(max(1.0, longer), rel=1e-6)


@given(st.floats(1e-3, 0.9999), st.floats(0.1, 1e3))
def test_power_forgets_equally_much_per_sample(beta: float, c: float) -> None:
    assert c * math.log(rules.power(beta, c)) == pytest.approx(math.log(beta), rel=1e-6)
