"""Action distributions against sums over all actions and numerical integrals."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from isobatch.networks.distributions import Bernoulli, Categorical, DiagonalGaussian, Distribution, MultiCategorical

pytestmark = pytest.mark.usefixtures("float64")

logits = arrays(np.float64, 4, elements=st.floats(-8, 8))
means = arrays(np.float64, 2, elements=st.floats(-2, 2))
log_stds = arrays(np.float64, 2, elements=st.floats(-1, 1))
CLOSE = dict(rel=1e-9, abs=1e-9)

categorical = jax.jit(lambda p, q: (p.log_prob(jnp.arange(4)), p.entropy(), p.kl(q)))
gaussian = jax.jit(lambda p, q, a: (p.log_prob(a), p.entropy(), p.kl(q)))


@given(logits, logits)
def test_categorical_agrees_with_sums_over_all_actions(x, y):
    p, q = oracles.softmax(x), oracles.softmax(y)
    ours, other = Categorical(jnp.tile(x, (4, 1))), Categorical(jnp.tile(y, (4, 1)))
    log_prob, entropy, kl = categorical(ours, other)
    np.testing.assert_allclose(log_prob, np.log(p), rtol=1e-9, atol=1e-9)
    assert float(entropy[0]) == pytest.approx(oracles.categorical_entropy(p), **CLOSE)
    assert float(kl[0]) == pytest.approx(oracles.categorical_kl(p, q), **CLOSE)


def test_categorical_by_hand():
    """p = (1/2, 1/4, 1/4), q uniform: entropy 1.5 ln 2; KL[p, q] = ln 3 - 1.5 ln 2; KL[q, p] = (5/3) ln 2 - ln 3."""
    p, q = Categorical(jnp.log(jnp.array([0.5, 0.25, 0.25])) + 17.0), Categorical(jnp.zeros(3))
    assert float(p.entropy()) == pytest.approx(1.5 * math.log(2))
    assert float(p.kl(q)) == pytest.approx(math.log(3) - 1.5 * math.log(2))
    assert float(q.kl(p)) == pytest.approx(5 / 3 * math.log(2) - math.log(3))
    assert float(p.log_prob(jnp.array(1))) == pytest.approx(-2 * math.log(2))


def test_categorical_survives_near_certainty():
    """Logits 1000 apart: entropy 0, not NaN, and a finite gradient."""
    certain = jnp.array([0.0, 1000.0])
    assert float(Categorical(certain).entropy()) == 0.0
    assert np.isfinite(jax.grad(lambda x: Categorical(x).entropy())(certain)).all()


@given(means, log_stds, means, log_stds, means)
def test_gaussian_agrees_with_numerical_integrals(m, s, m2, s2, action):
    """Independent dimensions: log-probabilities, entropies and divergences add up over them."""
    p, q = (DiagonalGaussian(jnp.asarray(mean), jnp.asarray(log_std)) for mean, log_std in ((m, s), (m2, s2)))
    expected = np.zeros(3)
    for i in range(2):
        ours, other = (m[i], math.exp(s[i])), (m2[i], math.exp(s2[i]))
        expected[0] += oracles.normal_log_pdf(action[i], *ours)
        expected[1] += oracles.normal_entropy(*ours)
        expected[2] += oracles.normal_kl(*ours, *other)
    np.testing.assert_allclose(gaussian(p, q, jnp.asarray(action)), expected, rtol=1e-9, atol=1e-9)


def test_gaussian_by_hand():
    """p = N(0, 1), q = N(1, 2^2), one dimension: KL = ln 2 + (1 + 1)/8 - 1/2; entropy of p = ln(2 pi e)/2;
    log p(2) = -2 - ln(2 pi)/2."""
    p = DiagonalGaussian(jnp.zeros(1), jnp.zeros(1))
    q = DiagonalGaussian(jnp.ones(1), jnp.full(1, math.log(2)))
    assert float(p.kl(q)) == pytest.approx(math.log(2) - 0.25)
    assert float(p.entropy()) == pytest.approx(0.5 * math.log(2 * math.pi * math.e))
    assert float(p.log_prob(jnp.array([2.0]))) == pytest.approx(-2 - 0.5 * math.log(2 * math.pi))


def pairs() -> list[tuple[Distribution, Distribution]]:
    rng = np.random.default_rng(0)
    draw = lambda: jnp.asarray(rng.normal(size=(5, 3)))  # noqa: E731
    return [
        (Categorical(draw()), Categorical(draw())),
        (DiagonalGaussian(draw(), draw()), DiagonalGaussian(draw(), draw())),
        (MultiCategorical(draw(), (1, 2)), MultiCategorical(draw(), (1, 2))),
        (Bernoulli(draw()), Bernoulli(draw())),
    ]


EVERY = pytest.mark.parametrize("which", range(4))


def chances(p: MultiCategorical | Bernoulli, actions: list[tuple[int, ...]]) -> np.ndarray:
    """Of each action: the product over its parts, by definition."""
    if isinstance(p, Bernoulli):
        on = 1 / (1 + np.exp(-np.asarray(p.logits)))
        return np.array([np.prod(np.where(action, on, 1 - on)) for action in actions])
    ends = np.cumsum(p.sizes)[:-1]
    parts = [oracles.softmax(part) for part in np.split(np.asarray(p.logits), ends)]
    return np.array([np.prod([part[a] for part, a in zip(parts, action, strict=True)]) for action in actions])


@pytest.mark.parametrize("kind", ["choices", "switches"])
def test_products_agree_with_sums_over_all_actions(kind):
    """2 x 3 x 2 combinations of choices; 2 x 2 x 2 of switches."""
    rng = np.random.default_rng(3)
    sizes = (2, 3, 2) if kind == "choices" else (2, 2, 2)
    draw = lambda: jnp.asarray(rng.normal(size=7 if kind == "choices" else 3) * 2)  # noqa: E731
    p, q = (MultiCategorical(draw(), sizes) if kind == "choices" else Bernoulli(draw()) for _ in range(2))
    actions = list(itertools.product(*map(range, sizes)))
    ours, other = chances(p, actions), chances(q, actions)
    assert ours.sum() == pytest.approx(1)
    for action, chance in zip(actions, ours, strict=True):
        assert float(p.log_prob(jnp.array(action))) == pytest.approx(math.log(chance), **CLOSE)
    assert float(p.entropy()) == pytest.approx(-np.sum(ours * np.log(ours)), **CLOSE)
    assert float(p.kl(q)) == pytest.approx(np.sum(ours * np.log(ours / other)), **CLOSE)
    np.testing.assert_array_equal(p.mode(), actions[int(np.argmax(ours))])


def test_switches_survive_near_certainty():
    certain = Bernoulli(jnp.array([1000.0, -1000.0]))
    assert float(certain.entropy()) == 0.0
    assert float(certain.log_prob(jnp.array([1, 0]))) == 0.0
    assert np.isfinite(jax.grad(lambda x: Bernoulli(x).entropy())(certain.logits)).all()


@EVERY
def test_kl_is_positive_zero_to_itself_and_not_symmetric(which):
    p, q = pairs()[which]
    np.testing.assert_allclose(p.kl(p), 0.0, atol=1e-12)
    assert np.all(np.asarray(p.kl(q)) > 0)
    assert not np.allclose(p.kl(q), q.kl(p))


@EVERY
def test_the_score_function_has_mean_zero(which):
    """E[grad log p(a)] = 0 for a drawn from p: the identity behind every policy gradient. 5 standard errors."""
    p = jax.tree.map(lambda leaf: leaf[0], pairs()[which][0])
    actions = jax.vmap(p.sample)(jax.random.split(jax.random.key(0), 40_000))
    scores = jax.vmap(lambda a: jax.grad(lambda dist: dist.log_prob(a))(p))(actions)
    for leaf in jax.tree.leaves(scores):
        error = np.std(leaf, axis=0) / math.sqrt(40_000)
        assert np.all(np.abs(np.mean(leaf, axis=0)) <= 5 * error)  # equal where there is no choice


@EVERY
def test_samples_follow_the_distribution(which):
    """The mean of -log p over draws from p is its entropy, and that of log p - log q is KL[p, q]."""
    p, q = (jax.tree.map(lambda leaf: leaf[0], d) for d in pairs()[which])
    actions = jax.vmap(p.sample)(jax.random.split(jax.random.key(1), 40_000))
    log_p, log_q = jax.vmap(p.log_prob)(actions), jax.vmap(q.log_prob)(actions)
    for estimate, exact in ((-log_p, p.entropy()), (log_p - log_q, p.kl(q))):
        assert abs(np.mean(estimate) - exact) < 5 * np.std(estimate) / math.sqrt(40_000)


@EVERY
def test_the_mode_is_the_most_likely_action(which):
    p, _ = pairs()[which]
    best = p.log_prob(p.mode())
    for seed in range(5):
        assert np.all(np.asarray(p.log_prob(p.sample(jax.random.key(seed)))) <= np.asarray(best) + 1e-12)


@EVERY
def test_leading_axes_are_batch_axes(which):
    """Batched = looped."""
    p, q = pairs()[which]
    action = p.mode()
    for i in range(5):
        one, other = (jax.tree.map(lambda leaf: leaf[i], d) for d in (p, q))  # noqa: B023
        np.testing.assert_allclose(p.log_prob(action)[i], one.log_prob(action[i]), rtol=1e-12)
        np.testing.assert_allclose(p.entropy()[i], one.entropy(), rtol=1e-12)
        np.testing.assert_allclose(p.kl(q)[i], one.kl(other), rtol=1e-12)
