"""PPOEWMA and isobatch's own `ppo-ewma`, gradient step by gradient step, from equal weights and data."""

import itertools
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from made_up import CONTINUOUS, DISCRETE, make_actor_critic, make_config, make_learner, make_segment, with_fields

from isobatch.learning.policy_phase import estimate_advantages, gradient_step, prepare, total_loss
from isobatch.learning.proximal import Ewma
from isobatch.networks.actor_critic import ActorCritic, Policy
from isobatch.networks.moments import Moments
from isobatch.rollouts.segment import Segment
from isobatch.settings.config import Config

pytest.importorskip("stable_baselines3", reason="the extra sb3 is not installed")

import torch
from sb3_models import SEPARATE, SHARED, small
from stable_baselines3.common.logger import Logger

from isobatch.torch import PPOEWMA

pytestmark = pytest.mark.usefixtures("float64", "double_observations")

OURS = {"discrete": DISCRETE, "continuous": CONTINUOUS}
ARRANGEMENTS = {"dual": SEPARATE, "shared": SHARED}
STEPS = 10
RATE = 0.05
NEAR = dict(rtol=1e-5, atol=1e-9)

CASES: dict[str, dict[str, Any]] = {
    "clip": dict(objective="clip", advantage_norm="iteration"),
    "kl, over iterations": dict(objective="kl", kl_coef=0.7, advantage_norm="ewma", adv_norm_decay=0.6),
    "kl, squared": dict(objective="kl", kl_coef=0.7, kl_form="squared", advantage_norm="none"),
}


@pytest.fixture
def double_observations(monkeypatch: pytest.MonkeyPatch) -> None:
    """SB3 makes observations float32; here they stay what they are, and epochs go through the samples in order."""
    monkeypatch.setattr("stable_baselines3.common.policies.preprocess_obs", lambda obs, space, normalize_images: obs)
    monkeypatch.setattr(np.random, "permutation", np.arange)


def named(policy: Policy, networks: ActorCritic | None = None) -> dict[str, np.ndarray]:
    """Weights by the names that SB3 has for them."""
    shared = networks is not None and networks.value_torso is None
    hidden = "features_extractor.layer.0" if shared else "mlp_extractor.policy_net.0"
    layers = {hidden: policy.torso.denses[0], "action_net": policy.head}
    if networks is not None:
        layers["value_net"] = networks.value_head
        if networks.value_torso is not None:
            layers["mlp_extractor.value_net.0"] = networks.value_torso.denses[0]
    out = {f"{name}.weight": np.asarray(layer.weight).T for name, layer in layers.items()}
    out |= {f"{name}.bias": np.asarray(layer.bias) for name, layer in layers.items()}
    return out | ({} if policy.log_std is None else {"log_std": np.asarray(policy.log_std)})


def sb3_model(config: Config, space: str, networks: ActorCritic, **settings: Any) -> PPOEWMA:
    """A model with these weights, in double precision."""
    hypers = config.hypers
    model = small(
        PPOEWMA, space, policy_kwargs=ARRANGEMENTS[config.arrangement], learning_rate=RATE, gamma=hypers.gamma,
        ent_coef=hypers.ent_coef, vf_coef=hypers.vf_coef / 2, clip_range=hypers.clip_eps, beta_prox=hypers.beta_prox,
        max_grad_norm=hypers.max_grad_norm, **settings,
    )  # fmt: skip
    model.policy.double()
    model.proximal.double()
    state = {name: torch.tensor(value) for name, value in named(networks.policy, networks).items()}
    known = model.policy.state_dict()
    aliases = ("pi_features_extractor", "vf_features_extractor")  # the same tensors under other names
    state |= {name: state[name.split("_", 1)[1]] for name in known if name.startswith(aliases)}
    model.policy.load_state_dict(state)
    model.policy.optimizer = torch.optim.Adam(model.policy.parameters(), lr=RATE, eps=hypers.optimizer_eps)
    model.proximal.restart(model.policy)
    model.set_logger(Logger(None, []))
    return model


def fill(model: PPOEWMA, config: Config, segment: Segment) -> None:
    """The rollout buffer as if SB3 had collected the segment."""
    buffer, numbers = model.rollout_buffer, np.array
    advantage = numbers(estimate_advantages(config, segment, segment.reward, config.hypers))
    buffer.reset()
    buffer.observations, buffer.values, buffer.log_probs = map(numbers, (segment.obs, segment.value, segment.log_prob))
    buffer.advantages, buffer.returns = advantage, advantage + numbers(segment.value)
    buffer.actions = numbers(segment.action).reshape(*segment.reward.shape, -1)
    buffer.full = True


def float32_actions(segment: Segment) -> Segment:
    """Continuous actions as a buffer of SB3 keeps them."""
    action = segment.action.astype(jnp.float32).astype(segment.action.dtype)
    return with_fields(segment, action=action, log_prob=segment.behavior.log_prob(action))


def env_major(leaf: jax.Array) -> jax.Array:
    """[T, N, ...] -> [N T, ...], the order of SB3's minibatches."""
    return jnp.swapaxes(leaf, 0, 1).reshape(-1, *leaf.shape[2:])


def assert_near(theirs: dict[str, torch.Tensor], ours: dict[str, np.ndarray], what: str) -> None:
    for name, value in ours.items():
        np.testing.assert_allclose(theirs[name].detach().numpy(), value, **NEAR, err_msg=f"{what}: {name}")


@pytest.mark.parametrize(
    ("case", "space", "arrangement"),
    [*itertools.product(("clip", "kl, over iterations"), OURS, ARRANGEMENTS), ("kl, squared", "discrete", "dual")],
)
def test_losses_gradients_and_weights_agree_in_every_step(case: str, space: str, arrangement: str) -> None:
    """Ten rollouts by ten other policies, one gradient step on each."""
    config = make_config(
        proximal_policy="ewma", beta_prox=0.6, clip_eps=0.1, max_grad_norm=1e9, arrangement=arrangement, **CASES[case]
    )
    learner = make_learner(config, space=OURS[space])
    learner = with_fields(learner, proximal=Ewma.start(learner.networks.policy))
    model = sb3_model(config, space, learner.networks, batch_size=24, n_epochs=1, **CASES[case])
    moments, hypers = Moments.empty(), config.hypers

    @jax.jit
    def step(segment: Segment, learner: Any, moments: Moments) -> tuple[Any, ...]:
        batch, _, moments, _ = prepare(config, segment, learner.networks.policy, None, moments, hypers)
        flat = jax.tree.map(env_major, batch)
        slopes, _ = gradient(flat, learner.networks, learner.proximal.params, hypers)
        return slopes, *gradient_step(config, "joint", flat, learner, hypers, jnp.asarray(RATE)), moments

    gradient = jax.grad(partial(total_loss, config, "joint"), argnums=1, has_aux=True)
    clipped = 0.0
    for i in range(STEPS):
        segment = float32_actions(make_segment(config, seed=i, space=OURS[space]))
        fill(model, config, segment)
        slopes, learner, metrics, moments = step(segment, learner, moments)
        model.train()
        logged = model.logger.name_to_value
        np.testing.assert_allclose(logged["train/policy_gradient_loss"], metrics["losses/policy_loss"], **NEAR)
        np.testing.assert_allclose(logged["train/value_loss"], 2 * metrics["losses/value_loss"], **NEAR)
        np.testing.assert_allclose(-logged["train/entropy_loss"], metrics["losses/entropy"], **NEAR)
        np.testing.assert_allclose(logged["train/approx_kl"], metrics["losses/approx_kl"], **NEAR)
        grads = {name: p.grad for name, p in model.policy.named_parameters()}
        assert_near(grads, named(slopes.policy, slopes), f"gradient {i}")
        assert_near(model.policy.state_dict(), named(learner.networks.policy, learner.networks), f"weights {i}")
        average = named(learner.proximal.params, with_fields(learner.networks, policy=learner.proximal.params))
        policy_part = {name: value for name, value in average.items() if "value" not in name}
        assert_near(model.proximal.module.state_dict(), policy_part, f"average {i}")
        np.testing.assert_allclose(logged["train/proximal_age"], learner.proximal.age, **NEAR)
        if config.objective == "clip":
            np.testing.assert_allclose(logged["train/clip_fraction"], metrics["losses/clipfrac"], atol=1e-6)
            clipped += logged["train/clip_fraction"]
    assert config.objective != "clip" or clipped > 0.5, "nothing was clipped: nothing is compared"


@pytest.mark.parametrize("space", OURS)
def test_epochs_of_minibatches_with_gradient_clipping_agree(space: str) -> None:
    """Two epochs of two minibatches on each of three rollouts, the norm of the gradient cut to .5."""
    config = make_config(proximal_policy="ewma", beta_prox=0.8, num_minibatches=2, update_epochs=2)
    learner = make_learner(config, space=OURS[space])
    learner = with_fields(learner, proximal=Ewma.start(learner.networks.policy))
    model = sb3_model(config, space, learner.networks)
    step = jax.jit(
        lambda batch, learner: gradient_step(config, "joint", batch, learner, config.hypers, jnp.asarray(RATE))[0]
    )
    for i in range(3):
        segment = float32_actions(make_segment(config, seed=i, space=OURS[space]))
        fill(model, config, segment)
        model.train()
        batch, *_ = prepare(config, segment, learner.networks.policy, None, Moments.empty(), config.hypers)
        flat = jax.tree.map(env_major, batch)
        for half in (slice(0, 12), slice(12, 24)) * 2:
            learner = step(jax.tree.map(lambda leaf: leaf[half], flat), learner)  # noqa: B023
    # torch divides by the norm + 1e-6
    for name, value in named(learner.networks.policy, learner.networks).items():
        np.testing.assert_allclose(model.policy.state_dict()[name].numpy(), value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_what_is_compared_moves() -> None:
    config = make_config(proximal_policy="ewma")
    start, end = (named(make_actor_critic(config, seed).policy) for seed in (0, 100))
    assert all(not np.allclose(start[name], end[name], atol=1e-2) for name in start)
