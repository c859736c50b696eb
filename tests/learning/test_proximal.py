"""The averaged proximal policy is the debiased EWMA of appendix A, in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from isobatch.learning.proximal import Ewma
from isobatch.settings.geometry import center_of_mass

pytestmark = pytest.mark.usefixtures("float64")

weights = arrays(np.float64, (7, 3), elements=st.floats(-10, 10))  # theta_0 .. theta_6
update = jax.jit(Ewma.update)


def averaged(thetas: np.ndarray, beta: float) -> Ewma:
    ewma = Ewma.start(jnp.asarray(thetas[0]))
    for theta in thetas[1:]:
        ewma = update(ewma, jnp.asarray(theta), beta)
    return ewma


@given(weights, st.floats(0, 0.9999))
def test_equals_its_closed_form(thetas, beta):
    ewma = averaged(thetas, beta)
    np.testing.assert_allclose(ewma.params, oracles.ewma(list(thetas), beta), rtol=1e-9, atol=1e-9)
    assert float(ewma.weight) == pytest.approx(sum(beta**i for i in range(7)), rel=1e-9)
    assert float(ewma.age) == pytest.approx(oracles.ewma_age(6, beta), rel=1e-9, abs=1e-12)


def test_three_updates_by_hand():
    """beta 1/2, theta = 8, 4, 2, 16: w = 1, 3/2, 7/4, 15/8; theta_prox = (16 + 2/2 + 4/4 + 8/8)/(15/8) = 152/15."""
    ewma = averaged(np.array([8.0, 4.0, 2.0, 16.0]), 0.5)
    np.testing.assert_allclose([ewma.params, ewma.weight], [19 * 8 / 15, 15 / 8])


def test_starts_at_the_initial_weights_not_at_zero():
    """theta_0 is in the average with weight 1: without a step it is theta_0, and constant weights stay."""
    np.testing.assert_array_equal(Ewma.start(jnp.array([3.0])).params, [3.0])
    np.testing.assert_allclose(averaged(np.full((5, 1), 3.0), 0.99).params, [3.0])


@given(weights)
def test_beta_zero_is_the_current_policy(thetas):
    """A reset, as after PPG's auxiliary phase, is an update with beta = 0."""
    ewma = averaged(thetas, 0.0)
    np.testing.assert_allclose([*ewma.params, ewma.weight, ewma.age], [*thetas[-1], 1.0, 0.0], atol=1e-12)


def test_beta_near_one_is_the_plain_mean():
    thetas = np.arange(6.0)
    np.testing.assert_allclose(averaged(thetas, 1 - 1e-12).params, np.mean(thetas), rtol=1e-9)


def test_its_age_tends_to_the_center_of_mass():
    """With beta 8/9 the average is 1/(1 - 8/9) - 1 = 8 gradient steps old in the long run (paper, section 4)."""
    ewma, beta = Ewma.start(jnp.zeros(())), 8 / 9
    ewma = jax.lax.fori_loop(0, 400, lambda i, e: e.update(jnp.asarray(i + 1.0), beta), ewma)
    assert float(ewma.age) == pytest.approx(center_of_mass(beta)) == pytest.approx(8.0)
    assert 400 - float(ewma.params) == pytest.approx(8.0)  # theta_i = i: the average lags by its age


def test_averages_every_leaf_of_a_tree():
    ewma = Ewma.start({"a": jnp.zeros(2), "b": jnp.ones((2, 2))}).update(
        {"a": jnp.ones(2), "b": jnp.zeros((2, 2))}, 0.5
    )
    np.testing.assert_allclose(ewma.params["a"], 2 / 3)
    np.testing.assert_allclose(ewma.params["b"], 1 / 3)
