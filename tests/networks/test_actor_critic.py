"""Networks: forward passes against loops, who trains whose torso, and orthogonal beginnings."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from isobatch.envs.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space
from isobatch.errors import UsageError
from isobatch.networks.actor_critic import ActorCritic, Conv, make_networks, residual_stages
from isobatch.networks.distributions import Bernoulli, Categorical, DiagonalGaussian
from isobatch.settings.config import Config
from isobatch.settings.presets import preset

pytestmark = pytest.mark.usefixtures("float64")

OBS = np.random.default_rng(0).normal(size=(4, 3))  # four observations of three numbers
TWO_ACTIONS = Discrete(2)
ACTIVATIONS = {
    "tanh": math.tanh,
    "relu": lambda x: max(x, 0.0),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "gelu": lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),  # its usual tanh form
}


def networks(seed: int = 0, space: Space = TWO_ACTIONS, shape: tuple[int, ...] = (3,), **settings) -> ActorCritic:
    defaults = dict(hidden_sizes="5,4", num_envs=4, num_steps=8, total_timesteps=32, num_minibatches=1)
    return make_networks(Config().replace(**(defaults | settings)), shape, space, seed)


def with_noise(tree, seed: int = 1):
    """The same networks with every parameter moved, biases too: zeros hide mistakes."""
    leaves, structure = jax.tree.flatten(tree)
    rng = np.random.default_rng(seed)
    return jax.tree.unflatten(structure, [leaf + jnp.asarray(rng.normal(size=leaf.shape)) for leaf in leaves])


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


def test_a_convolution_is_a_sum_over_its_window():
    rng = np.random.default_rng(0)
    image, kernel, bias = rng.normal(size=(5, 6, 2)), rng.normal(size=(3, 3, 2, 4)), rng.normal(size=4)
    expected = np.zeros((3, 4, 4))
    for y, x, out in np.ndindex(*expected.shape):
        expected[y, x, out] = bias[out] + sum(
            image[y + i, x + j, c] * kernel[i, j, c, out] for i in range(3) for j in range(3) for c in range(2)
        )
    ours = Conv(jnp.asarray(kernel), jnp.asarray(bias))(jnp.asarray(image))
    np.testing.assert_allclose(ours, expected, rtol=1e-9)


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


def test_initial_weights_are_orthogonal_with_the_gain_of_their_kind():
    """Rows or columns, whichever are fewer, are orthonormal up to the gain: sqrt 2 hidden, .01 policy, 1 value."""
    nets = networks(shape=(6, 6, 2), channels="4", hidden_sizes="5,7")  # narrower and wider ones
    kernel = nets.policy.torso.convs[0].weight
    layers = [
        (kernel.reshape(-1, kernel.shape[-1]), math.sqrt(2)),
        *((layer.weight, math.sqrt(2)) for layer in nets.policy.torso.denses),
        (nets.policy.head.weight, 0.01),
        (nets.value_head.weight, 1.0),
    ]
    for weight, gain in layers:
        w = np.asarray(weight) / gain
        gram = w.T @ w if w.shape[0] >= w.shape[1] else w @ w.T
        np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-9)
    biases = [leaf for leaf in jax.tree.leaves(nets) if leaf.ndim == 1]
    assert biases
    assert all(np.all(np.asarray(bias) == 0) for bias in biases)


def test_the_same_seed_gives_the_same_bits_and_another_one_others():
    one, again, other = (jax.tree.leaves(networks(seed)) for seed in (0, 0, 1))
    for a, b in zip(one, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert all(np.any(a != b) for a, b in zip(one, other, strict=True) if a.ndim == 2)
    dual = networks(0)
    assert np.any(dual.policy.torso.denses[0].weight != dual.value_torso.denses[0].weight)


def test_continuous_actions_begin_with_a_standard_deviation_of_one():
    """The mean depends on the observation, the deviation is one parameter per dimension."""
    nets = networks(space=Box((2,), (-1.0, -1.0), (1.0, 1.0)))
    policy = nets.policy(jnp.asarray(OBS))
    assert isinstance(policy, DiagonalGaussian)
    assert policy.mean.shape == policy.log_std.shape == (4, 2)
    np.testing.assert_array_equal(policy.log_std, 0.0)
    gradient = jax.grad(lambda p: jnp.sum(p(jnp.asarray(OBS)).entropy()))(nets.policy)
    np.testing.assert_allclose(gradient.log_std, 4.0)  # each of the 4 entropies grows by 1 with each log_std


def test_discrete_actions_begin_almost_uniform():
    """The small gain of the policy head: no action is preferred by more than a few per cent."""
    policy = networks(space=Discrete(3)).policy(jnp.asarray(OBS))
    assert isinstance(policy, Categorical)
    np.testing.assert_allclose(np.exp(policy.log_probs), 1 / 3, rtol=0.1)


@pytest.mark.parametrize(("size", "stride", "padding"), [(3, 1, 1), (4, 2, 0), (3, 2, 1)])
def test_convolutions_with_strides_and_padding(size, stride, padding):
    rng = np.random.default_rng(0)
    image, kernel = rng.normal(size=(2, 9, 8, 3)), rng.normal(size=(size, size, 3, 4))
    ours = Conv(jnp.asarray(kernel), jnp.zeros(4), stride, padding)(jnp.asarray(image))
    sides, names = [(padding, padding)] * 2, ("NHWC", "HWIO", "NHWC")
    theirs = jax.lax.conv_general_dilated(image, kernel, (stride, stride), sides, dimension_numbers=names)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def encoder(name: str, shape: tuple[int, ...], **overrides) -> ActorCritic:
    return make_networks(preset("ppo", encoder=name, **overrides), shape, Discrete(15), 0)


def test_impala_has_the_published_size():
    """64 x 64 x 3. Stage of i to o channels: 9 i o + o, and four times 9 o o + o: 448 + 9280, 4640 + 36992 and
    9248 + 36992, 97600 in all; 8 x 8 x 32 features to 256: 524544; 15 actions: 3855."""
    policy = encoder("impala", (64, 64, 3)).policy
    assert sum(leaf.size for leaf in jax.tree.leaves(policy)) == 97_600 + 524_544 + 3_855


def test_nature_has_the_published_size():
    """84 x 84 x 4: 8 x 8 x 4 x 32 + 32 = 8224, 4 x 4 x 32 x 64 + 64 = 32832, 3 x 3 x 64 x 64 + 64 = 36928; 7 x 7 x 64
    features to 512: 1606144; 15 actions: 7695."""
    policy = encoder("nature", (84, 84, 4)).policy
    assert sum(leaf.size for leaf in jax.tree.leaves(policy)) == 8_224 + 32_832 + 36_928 + 1_606_144 + 7_695


def test_a_residual_stage_by_hand():
    """One channel, kernels that only keep the middle, scaled by 1, .5, 2, .25 and 4; x = 8 everywhere. The pooling
    takes every second pixel; the blocks add 2 x .5 x 8 and 4 x .25 x 16: 8 -> 16 -> 32."""
    middle = np.zeros((3, 3, 1, 1))
    middle[1, 1] = 1
    convs = tuple(Conv(jnp.asarray(scale * middle), jnp.zeros(1), 1, 1) for scale in (1, 0.5, 2, 0.25, 4))
    out = residual_stages(convs, jax.nn.relu, jnp.full((2, 6, 5, 1), 8.0))
    np.testing.assert_allclose(out, np.full((2, 3, 3, 1), 32.0))


@pytest.mark.parametrize("name", ["impala", "conv"])
def test_channels_in_front_are_as_good_as_at_the_end(name):
    image = np.random.default_rng(0).integers(0, 256, size=(2, 12, 12, 3), dtype=np.uint8)
    last, first = (encoder(name, shape, hidden_sizes="8") for shape in ((12, 12, 3), (3, 12, 12)))
    ours = first.policy(jnp.asarray(np.moveaxis(image, -1, -3))).logits
    np.testing.assert_allclose(ours, last.policy(jnp.asarray(image)).logits, rtol=1e-9)


def test_encoders_that_do_not_fit_are_refused():
    for name, shape, says in (
        ("impala", (4,), "needs images"),
        ("nature", (20, 20, 3), "at least 36 pixels"),
        ("auto", (64, 64, 3), "use impala or nature"),
    ):
        with pytest.raises(UsageError, match=says):
            make_networks(preset("ppo", encoder=name), shape, Discrete(2), 0)
    with pytest.raises(UsageError, match="three sizes"):
        preset("ppo", encoder="nature", channels="8,8")


def test_products_of_choices_and_switches_have_their_distributions():
    assert networks(space=MultiDiscrete((2, 3))).policy(jnp.asarray(OBS)).logits.shape == (4, 5)
    assert isinstance(networks(space=MultiBinary(3)).policy(jnp.asarray(OBS)), Bernoulli)
