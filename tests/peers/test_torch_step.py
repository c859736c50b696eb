"""Gradient steps of the package and of an independent PyTorch script, parameter by parameter."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from made_up import CONTINUOUS, DISCRETE, make_actor_critic, make_config, make_learner, make_segment, with_fields

from isobatch.envs.spaces import Space
from isobatch.learning.auxiliary_phase import AuxiliaryBatch, auxiliary_step
from isobatch.learning.policy_phase import gradient_step, prepare
from isobatch.learning.proximal import Ewma
from isobatch.networks.actor_critic import ActorCritic, Policy
from isobatch.networks.moments import Moments
from isobatch.settings.config import Config

torch_step = pytest.importorskip("torch_step", reason="torch is not installed (pip install torch==2.13.0)")
pytestmark = pytest.mark.usefixtures("float64")

TOLERANCE = dict(rtol=0, atol=1e-5)  # on weights that steps of about 0.1 have moved
STEPS = 3
SPACES = {"discrete": DISCRETE, "continuous": CONTINUOUS}

# name -> the package's choices, the script's choices
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ppo": (dict(objective="clip"), dict(objective="clip")),
    "ppo, SGD": (dict(objective="clip", optimizer="sgd"), dict(objective="clip", optimizer="sgd")),
    "kl": (dict(objective="kl", kl_coef=0.7), dict(objective="kl", kl_coef=0.7)),
    "kl, squared": (dict(objective="kl", kl_form="squared", kl_coef=0.7), dict(objective="kl-squared", kl_coef=0.7)),
    "a2c": (
        dict(objective="policy-gradient", optimizer="rmsprop", beta2=0.99),
        dict(objective="policy-gradient", optimizer="rmsprop", beta2=0.99),
    ),
    "stale, recent": (
        dict(staleness=1, importance_policy="recent", proximal_policy="recent"),
        dict(importance="recent", proximal="recent"),
    ),
    "stale, decoupled": (
        dict(staleness=1, importance_policy="behavior", proximal_policy="recent"),
        dict(importance="behavior", proximal="recent"),
    ),
    "stale, decoupled, kl": (
        dict(staleness=1, importance_policy="behavior", proximal_policy="recent", objective="kl"),
        dict(importance="behavior", proximal="recent", objective="kl"),
    ),
    "stale, behavior": (
        dict(staleness=1, importance_policy="behavior", proximal_policy="behavior"),
        dict(importance="behavior", proximal="behavior"),
    ),
    "stale, capped": (
        dict(staleness=1, proximal_policy="recent", importance_cap=1.05),
        dict(proximal="recent", importance_cap=1.05),
    ),
    "ppo-ewma": (dict(proximal_policy="ewma", beta_prox=0.6), dict(proximal="ewma", beta_prox=0.6)),
    "ppo-ewma, kl": (
        dict(proximal_policy="ewma", beta_prox=0.6, objective="kl"),
        dict(proximal="ewma", beta_prox=0.6, objective="kl"),
    ),
}


def named(policy: Policy, networks: ActorCritic | None = None) -> dict[str, np.ndarray]:
    """Weights by the script's names."""
    layers = {"policy_hidden": policy.torso.denses[0], "policy_out": policy.head}
    if networks is not None:
        layers |= {"value_hidden": networks.value_torso.denses[0], "value_out": networks.value_head}
        if networks.aux_head is not None:
            layers["aux_out"] = networks.aux_head
    out = {
        f"{name}.{kind}": np.asarray(getattr(dense, kind))
        for name, dense in layers.items()
        for kind in ("weight", "bias")
    }
    return out | ({} if policy.log_std is None else {"log_std": np.asarray(policy.log_std)})


def assert_equal_weights(
    ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray], start: dict[str, np.ndarray]
) -> None:
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], **TOLERANCE, err_msg=name)
        assert not np.allclose(ours[name], start[name], atol=1e-3), f"{name} was not trained: nothing is compared"


def compare(config: Config, settings: torch_step.Settings, space: Space) -> None:
    """Three steps on three parts of one rollout, collected by another policy than the one that learns."""
    segment = make_segment(config, space=space)
    behavior = make_actor_critic(config, 100, space)  # the policy of `make_segment` with seed 0
    learner = make_learner(config, space=space)
    if config.proximal_policy == "ewma":
        learner = with_fields(learner, proximal=Ewma.start(learner.networks.policy))
    batch, *_ = prepare(config, segment, learner.networks.policy, None, Moments.empty(), config.hypers)
    flat = jax.tree.map(lambda leaf: leaf.reshape(24, *leaf.shape[2:]), batch)
    parts = [jax.tree.map(lambda leaf: leaf[i::STEPS], flat) for i in range(STEPS)]  # noqa: B023
    start = named(learner.networks.policy, learner.networks)
    minibatches = [
        torch_step.Minibatch(*(np.asarray(x) for x in (p.obs, p.action, p.advantage, p.target))) for p in parts
    ]
    theirs, their_average = torch_step.policy_steps(settings, start, named(behavior.policy, behavior), minibatches)
    rate = jnp.asarray(settings.learning_rate)
    step = jax.jit(lambda part, learner: gradient_step(config, "joint", part, learner, config.hypers, rate)[0])
    for part in parts:
        learner = step(part, learner)
    assert_equal_weights(named(learner.networks.policy, learner.networks), theirs, start)
    if learner.proximal is not None:
        assert_equal_weights(named(learner.proximal.params), their_average, named(behavior.policy))


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", CASES)
def test_gradient_steps_equal_those_of_pytorch(name, space):
    ours, theirs = CASES[name]
    compare(make_config(**ours), torch_step.Settings(**theirs), SPACES[space])


def test_in_single_precision_too():
    """What training really runs in."""
    with jax.enable_x64(False):
        compare(
            make_config(proximal_policy="ewma", beta_prox=0.6),
            torch_step.Settings(proximal="ewma", beta_prox=0.6),
            DISCRETE,
        )


@pytest.mark.parametrize("space", SPACES)
def test_auxiliary_steps_equal_those_of_pytorch(space):
    config = make_config(
        objective="kl", policy_iterations_per_phase=1, aux_minibatches=1, beta_clone=0.7, aux_learning_rate=0.1
    )
    learner, segment = make_learner(config, space=SPACES[space]), make_segment(config, space=SPACES[space])
    obs, target = segment.obs.reshape(24, -1), segment.value.reshape(24)
    start = named(learner.networks.policy, learner.networks)
    old = learner.networks.policy(obs)
    minibatches = []
    for i in range(STEPS):
        minibatches.append(torch_step.Minibatch(np.asarray(obs[i::STEPS]), None, None, np.asarray(target[i::STEPS])))
        part = jax.tree.map(lambda leaf: leaf[i::STEPS], AuxiliaryBatch(obs, target, old))  # noqa: B023
        learner, _ = auxiliary_step(config, part, learner, config.hypers)
    theirs = torch_step.auxiliary_steps(torch_step.Settings(beta_clone=0.7), start, minibatches)
    ours = named(learner.networks.policy, learner.networks)
    assert_equal_weights(ours, theirs, start)
