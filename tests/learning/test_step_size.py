"""Step sizes that answer to the KL, beside the same steps taken one after the other."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from test_policy_phase import make_config, make_learner, prepared

from isobatch.learning.minibatches import minibatch_indices
from isobatch.learning.policy_phase import gradient_step, optimize
from isobatch.learning.step_size import adapted
from isobatch.training.trainer import train

pytestmark = pytest.mark.usefixtures("float64")


def by_hand(rate: float, kl: float, desired: float) -> float:
    """The controller of rsl_rl, in Python."""
    if kl > 2 * desired:
        return max(1e-5, rate / 1.5)
    if 0 < kl < desired / 2:
        return min(1e-2, rate * 1.5)
    return rate


@pytest.mark.parametrize("kl", [0.0, 1e-4, 0.004, 0.01, 0.021, 3.0])
@pytest.mark.parametrize("rate", [1e-5, 1.2e-5, 1e-3, 9e-3, 1e-2])
def test_the_rate_follows_the_kl(kl: float, rate: float) -> None:
    assert float(adapted(jnp.asarray(rate), jnp.asarray(kl), 0.01)) == pytest.approx(by_hand(rate, kl, 0.01), rel=1e-12)


def one_after_the_other(config: Any, start: Any, batch: Any, key: Any, rate: float) -> tuple[Any, list[float], int]:
    """Plain gradient steps with a rate and an end that are decided here, in Python."""
    plain = config.replace(lr_schedule="constant", stop_at_target_kl=False)
    step = jax.jit(partial(gradient_step, plain, "joint"))
    learner = dataclasses.replace(start, rate=None, stopped=None)
    flat = jax.tree.map(lambda leaf: leaf.reshape(24, *leaf.shape[2:]), batch)
    rates, taken = [], 0
    for epoch_key in jax.random.split(key, config.update_epochs):
        for index in minibatch_indices(epoch_key, 4, 6, config.num_minibatches, "shuffle"):
            part = jax.tree.map(lambda leaf: leaf[index], flat)  # noqa: B023
            kl = float(step(part, learner, config.hypers, jnp.asarray(rate))[1]["losses/approx_kl"])
            if config.stop_at_target_kl and kl > 1.5 * config.hypers.target_kl:
                return learner, rates, taken
            if config.lr_schedule == "adaptive":
                rate = by_hand(rate, kl, config.hypers.desired_kl)
            learner, _ = step(part, learner, config.hypers, jnp.asarray(rate))
            taken, rates = taken + 1, [*rates, rate]
    return learner, rates, taken


@pytest.mark.parametrize(
    "settings",
    [
        dict(lr_schedule="adaptive", desired_kl=0.12),
        dict(target_kl=0.22),
        dict(lr_schedule="adaptive", desired_kl=0.12, target_kl=0.22),
    ],
)
def test_a_phase_is_its_steps_one_after_the_other(settings: dict[str, Any]) -> None:
    config = make_config(update_epochs=3, num_minibatches=4, **settings)
    assert config.stop_at_target_kl == ("target_kl" in settings)
    adaptive = config.lr_schedule == "adaptive"
    fields = dict(rate=jnp.asarray(5e-3) if adaptive else None)
    fields |= dict(stopped=jnp.zeros((), bool) if config.stop_at_target_kl else None)
    start, (batch, *_), key = dataclasses.replace(make_learner(config), **fields), prepared(config), jax.random.key(3)
    after, metrics = jax.jit(partial(optimize, config))(batch, start, config.hypers, jnp.asarray(5e-3), key)
    expected, rates, taken = one_after_the_other(config, start, batch, key, 5e-3)
    np.testing.assert_allclose(ravel_pytree(after.networks)[0], ravel_pytree(expected.networks)[0], rtol=1e-9)
    if adaptive:
        assert float(after.rate) == pytest.approx(rates[-1])
        assert len(set(rates)) > 1
    if config.stop_at_target_kl:
        assert float(metrics["charts/gradient_steps"]) == pytest.approx(taken)
        assert 0 < taken < 12


def test_a_run_keeps_its_rate_from_iteration_to_iteration() -> None:
    sizes = dict(update_epochs=2, num_minibatches=2, total_timesteps=24 * 6)
    config = make_config(env="Probe-ActionObserved", lr_schedule="adaptive", desired_kl=1e-3, **sizes)
    rates = train(config, log_interval=1).metrics["charts/learning_rate"]
    steps = np.log(rates[1:] / rates[:-1]) / np.log(1.5)
    assert np.abs(steps).max() > 0.5
    np.testing.assert_allclose(steps[rates[1:] < 9.9e-3], np.round(steps[rates[1:] < 9.9e-3]), atol=1e-3)
