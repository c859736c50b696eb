"""Per-sample losses against the equations of the paper, section 2, and Schulman 2017."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from isobatch.learning import losses

pytestmark = pytest.mark.usefixtures("float64")

SIZE = 6  # of every batch here: one shape, one compilation
EXACT = dict(rtol=1e-9, atol=1e-9)


def floats(low: float, high: float) -> st.SearchStrategy[np.ndarray]:
    return arrays(np.float64, SIZE, elements=st.floats(low, high))


log_probs = functools.partial(floats, -6.0, 0.0)
advantages = functools.partial(floats, -5.0, 5.0)
epsilons = st.floats(0.01, 0.99)
clipped, importance_weighted = jax.jit(losses.clipped), jax.jit(losses.importance_weighted)
capped, loglinear = jax.jit(losses.capped_behavior), jax.jit(losses.loglinear)
squared_log_ratio = jax.jit(losses.squared_log_ratio)
value_loss, clipped_value_loss = jax.jit(losses.value_loss), jax.jit(losses.clipped_value_loss)
clip_gradient = jax.jit(jax.grad(lambda lp, prox, behav, a, eps: jnp.sum(losses.clipped(lp, prox, behav, a, eps))))


@given(log_probs(), log_probs(), log_probs(), advantages(), epsilons)
def test_decoupled_clip_agrees_with_the_oracle(pi, prox, behav, advantage, eps):
    expected = oracles.decoupled_clip(np.exp(pi), np.exp(prox), np.exp(behav), advantage, eps)
    np.testing.assert_allclose(clipped(pi, prox, behav, advantage, eps), expected, **EXACT)


@given(log_probs(), log_probs(), advantages(), epsilons)
def test_with_prox_equal_to_behav_it_is_ppo(pi, behav, advantage, eps):
    expected = oracles.ppo_clip(np.exp(pi), np.exp(behav), advantage, eps)
    np.testing.assert_allclose(clipped(pi, behav, behav, advantage, eps), expected, **EXACT)


@given(log_probs(), log_probs(), log_probs(), log_probs(), advantages())
def test_infinite_eps_drops_the_proximal_policy(pi, prox, other_prox, behav, advantage):
    unclipped = importance_weighted(pi, behav, advantage)
    for proximal in (prox, other_prox):
        np.testing.assert_allclose(clipped(pi, proximal, behav, advantage, math.inf), unclipped, **EXACT)
        np.testing.assert_allclose(
            clip_gradient(pi, proximal, behav, advantage, math.inf), -np.exp(pi - behav) * advantage, **EXACT
        )


def test_eps_of_one_still_clips_from_above_only():
    """At eps = 1 the range of r is [0, 2]: r = 3 with A = 1 counts as 2, r = 1/1000 as it is."""
    pi, prox = jnp.log(jnp.array([3.0, 0.001])), jnp.zeros(2)
    np.testing.assert_allclose(losses.clipped(pi, prox, prox, jnp.array([1.0, -1.0]), 1.0), [-2.0, 0.001], **EXACT)


def test_clip_by_hand():
    """eps = 0.2; prox/behav = 0.5/0.25 = 2 throughout.

    r = 0.6/0.5 = 1.2 exactly at the edge, A = 1:    min(1.2, 1.2) = 1.2 -> loss -2.4
    r = 0.8/0.5 = 1.6, A = 1:    min(1.6, 1.2) = 1.2                      -> loss -2.4, gradient 0
    r = 1.6, A = -1:             min(-1.6, -1.2) = -1.6                   -> loss 3.2, gradient 3.2
    r = 0.25/0.5 = 0.5, A = 1:   min(0.5, 0.8) = 0.5                      -> loss -1, gradient -1
    r = 0.5, A = -1:             min(-0.5, -0.8) = -0.8                   -> loss 1.6, gradient 0
    The gradient is that by log pi: -(prox/behav) r A where the unclipped term is the smaller one.
    """
    pi = np.log([0.6, 0.8, 0.8, 0.25, 0.25])
    prox, behav = np.log(np.full(5, 0.5)), np.log(np.full(5, 0.25))
    advantage = np.array([1.0, 1.0, -1.0, 1.0, -1.0])
    np.testing.assert_allclose(clipped(pi, prox, behav, advantage, 0.2), [-2.4, -2.4, 3.2, -1.0, 1.6], **EXACT)
    gradient = clip_gradient(pi, prox, behav, advantage, 0.2)
    np.testing.assert_allclose(gradient[1:], [0.0, 3.2, -1.0, 0.0], **EXACT)


@given(log_probs(), log_probs(), log_probs(), advantages(), epsilons)
def test_clip_gradient_is_the_derivative_of_the_oracle(pi, prox, behav, advantage, eps):
    log_ratio = pi - prox
    near_a_kink = np.minimum(abs(log_ratio - math.log1p(eps)), abs(log_ratio - math.log1p(-eps))) < 1e-3
    numerical = oracles.numerical_gradient(
        lambda x: float(np.sum(oracles.decoupled_clip(np.exp(x), np.exp(prox), np.exp(behav), advantage, eps))), pi
    )
    exact = np.asarray(clip_gradient(pi, prox, behav, advantage, eps))
    np.testing.assert_allclose(exact[~near_a_kink], numerical[~near_a_kink], rtol=1e-4, atol=1e-4)


def test_clip_keeps_its_gradient_where_pi_equals_prox():
    """The first step of PPO: r = 1 ties both terms, and the gradient must be whole, not half of it."""
    pi, advantage = np.log(np.linspace(0.1, 0.6, SIZE)), np.linspace(-1, 2, SIZE)
    np.testing.assert_allclose(clip_gradient(pi, pi, pi, advantage, 0.2), -advantage, **EXACT)


@given(log_probs(), log_probs(), advantages(), floats(0.0, 3.0), st.floats(0.0, 2.0))
def test_decoupled_kl_agrees_with_the_oracle(pi, behav, advantage, penalty, coefficient):
    expected = oracles.decoupled_kl(np.exp(pi), np.exp(behav), advantage, penalty, coefficient)
    ours = importance_weighted(pi, behav, advantage) + coefficient * penalty
    np.testing.assert_allclose(ours, expected, **EXACT)


@given(log_probs(), log_probs())
def test_squared_log_ratio_agrees_with_the_oracle(pi, prox):
    expected = oracles.squared_log_ratio(np.exp(pi), np.exp(prox))
    np.testing.assert_allclose(squared_log_ratio(pi, prox), expected, **EXACT)


def test_squared_log_ratio_is_the_kl_to_second_order():
    """For nearby p and q, sum_a p(a) 1/2 log(p(a)/q(a))^2 = KL[p, q] + O(|p - q|^3)."""
    p = np.array([0.5, 0.3, 0.2])
    q = p + 1e-3 * np.array([1.0, -2.0, 1.0])
    estimate = float(np.sum(p * np.asarray(losses.squared_log_ratio(jnp.log(q), jnp.log(p)))))
    assert estimate == pytest.approx(oracles.categorical_kl(p, q), rel=2e-2)


@given(log_probs(), log_probs(), st.floats(0.0, 1.0))
def test_loglinear_agrees_with_the_oracle(pi, behav, alpha):
    expected = oracles.loglinear(np.exp(pi), np.exp(behav), alpha)
    np.testing.assert_allclose(loglinear(pi, behav, alpha), expected, **EXACT)


def test_loglinear_is_detached():
    """A proximal policy is a fixed point to hold on to: no gradient flows through it."""
    gradient = jax.grad(lambda lp: jnp.sum(losses.loglinear(lp, jnp.full(3, -1.0), 0.5)))(jnp.full(3, -2.0))
    np.testing.assert_array_equal(gradient, 0.0)


@given(log_probs(), floats(-20.0, 0.0), st.floats(1.0, 1e3))
def test_cap_agrees_with_the_oracle_and_bounds_every_ratio(pi, behav, cap):
    ours = capped(pi, behav, cap)
    np.testing.assert_allclose(ours, oracles.cap_importance(pi, behav, cap), **EXACT)
    assert np.all(np.exp(pi - ours) <= cap * (1 + 1e-9))


def test_capped_samples_keep_a_gradient():
    """pi/behav = e^10 is capped at 100: the loss is -100 A and so is its derivative by log pi, since pi is detached
    inside the cap. Were it not, the ratio would be the constant 100 and the derivative 0."""

    def loss(log_prob):
        behav = losses.capped_behavior(log_prob, jnp.array([-10.0, -0.5]), 100.0)
        return losses.importance_weighted(log_prob, behav, jnp.array([2.0, 2.0]))

    log_prob = jnp.array([0.0, -0.5])
    np.testing.assert_allclose(loss(log_prob), [-200.0, -2.0], **EXACT)
    np.testing.assert_allclose(jax.grad(lambda lp: jnp.sum(loss(lp)))(log_prob), [-200.0, -2.0], **EXACT)


def test_infinite_cap_changes_nothing():
    behav = jnp.array([-80.0, -1.0])
    np.testing.assert_array_equal(losses.capped_behavior(jnp.zeros(2), behav, math.inf), behav)


def test_ratios_of_very_stale_data_do_not_overflow_before_the_cap():
    """pi/behav = e^1000 has no float; capped at 100 in log space the loss is finite, and so is its gradient."""

    def loss(log_prob):
        behav = losses.capped_behavior(log_prob, jnp.full(1, -1000.0), 100.0)
        return jnp.sum(losses.clipped(log_prob, log_prob - 0.01, behav, jnp.ones(1), 0.2))

    value, gradient = jax.value_and_grad(loss)(jnp.zeros(1))
    np.testing.assert_allclose([value, gradient[0]], [-100.0, -100.0], **EXACT)


@given(floats(-5, 5), floats(-5, 5), floats(-5, 5), st.floats(0.01, 3.0))
def test_value_losses_agree_with_the_oracle(value, old, target, eps):
    np.testing.assert_allclose(value_loss(value, target), oracles.value_loss(value, target), **EXACT)
    np.testing.assert_allclose(
        clipped_value_loss(value, old, target, eps), oracles.clipped_value_loss(value, old, target, eps), **EXACT
    )


def test_value_clipping_by_hand():
    """old 0, eps 0.2, target 1. V = 0.5 is held at 0.2: max(0.5^2, 0.8^2)/2 = 0.32, and no gradient is left.
    V = -0.5 is held at -0.2: max(1.5^2, 1.2^2)/2 = 1.125, gradient V - target = -1.5. V = 0.1 is free: 0.405, -0.9."""
    old, target = jnp.zeros(3), jnp.ones(3)
    value = jnp.array([0.5, -0.5, 0.1])
    loss = functools.partial(losses.clipped_value_loss, behavior_value=old, target=target, eps=0.2)
    np.testing.assert_allclose(loss(value), [0.32, 1.125, 0.405], **EXACT)
    np.testing.assert_allclose(jax.grad(lambda v: jnp.sum(loss(v)))(value), [0.0, -1.5, -0.9], **EXACT)


def test_policy_gradient_loss():
    """-A log pi: its gradient by log pi is -A."""
    advantage = jnp.array([1.0, -2.0])
    np.testing.assert_allclose(losses.policy_gradient(jnp.array([-1.0, -3.0]), advantage), [1.0, -6.0])
    gradient = jax.grad(lambda lp: jnp.sum(losses.policy_gradient(lp, advantage)))(jnp.array([-1.0, -3.0]))
    np.testing.assert_array_equal(gradient, -advantage)


def test_losses_are_per_sample_whatever_the_batch_axes():
    """Unreduced: [T, N] in, [T, N] out, and vmapped = looped."""
    rng = np.random.default_rng(0)
    pi, prox, behav, advantage = (jnp.array(rng.normal(size=(3, 2))) for _ in range(4))
    whole = losses.clipped(pi, prox, behav, advantage, 0.2)
    rows = [losses.clipped(*row, 0.2) for row in zip(pi, prox, behav, advantage, strict=True)]
    np.testing.assert_array_equal(whole, jnp.stack(rows))
    np.testing.assert_array_equal(
        jax.vmap(losses.clipped, (0, 0, 0, 0, None))(pi, prox, behav, advantage, 0.2), jnp.stack(rows)
    )
