"""Generalized advantage estimation: the sum of n-step returns, closed forms, terminations and truncations."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from isobatch.learning.advantages import gae

pytestmark = pytest.mark.usefixtures("float64")

T, N = 9, 3
compiled = jax.jit(gae)
numbers = arrays(np.float64, (T, N), elements=st.floats(-3, 3))
flags = arrays(bool, (T, N), elements=st.booleans())
fractions = st.floats(0, 1)


def next_values(value: np.ndarray, final_value: np.ndarray, last: np.ndarray, truncated: np.ndarray) -> np.ndarray:
    """V of the state each step led to: the next row, V(final observation) where cut off, `last` after the rollout."""
    return np.where(truncated, final_value, np.concatenate([value[1:], last[None]]))


@given(numbers, numbers, numbers, flags, flags, fractions, fractions)
def test_agrees_with_the_sum_of_n_step_returns(reward, value, final_value, terminated, truncated, gamma, lam):
    """Whatever ends or cuts episodes in mid-rollout, also both at once (then it ended)."""
    next_value = next_values(value, final_value, value[0], truncated)
    ours = compiled(reward, value, next_value, terminated, truncated, gamma, lam)
    expected = oracles.gae(reward, value, next_value, terminated, truncated, gamma, lam)
    np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-9)


def constant_case(terminated_at: tuple[int, ...], truncated_at: tuple[int, ...]) -> np.ndarray:
    """One environment, 8 steps, r = 1, V = 2 everywhere, gamma 0.5, lambda 0.8; episodes end after these steps."""
    reward, value = np.ones((8, 1)), np.full((8, 1), 2.0)
    terminated, truncated = np.zeros((8, 1), bool), np.zeros((8, 1), bool)
    terminated[list(terminated_at)], truncated[list(truncated_at)] = True, True
    return np.asarray(gae(*map(jnp.asarray, (reward, value, value, terminated, truncated)), 0.5, 0.8))[:, 0]


def test_perfect_values_have_no_advantage():
    """V = r/(1 - gamma) = 2 is the true value of a reward of 1 for ever: every delta is 1 + 0.5 x 2 - 2 = 0, also where
    a time limit cuts the episode off, since its future is still worth 2."""
    np.testing.assert_allclose(constant_case((), ()), 0.0, atol=1e-12)
    np.testing.assert_allclose(constant_case((), (2, 5)), 0.0, atol=1e-12)


def test_termination_in_mid_rollout_has_a_closed_form():
    """A termination makes its own delta 1 + 0 - 2 = -1, all others are 0. k steps before it A = -(gamma lambda)^k;
    after the last one A = 0."""
    expected = [-(0.4**2), -0.4, -1.0, -(0.4**2), -0.4, -1.0, 0.0, 0.0]
    np.testing.assert_allclose(constant_case((2, 5), ()), expected, atol=1e-12)


def test_a_truncation_shields_what_came_before_from_what_comes_after():
    """Cut off after step 2, terminated after step 5: the -1 of step 5 is felt at 3 and 4 only."""
    expected = [0.0, 0.0, 0.0, -(0.4**2), -0.4, -1.0, 0.0, 0.0]
    np.testing.assert_allclose(constant_case((5,), (2,)), expected, atol=1e-12)


def test_constant_reward_and_value_between_two_cuts():
    """r = 3, V = 0 within the row, V(final observation) = 10 at the cut after step 3, gamma 0.5, lambda 1. With k to go
    A = 3 (1 + 1/2 + ... + 1/2^(k-1)) + 10/2^k: k = 1: 8, k = 2: 7, k = 3: 6.5, k = 4: 6.25."""
    reward, value = jnp.full((4, 1), 3.0), jnp.zeros((4, 1))
    cut = jnp.array([[False], [False], [False], [True]])
    next_value = jnp.where(cut, 10.0, 0.0)
    ours = gae(reward, value, next_value, jnp.zeros((4, 1), bool), cut, 0.5, 1.0)
    np.testing.assert_allclose(ours[:, 0], [6.25, 6.5, 7.0, 8.0])


@given(numbers, numbers, flags, fractions)
def test_lambda_one_is_reward_to_go_minus_the_baseline(reward, value, terminated, gamma):
    """With every row terminated at its end nothing is bootstrapped."""
    terminated = terminated.copy()
    terminated[-1] = True
    next_value = np.concatenate([value[1:], value[:1]])
    ours = compiled(reward, value, next_value, terminated, np.zeros_like(terminated), gamma, 1.0)
    expected = oracles.reward_to_go(reward, terminated, gamma) - value
    np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-9)


@given(numbers, numbers, numbers, flags, flags, fractions)
def test_lambda_zero_is_the_temporal_difference(reward, value, next_value, terminated, truncated, gamma):
    ours = compiled(reward, value, next_value, terminated, truncated, gamma, 0.0)
    expected = reward + gamma * np.where(terminated, 0.0, next_value) - value
    np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-9)


@given(numbers, numbers, flags, flags)
def test_the_value_after_a_termination_is_never_looked_at(reward, value, terminated, truncated):
    """The state after it belongs to another episode: anything there, a large number too, changes nothing."""
    next_value = next_values(value, value + 1, value[0], truncated)
    poisoned = np.where(terminated, 1e6, next_value)
    ours = [compiled(reward, value, v, terminated, truncated, 0.9, 0.9) for v in (next_value, poisoned)]
    np.testing.assert_array_equal(*ours)


def test_environments_do_not_mix():
    """Each column is its own: vmapped = looped."""
    rng = np.random.default_rng(0)
    reward, value, next_value = (jnp.asarray(rng.normal(size=(T, N))) for _ in range(3))
    terminated, truncated = (jnp.asarray(rng.random((T, N)) < 0.2) for _ in range(2))
    whole = compiled(reward, value, next_value, terminated, truncated, 0.9, 0.8)
    for n in range(N):
        column = [x[:, n : n + 1] for x in (reward, value, next_value, terminated, truncated)]
        np.testing.assert_allclose(whole[:, n : n + 1], compiled(*column, 0.9, 0.8), rtol=1e-12)
