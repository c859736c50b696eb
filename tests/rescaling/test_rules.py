"""The rules of rescaling against numbers derived by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paper_settings import PAPER

from isobatch.errors import UsageError
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


def test_the_best_step_size_rises_and_falls_around_the_critical_batch() -> None:
    """Li et al. 2024, equation 2, up to its maximum: 1 / ((sqrt(B_c/B) + sqrt(B/B_c)) / 2) at B = B_c is 1, at
    B = 4 B_c and B_c/4 it is 2 / (2 + 1/2) = .8. Rising from B_c/4 by 16 ends where it began."""
    at = {b: rules.surge(1.0, 400, b, 400) for b in (100, 400, 1600)}
    assert at == pytest.approx({100: 0.8, 400: 1.0, 1600: 0.8})
    base = PAPER.replace(learning_rate=1e-3, aux_learning_rate=4e-3)  # minibatches of 8,192
    peak = rescale(base, factor=1 / 4, use=["surge"], critical_batch=4 * 8192).after.hypers
    assert (peak.learning_rate, peak.aux_learning_rate) == pytest.approx((1e-3 / 0.8, 4e-3 / 0.8))
    beyond = rescale(base, factor=1 / 16, use=["surge"], critical_batch=4 * 8192).after.hypers
    assert beyond.learning_rate == pytest.approx(1e-3)


def test_far_below_the_critical_batch_the_best_step_size_goes_by_the_square_root() -> None:
    near = rescale(PAPER, factor=16, use=["surge"], critical_batch=1e12).after.hypers
    assert near.learning_rate == pytest.approx(rescale(PAPER, factor=16).after.hypers.learning_rate, rel=1e-6)


def test_the_half_life_of_beta2_is_held_in_samples_and_beta1_stays() -> None:
    """Marek et al. 2025: .95 at batch 16 is .95^(1/16) = .9968 at batch 1, ".997" in their text; half is forgotten in
    ln .5 / ln .95 = 13.51 steps of 16, or 216.2 of 1."""
    assert round(rules.power(0.95, 16), 4) == 0.9968
    base = PAPER.replace(beta2=0.95)
    result = rescale(base, factor=16, use=["beta2-half-life"])
    assert (result.after.hypers.beta1, round(result.after.hypers.beta2, 4)) == (0.9, 0.9968)
    (change,) = [c for c in result.changes if c.rule == "beta2-half-life"]
    assert "13.51 -> 216.2 steps" in change.reason
    assert rules.half_life(0.0) == 0


def test_a_threshold_follows_the_length_of_the_gradient() -> None:
    """E|G_B|^2 = |G|^2 + S/B. With |G|^2 = 1 and S = 300, B_crit = 300: at B = 100 the norm is 2, at B = 37.5 it is 3,
    so a threshold of .5 becomes .75. All noise: sqrt(100/37.5). All signal: it stays."""
    assert rules.noise_threshold(0.5, 100, 37.5, 300) == pytest.approx(0.75)
    assert rules.noise_threshold(0.5, 100, 25, None) == pytest.approx(1.0)
    assert rules.noise_threshold(0.5, 100, 25, 1e-9) == pytest.approx(0.5)
    base = PAPER.replace(max_grad_norm=0.5)
    assert rescale(base, factor=4, use=["clip-noise"]).after.hypers.max_grad_norm == pytest.approx(1.0)
    known = rescale(base, factor=4, use=["clip-noise"], critical_batch=8192).after.hypers.max_grad_norm
    assert known == pytest.approx(0.5 * math.sqrt(5 / 2))
    assert math.isinf(rescale(PAPER, factor=4, use=["clip-noise"]).after.hypers.max_grad_norm)


def test_a_rule_that_goes_by_the_critical_batch_is_refused_without_it() -> None:
    with pytest.raises(UsageError, match=r"rule surge goes by the critical batch size.*pass critical_batch"):
        rescale(PAPER, factor=4, use=["surge"])


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
