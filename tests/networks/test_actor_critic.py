"""Actor and critic: forward passes against loops, and who trains whose torso."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_networks import OBS, networks, with_noise

from isobatch.envs.spaces import MultiBinary, MultiDiscrete
from isobatch.networks.actor_critic import ActorCritic
from isobatch.networks.distributions import Bernoulli

pytestmark = pytest.mark.usefixtures("float64")


ACTIVATIONS = {
    "tanh": math.tanh,
    "relu": lambda x: max(x, 0.0),
    "elu": lambda x: x if x > 0 else math.exp(x) - 1,
    "silu": lambda x: x / (1 + math.exp(-x)),
    "gelu": lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),  # its usual tanh form
}


def dense(layer, x: np.ndarray) -> np.ndarray:
    weight, bias = np.asarray(layer.weight), np.asarray(layer.bias)
    return np.array([sum(x[i] * weight[i, j] for i in range(len(x))) + bias[j] for j in range(len(bias))])


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_mlp_is_its_layers_one_after_the_other(activation):
    nets = with_noise(networks(activation=activation))
    act = np.vectorize(ACTIVATIONS[activation])
    policy, value = nets(jnp.asarray(OBS))
    for i, obs in enumerate(OBS):
        features, value_features = obs, obs
        for layer, value_layer in zip(nets.policy.torso.denses, nets.value_torso.denses, strict=True):
            features, value_features = act(dense(layer, features)), act(dense(value_layer, value_features))
        np.testing.assert_allclose(policy.logits[i], dense(nets.policy.head, features), rtol=1e-9)
        np.testing.assert_allclose(value[i], dense(nets.value_head, value_features)[0], rtol=1e-9)


@pytest.mark.parametrize("arrangement", ["dual", "shared", "detached"])
def test_any_leading_axes_are_batch_axes(arrangement):
    """[T, N, ...] at once = one observation at a time, for vectors and for images; value() = the value of a call."""
    for shape in ((3,), (5, 5, 2)):
        nets = with_noise(networks(shape=shape, arrangement=arrangement, channels="3"))
        obs = jnp.asarray(np.random.default_rng(2).normal(size=(2, 3, *shape)))
        policy, value = nets(obs)
        assert policy.logits.shape == (2, 3, 2)
        np.testing.assert_allclose(nets.value(obs), value, rtol=1e-9)
        np.testing.assert_allclose(nets.policy(obs).logits, policy.logits, rtol=1e-9)
        one_policy, one_value = nets(obs[1, 2])
        np.testing.assert_allclose(policy.logits[1, 2], one_policy.logits, rtol=1e-9)
        np.testing.assert_allclose(value[1, 2], one_value, rtol=1e-9)


def test_bytes_are_fractions_of_255_and_bits_are_zero_or_one():
    nets = with_noise(networks(shape=(4, 4, 1), channels="2"))
    image = np.random.default_rng(0).integers(0, 256, size=(4, 4, 1))
    np.testing.assert_allclose(
        nets.value(jnp.asarray(image, jnp.uint8)), nets.value(jnp.asarray(image / 255)), rtol=1e-9
    )
    np.testing.assert_allclose(nets.value(jnp.asarray(image > 99)), nets.value(jnp.asarray((image > 99) * 1.0)))


def moved(loss, nets: ActorCritic) -> dict[str, bool]:
    """Which parts a loss would train."""
    gradient = jax.grad(loss)(nets)
    parts = {
        "policy torso": gradient.policy.torso,
        "policy head": gradient.policy.head,
        "value torso": gradient.value_torso,
        "value head": gradient.value_head,
        "aux head": gradient.aux_head,
    }
    return {name: any(np.any(np.asarray(leaf) != 0) for leaf in jax.tree.leaves(part)) for name, part in parts.items()}


def phasic(arrangement: str) -> ActorCritic:
    """With the auxiliary head of PPG."""
    return with_noise(networks(arrangement=arrangement, policy_iterations_per_phase=1, aux_minibatches=1))


VALUE_TRAINS = {
    "dual": {"value torso", "value head"},
    "shared": {"policy torso", "value head"},
    "detached": {"value head"},
}


TRUE_VALUE_TRAINS = VALUE_TRAINS | {"detached": {"policy torso", "value head"}}


@pytest.mark.parametrize("arrangement", VALUE_TRAINS)
def test_what_the_value_loss_of_the_policy_phase_trains(arrangement):
    trained = moved(lambda nets: jnp.sum(nets(jnp.asarray(OBS))[1]), phasic(arrangement))
    assert {name for name, is_moved in trained.items() if is_moved} == VALUE_TRAINS[arrangement]


@pytest.mark.parametrize("arrangement", TRUE_VALUE_TRAINS)
def test_what_the_auxiliary_phase_trains(arrangement):
    """Both values train the torso they stand on: that is the purpose of the phase, also for a detached torso."""
    nets = phasic(arrangement)
    for output, expected in ((1, TRUE_VALUE_TRAINS[arrangement]), (2, {"policy torso", "aux head"})):
        trained = moved(lambda n: jnp.sum(n.for_auxiliary_phase(jnp.asarray(OBS))[output]), nets)  # noqa: B023
        assert {name for name, is_moved in trained.items() if is_moved} == expected


@pytest.mark.parametrize("arrangement", VALUE_TRAINS)
def test_the_policy_loss_trains_the_policy_alone(arrangement):
    trained = moved(lambda nets: jnp.sum(nets(jnp.asarray(OBS))[0].log_probs[:, 0]), phasic(arrangement))
    assert {name for name, is_moved in trained.items() if is_moved} == {"policy torso", "policy head"}


@pytest.mark.parametrize("arrangement", VALUE_TRAINS)
def test_the_auxiliary_phase_sees_the_same_policy_and_value(arrangement):
    nets = phasic(arrangement)
    policy, value = nets(jnp.asarray(OBS))
    aux_policy, aux_phase_value, aux_value = nets.for_auxiliary_phase(jnp.asarray(OBS))
    np.testing.assert_allclose(aux_policy.logits, policy.logits, rtol=1e-9)
    np.testing.assert_allclose(aux_phase_value, value, rtol=1e-9)
    assert not np.allclose(aux_value, value)


def test_only_ppg_has_an_auxiliary_head():
    assert networks().aux_head is None
    assert phasic("dual").aux_head is not None


def test_products_of_choices_and_switches_have_their_distributions():
    assert networks(space=MultiDiscrete((2, 3))).policy(jnp.asarray(OBS)).logits.shape == (4, 5)
    assert isinstance(networks(space=MultiBinary(3)).policy(jnp.asarray(OBS)), Bernoulli)
