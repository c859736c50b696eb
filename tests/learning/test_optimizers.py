"""Optimizers against their algorithms written out step by step, clipping by global norm, and the learning rate."""

import math

import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from isobatch.learning.micro_batches import Gradient
from isobatch.learning.optimizers import make_optimizer, updated
from isobatch.learning.state import learning_rate
from isobatch.settings.config import Config

pytestmark = pytest.mark.usefixtures("float64")

RNG = np.random.default_rng(0)
GRADIENTS = [RNG.normal(size=5) * scale for scale in (1.0, 0.01, 3.0, 1.0)]


def updates(gradients: list[np.ndarray], **settings) -> list[np.ndarray]:
    """What the optimizer makes of a tree {a: [2], b: [3]} of gradients, before the learning rate."""
    config = Config().replace(**settings)
    optimizer = make_optimizer(config, config.hypers)
    state = optimizer.init({"a": jnp.zeros(2), "b": jnp.zeros(3)})
    out = []
    for g in gradients:
        update, state = optimizer.update({"a": jnp.asarray(g[:2]), "b": jnp.asarray(g[2:])}, state)
        out.append(np.concatenate([update["a"], update["b"]]))
    return out


def test_adam_agrees_with_its_algorithm():
    ours = updates(GRADIENTS, optimizer="adam", beta1=0.8, beta2=0.95, optimizer_eps=1e-3, max_grad_norm=math.inf)
    np.testing.assert_allclose(ours, oracles.adam(GRADIENTS, 0.8, 0.95, 1e-3), rtol=1e-9)


def test_the_first_step_of_adam_by_hand():
    """m_hat = g and v_hat = g^2: the step is g / (|g| + eps), a sign of each component."""
    ours = updates(
        [np.array([3.0, -4.0, 0.0, 1e-3, 0.0])], optimizer="adam", optimizer_eps=1e-3, max_grad_norm=math.inf
    )
    np.testing.assert_allclose(ours[0], [3 / 3.001, -4 / 4.001, 0, 0.5, 0], rtol=1e-9)


def micro_updates(gradients: list[np.ndarray], **settings) -> list[np.ndarray]:
    """What adam-micro makes of gradients [K, 5] of micro-batches."""
    config = Config().replace(optimizer="adam-micro", **settings)
    tree = lambda g: {"a": jnp.asarray(g[:2]), "b": jnp.asarray(g[2:])}  # noqa: E731
    weights = tree(np.zeros(5))
    state, out = make_optimizer(config, config.hypers).init(weights), []
    for parts in gradients:
        gradient = Gradient(tree(np.mean(parts, axis=0)), tree(np.mean(parts**2, axis=0)))
        update, state = updated(config, config.hypers, gradient, state, weights)
        out.append(np.concatenate([update["a"], update["b"]]))
    return out


@pytest.mark.parametrize("largest", [0.5, math.inf])
def test_adam_micro_agrees_with_its_algorithm(largest):
    gradients = [RNG.normal(size=(3, 5)) * scale for scale in (1.0, 0.01, 3.0, 1.0)]
    ours = micro_updates(gradients, beta1=0.8, beta2=0.95, optimizer_eps=1e-3, max_grad_norm=largest)
    np.testing.assert_allclose(ours, oracles.adam_micro(gradients, 0.8, 0.95, 1e-3, largest), rtol=1e-9)


def test_adam_micro_with_one_micro_batch_is_adam():
    settings = dict(beta1=0.8, beta2=0.95, optimizer_eps=1e-3, max_grad_norm=0.5)
    ours = micro_updates([g[None] for g in GRADIENTS], **settings)
    np.testing.assert_allclose(ours, updates(GRADIENTS, optimizer="adam", **settings), rtol=1e-9)


def test_the_first_step_of_adam_micro_by_hand():
    """Gradients 1 and 3 have the mean 2 and mean square 5: 2 / (sqrt(5) + eps), where Adam steps 2 / (2 + eps). Those
    of 1 and -1 have none, and neither moves."""
    parts = np.array([[1.0, 1.0, 0, 0, 0], [3.0, -1.0, 0, 0, 0]])
    (ours,) = micro_updates([parts], optimizer_eps=1e-3, max_grad_norm=math.inf)
    np.testing.assert_allclose(ours, [2 / (math.sqrt(5) + 1e-3), 0, 0, 0, 0], rtol=1e-9)


def test_rmsprop_agrees_with_its_algorithm():
    """The constant is added to the root, as its help text says (and as PyTorch and SB3's A2C have it), not under it."""
    ours = updates(GRADIENTS, optimizer="rmsprop", beta2=0.9, optimizer_eps=1e-3, max_grad_norm=math.inf)
    np.testing.assert_allclose(ours, oracles.rmsprop(GRADIENTS, 0.9, 1e-3), rtol=1e-9)


def test_sgd_is_the_gradient():
    np.testing.assert_array_equal(updates(GRADIENTS, optimizer="sgd", max_grad_norm=math.inf), GRADIENTS)


@pytest.mark.parametrize("largest", [0.5, 2.0, 1e6])
def test_the_norm_of_all_parameters_together_is_clipped(largest):
    """Global, not per array and not element by element: the direction stays."""
    ours = updates(GRADIENTS, optimizer="sgd", max_grad_norm=largest)
    np.testing.assert_allclose(ours, [oracles.clip_global_norm(g, largest) for g in GRADIENTS], rtol=1e-9)


def test_gradients_are_clipped_before_adam_sees_them():
    ours = updates(GRADIENTS, optimizer="adam", optimizer_eps=1e-3, max_grad_norm=0.5)
    clipped = [oracles.clip_global_norm(g, 0.5) for g in GRADIENTS]
    np.testing.assert_allclose(ours, oracles.adam(clipped, 0.9, 0.999, 1e-3), rtol=1e-9)


def test_the_learning_rate_falls_linearly_or_stays():
    """10 iterations from 0.1: the first takes 0.1, the last 0.01."""
    for schedule, expected in (("linear", [0.1, 0.05, 0.01]), ("constant", [0.1, 0.1, 0.1])):
        config = Config(num_envs=1, num_steps=4, total_timesteps=40, lr_schedule=schedule).replace(learning_rate=0.1)
        rates = [float(learning_rate(config, config.hypers, jnp.int32(i))) for i in (0, 5, 9)]
        assert rates == pytest.approx(expected)
