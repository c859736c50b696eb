"""Gradients from PyTorch: the statistics take them, and they agree with those of the engine."""

from __future__ import annotations

import runpy
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from tiny import tiny

from isobatch.envs.spaces import Discrete
from isobatch.gradients.layout import Layout, gram_of
from isobatch.laboratory.inner_products import gram
from isobatch.learning.losses import policy_gradient
from isobatch.networks.initialization import make_networks

torch = pytest.importorskip("torch", reason="PyTorch is not installed: nothing to bring gradients from")
EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "bring_your_own_gradients.py"))
BATCHES, STEPS, ENVS = 5, 17, 2


def test_pytorch_gradients_agree_with_the_engine_and_make_a_report() -> None:
    policy = make_networks(tiny(hidden_sizes="6,5"), (4,), Discrete(3), seed=0).policy
    layers = [*policy.torso.denses, policy.head]
    modules = [torch.nn.Linear(*layer.weight.shape) for layer in layers]
    for module, layer in zip(modules, layers, strict=True):
        module.weight.data = torch.tensor(np.array(layer.weight.T))
        module.bias.data = torch.tensor(np.array(layer.bias))
    actor = torch.nn.Sequential(modules[0], torch.nn.Tanh(), modules[1], torch.nn.Tanh(), modules[2])

    rng, count = np.random.default_rng(0), BATCHES * STEPS * ENVS
    obs, advantage = (rng.standard_normal((count, 4), np.float32), rng.standard_normal(count, np.float32))
    action = rng.integers(3, size=count)
    gradients = EXAMPLE["per_sample_gradients"](actor, obs, action, advantage)
    ours = gram(
        lambda policy, samples: policy_gradient(policy(samples[0]).log_prob(samples[1]), samples[2]),
        policy,
        (jnp.asarray(obs), jnp.asarray(action), jnp.asarray(advantage)),
    )
    theirs = gram_of(gradients)
    size = np.sqrt(np.diag(theirs))
    assert np.all(np.abs(np.asarray(ours) - theirs) <= 1e-5 * np.outer(size, size))

    batch, time, env = (index.ravel() for index in np.indices((BATCHES, STEPS, ENVS)))
    text = EXAMPLE["report"](gradients, Layout.of(batch * ENVS + env, batch, time), STEPS)
    assert "5 batches of 34 samples" in text
    assert "at lag 16" in text
    assert "nan" not in text
