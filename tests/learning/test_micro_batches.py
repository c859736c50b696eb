"""Gradients of micro-batches against separate ones, what is invariant, and training with them everywhere."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from jax.flatten_util import ravel_pytree
from made_up import make_config, make_learner, make_minibatch
from needs import one_more_case
from tiny import ALGOS, OPTIONS, tiny

from isobatch.errors import UsageError
from isobatch.learning.micro_batches import gradient_of
from isobatch.learning.policy_phase import Batch, gradient_step, total_loss
from isobatch.networks.actor_critic import Networks
from isobatch.rescaling import rescale
from isobatch.settings.config import Config
from isobatch.training.checkpoints import flatten
from isobatch.training.trainer import train

MICRO = dict(optimizer="adam-micro", micro_batch_size=4, max_grad_norm=math.inf)


def policy_loss(config: Config, networks: Networks, batch: Batch):
    return total_loss(config, "joint", batch, networks, None, config.hypers)


def parts_of(batch: Batch) -> list[Batch]:
    """Six times four samples, in their order."""
    return [jax.tree.map(lambda leaf, i=i: leaf[i : i + 4], batch) for i in range(0, 24, 4)]


@pytest.mark.usefixtures("float64")
def test_squares_are_those_of_the_gradients_of_parts():
    """24 samples in six micro-batches of four, one by one; the mean is the gradient of all samples."""
    config = make_config(**MICRO)
    learner, batch = make_learner(config), make_minibatch(config, size=24)
    loss = partial(policy_loss, config)
    (gradient, squares), metrics = jax.jit(partial(gradient_of, config, loss))(learner.networks, batch)
    alone = jax.jit(jax.grad(loss, has_aux=True))
    each = np.stack([ravel_pytree(alone(learner.networks, part)[0])[0] for part in parts_of(batch)])
    np.testing.assert_allclose(ravel_pytree(squares)[0], np.mean(each**2, axis=0), rtol=1e-9)
    whole, whole_metrics = alone(learner.networks, batch)
    np.testing.assert_allclose(ravel_pytree(gradient)[0], ravel_pytree(whole)[0], rtol=1e-9, atol=1e-12)
    for name, value in whole_metrics.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.usefixtures("float64")
def test_a_gradient_step_is_that_of_the_oracle():
    """Two steps on the same minibatch, from gradients taken one micro-batch at a time, by the algorithm in NumPy."""
    config = make_config(**MICRO | dict(max_grad_norm=0.3, learning_rate=0.05))
    learner, batch = make_learner(config), make_minibatch(config, size=24)
    step = jax.jit(partial(gradient_step, config, "joint"))
    alone = jax.jit(jax.grad(partial(policy_loss, config), has_aux=True))
    seen, first, networks = [], ravel_pytree(learner.networks)[0], learner.networks
    for _ in range(2):
        groups = parts_of(batch)
        seen.append(np.stack([ravel_pytree(alone(networks, group)[0])[0] for group in groups]))
        learner, _ = step(batch, learner, config.hypers, jnp.asarray(0.05))
        networks = learner.networks
    h = config.hypers
    steps = oracles.adam_micro(seen, h.beta1, h.beta2, h.optimizer_eps, 0.3)
    np.testing.assert_allclose(ravel_pytree(networks)[0], first - 0.05 * (steps[0] + steps[1]), rtol=1e-9)


def drifted(batch: int, micro: int, steps: int, rate: float, beta1: float, beta2: float, signal: float) -> np.ndarray:
    """64 weights after `steps` steps on gradients of `batch` samples, each `signal` plus noise of deviation 1."""
    samples = np.random.default_rng(0).normal(signal, 1, size=(steps * batch, 64))
    parts = samples.reshape(steps, batch // micro, micro, 64).mean(axis=2)
    return -rate * np.sum(oracles.adam_micro(list(parts), beta1, beta2, 1e-8, math.inf), axis=0)


@pytest.mark.parametrize("signal", [0.05, 3.0])
def test_invariant_whether_noise_dominates_or_not(signal: float):
    """1,024 samples in batches of 4 or 64: with micro-batches of 4 and the rule the weights end at the same place. The
    signal of a batch of 64 is .4 or 24 times its noise. Adam by the square root rule does so in the first case only:
    where the signal is all, its step is the rate, so sixteen steps at a rate are four times one at four times it."""
    big = Config().replace(num_envs=64, num_steps=1, num_minibatches=1, total_timesteps=1024, learning_rate=1.6e-2)
    big = big.replace(optimizer="adam-micro", micro_batch_size=4, beta1=0.5, beta2=0.9, max_grad_norm=math.inf)
    small = rescale(big, num_envs=4).after
    ends = [
        drifted(c.num_envs, 4, 1024 // c.num_envs, c.hypers.learning_rate, c.hypers.beta1, c.hypers.beta2, signal)
        for c in (big, small)
    ]
    np.testing.assert_allclose(ends[0].mean(), ends[1].mean(), rtol=0.06)
    if signal > 1:
        adam = [(64, 16, 4e-3), (4, 256, 1e-3)]
        far = [drifted(batch, batch, steps, rate, 0.5, 0.9, signal).mean() for batch, steps, rate in adam]
        assert far[1] / far[0] == pytest.approx(4, rel=0.1)


SHARDED = dict(optimizer="adam-micro", micro_batch_size=4, num_shards=2)  # 8 samples of each shard in a minibatch


@pytest.mark.parametrize("algo", [pytest.param(a, marks=[one_more_case] * (a != "ppo")) for a in ALGOS])
def test_it_trains_in_shards_and_goes_on_after_a_kill(algo: str, tmp_path: Path):
    """Auxiliary phases included. A run that was resumed ends with the bits of one that was not."""
    config, run = tiny(algo, **SHARDED), tmp_path / "run"
    whole = flatten(train(config, run_dir=run, **OPTIONS).states)
    assert all(np.all(np.isfinite(leaf)) for leaf in whole.values() if leaf.dtype == np.float32)
    assert np.any(whole["learning/learner/optimizer/nu"] > 0)
    (run / "checkpoints" / "000000012.checkpoint").unlink()  # as if killed after the one before it
    resumed = flatten(train(config, run_dir=run, resume=True, **OPTIONS).states)
    assert all(resumed[name].tobytes() == leaf.tobytes() for name, leaf in whole.items())


def test_sizes_that_do_not_divide_are_refused():
    with pytest.raises(UsageError, match=r"micro_batch_size=3 does not divide the 16 samples of a minibatch.*2 or 4"):
        tiny("ppo", optimizer="adam-micro", micro_batch_size=3)
    with pytest.raises(UsageError, match=r"the 8 samples of an auxiliary minibatch"):
        tiny("ppg", optimizer="adam-micro", micro_batch_size=16, aux_minibatches=4)
    with pytest.raises(UsageError, match=r"micro_batch_size=16 does not divide the 8 samples of each of 2 shards"):
        tiny("ppo", **SHARDED | dict(micro_batch_size=16))
    with pytest.raises(UsageError, match=r"4 samples of one of its minibatches.*micro-batches of 8.*num_envs=2"):
        rescale(tiny("ppo", optimizer="adam-micro", micro_batch_size=8), num_envs=1)
