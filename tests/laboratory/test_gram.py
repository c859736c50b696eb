"""Per-sample gradients, their inner products layer by layer, and random projections, against explicit gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree
from jaxtyping import Array
from tiny import tiny

from isobatch.envs.spaces import Box, Discrete, Space
from isobatch.errors import UsageError
from isobatch.laboratory import inner_products as engine
from isobatch.laboratory.inner_products import compiled_gram, gram, plan
from isobatch.laboratory.layers import Losses
from isobatch.laboratory.per_sample import mean_gradient, per_sample_gradients
from isobatch.laboratory.projection import project, projected_gram
from isobatch.learning.losses import clipped, policy_gradient, value_loss
from isobatch.networks.actor_critic import ActorCritic
from isobatch.networks.initialization import make_networks
from isobatch.networks.layers import Dense

SAMPLES = 7
TWO = Box((2,), (-1.0, -1.0), (1.0, 1.0))


class Case(NamedTuple):
    losses: Losses
    network: Any
    samples: Any


def drawn(*shape: int, seed: int = 0, scale: float = 1.0) -> Array:
    return jnp.asarray(scale * np.random.default_rng(seed).standard_normal(shape), jnp.result_type(float))


def moved(network: Any, seed: int = 1, far: float = 0.3) -> Any:
    """Away from where it is: initial biases are zero, and the initial policy is nearly uniform."""
    flat, unravel = ravel_pytree(network)
    return unravel(flat + drawn(flat.size, seed=seed, scale=far))


def policy_losses(policy: Any, samples: Any) -> Array:
    obs, action, advantage = samples
    return policy_gradient(policy(obs).log_prob(action), advantage)


def policy_case(obs_shape: tuple[int, ...], space: Space, count: int = SAMPLES, **options: Any) -> Case:
    networks = make_networks(tiny(**options), obs_shape, space, seed=0)
    action = jnp.arange(count) % space.n if isinstance(space, Discrete) else drawn(count, *space.shape, seed=3)
    samples = (drawn(count, *obs_shape, seed=2), action, drawn(count, seed=4))
    return Case(policy_losses, moved(networks.policy), samples)


def ppo_losses(networks: ActorCritic, samples: Any) -> Array:
    """Everything that PPO adds up, at a policy that is not the one that acted."""
    distribution, value = networks(samples["obs"])
    log_prob, log_behav = distribution.log_prob(samples["action"]), samples["log_behav"]
    policy = clipped(log_prob, log_behav, log_behav, samples["advantage"], 0.2)
    return policy + 0.5 * value_loss(value, samples["target"]) - 0.01 * distribution.entropy()


def ppo_case(arrangement: str) -> Case:
    old = moved(make_networks(tiny(arrangement=arrangement), (3,), Discrete(3), seed=0))
    obs, action = drawn(SAMPLES, 3), jnp.arange(SAMPLES) % 3
    samples = {"obs": obs, "action": action, "log_behav": old(obs)[0].log_prob(action)}
    samples |= {"advantage": drawn(SAMPLES, seed=5), "target": drawn(SAMPLES, seed=6)}
    return Case(ppo_losses, moved(old, seed=7, far=1.0), samples)


def dense(inputs: int, outputs: int, seed: int) -> Dense:
    return Dense(drawn(inputs, outputs, seed=seed), drawn(outputs, seed=seed + 100))


class Stack(eqx.Module):
    """Layers one after the other, in the order of `calls`."""

    layers: tuple[Any, ...]
    scale: Array  # a parameter of no layer
    calls: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        for i in self.calls:
            x = jnp.tanh(self.layers[i](x))
        return self.scale * jnp.sum(x.reshape(len(x), -1), axis=-1)


def stack_case(layers: tuple[Any, ...], calls: tuple[int, ...], x: Array) -> Case:
    return Case(lambda net, samples: net(samples) ** 2, Stack(layers, drawn(seed=8), calls), x)


class OwnNetwork(eqx.Module):
    """A user's network, which the engine knows nothing about."""

    first: eqx.nn.Linear
    second: eqx.nn.Linear

    def __call__(self, x: Array) -> Array:
        return self.second(jnp.tanh(self.first(x)))[0]


def own_case() -> Case:
    keys = jax.random.split(jax.random.key(0))
    network = OwnNetwork(eqx.nn.Linear(3, 4, key=keys[0]), eqx.nn.Linear(4, 1, key=keys[1]))
    return Case(lambda net, x: jax.vmap(net)(x) ** 2, network, drawn(SAMPLES, 3))


def recurrent_case() -> Case:
    """A layer that is called once and applied three times: Python sees the body of a scan once."""

    def losses(layer: Dense, x: Array) -> Array:
        return jnp.sum(jax.lax.scan(lambda h, _: (jnp.tanh(layer(h)), None), x, length=3)[0], axis=-1)

    return Case(losses, dense(4, 4, 0), drawn(SAMPLES, 4))


def vmapped_case() -> Case:
    """Inside the vmap the first axis is as long as there are samples, and is not that of the samples."""
    network = dense(3, 2, 0)
    return Case(
        lambda net, x: jax.vmap(lambda rows: jnp.sum(jnp.tanh(net(rows))))(x), network, drawn(SAMPLES, SAMPLES, 3)
    )


def transposed_case() -> Case:
    """The same without a vmap: positions come before samples, and are as many."""
    network = dense(3, 2, 0)
    return Case(
        lambda net, x: jnp.sum(jnp.tanh(net(x.swapaxes(0, 1))), axis=(0, 2)), network, drawn(SAMPLES, SAMPLES, 3)
    )


CASES: dict[str, Callable[[], Case]] = {
    "discrete actions": lambda: policy_case((3,), Discrete(3), hidden_sizes="6,5"),
    "continuous actions": lambda: policy_case((3,), TWO, hidden_sizes="6,5", activation="silu"),
    "images": lambda: policy_case((6, 5, 2), Discrete(3), channels="3,2", hidden_sizes="4"),
    "residual network": lambda: policy_case((2, 6, 5), Discrete(3), encoder="impala", channels="2,3", hidden_sizes="4"),
    "clipped PPO, two networks": lambda: ppo_case("dual"),
    "clipped PPO, shared torso": lambda: ppo_case("shared"),
    "clipped PPO, detached torso": lambda: ppo_case("detached"),
    "layer applied twice": lambda: stack_case((dense(3, 3, 1), dense(3, 4, 2)), (0, 0, 1), drawn(SAMPLES, 3)),
    "layer never applied": lambda: stack_case((dense(3, 3, 1), dense(3, 4, 2)), (1,), drawn(SAMPLES, 3)),
    "few positions": lambda: stack_case((dense(9, 8, 1), dense(8, 9, 2)), (0, 1), drawn(SAMPLES, 2, 9)),
    "the user's own network": own_case,
    "layer in a scan": recurrent_case,
    "layer in a vmap": vmapped_case,
    "positions before samples": transposed_case,
}


def oracle(case: Case) -> np.ndarray:
    """Gradients [n, P] in double precision, one backward pass at a time."""
    gradient = jax.jit(jax.grad(lambda net, sample: case.losses(net, sample)[0]))
    alone = [jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], case.samples) for i in range(SAMPLES)]
    return np.array([ravel_pytree(gradient(case.network, sample))[0] for sample in alone], np.float64)


@cache
def with_oracle(name: str) -> tuple[Case, np.ndarray]:
    case = CASES[name]()
    return case, oracle(case)


def check_gram(case: Case, tolerance: float) -> None:
    """Within `tolerance` of |g_i| |g_j|."""
    gradients = oracle(case)
    exact = gradients @ gradients.T
    size = np.sqrt(np.diag(exact))
    assert np.count_nonzero(size) > SAMPLES / 2
    error = np.abs(np.asarray(gram(case.losses, case.network, case.samples), np.float64) - exact)
    assert np.all(error <= tolerance * np.outer(size, size))


@pytest.mark.parametrize("name", CASES)
def test_inner_products_are_those_of_explicit_gradients(name: str) -> None:
    check_gram(CASES[name](), 1e-5)


@pytest.mark.parametrize("name", ["images", "clipped PPO, two networks", "few positions"])
def test_inner_products_in_double_precision(name: str) -> None:
    with jax.enable_x64(True):
        check_gram(CASES[name](), 1e-10)


@pytest.mark.parametrize("name", ["continuous actions", "images", "few positions"])
def test_microbatches_groups_and_blocks_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three samples at a time, of seven, one layer at a time, and two rows of the result."""
    monkeypatch.setattr(engine, "BLOCK", 2)
    case = CASES[name]()
    made = plan(*case)
    active = made.others + sum(w.positions * (w.inputs + w.outputs) for w in made.methods.values())
    monkeypatch.setattr(engine, "STORED_BYTES", 1)
    monkeypatch.setattr(engine, "MICROBATCH_BYTES", 3.5 * 4 * active)
    made = plan(*case)
    assert made.microbatch == 3
    assert len(made.groups) == len(made.methods) + (made.others > 0) > 1
    check_gram(case, 1e-5)


def test_compiled_for_other_samples() -> None:
    """One compilation serves several networks and samples."""
    case = CASES["continuous actions"]()
    compiled = compiled_gram(case.losses)
    for other in (case, Case(case.losses, moved(case.network), (case.samples[0] + 1, *case.samples[1:]))):
        gradients = oracle(other)
        np.testing.assert_allclose(
            compiled(other.network, other.samples), gradients @ gradients.T, rtol=1e-4, atol=1e-4
        )


def test_clipped_samples_have_no_gradient_of_the_policy() -> None:
    """The PPO cases are what they claim: some samples are clipped and some are not."""
    case = ppo_case("dual")
    distribution, _ = case.network(case.samples["obs"])
    ratio = np.exp(distribution.log_prob(case.samples["action"]) - case.samples["log_behav"])
    advantage = np.asarray(case.samples["advantage"])
    held = np.where(advantage > 0, ratio > 1.2, ratio < 0.8)
    assert 0 < np.sum(held) < SAMPLES
    without_entropy = Case(
        lambda net, s: clipped(
            net(s["obs"])[0].log_prob(s["action"]), s["log_behav"], s["log_behav"], s["advantage"], 0.2
        ),
        *case[1:],
    )
    np.testing.assert_array_equal(np.diag(gram(*without_entropy)) == 0, held)


def test_unknown_layers_are_told_from_known_ones() -> None:
    assert not plan(*CASES["layer in a scan"]()).methods
    assert not plan(*CASES["layer in a vmap"]()).methods
    assert not plan(*CASES["positions before samples"]()).methods
    assert not plan(*CASES["the user's own network"]()).methods
    twice = plan(*CASES["layer applied twice"]())
    assert list(twice.methods) == [1]  # 3 x 3 + 3 of the other layer, and `scale`
    assert twice.others == 3 * 3 + 3 + 1
    assert plan(*CASES["continuous actions"]()).others == 2  # log_std


def test_each_layer_goes_the_cheaper_way() -> None:
    """Positions^2 (In + Out) against In Out multiplications for each pair of samples, In with one for the bias.

    Dense 8 -> 9: 18 against 81; at two positions 4 x 18 = 72 against 81. Convolution 2 -> 3 over 4 x 3 positions:
    144 x 22 against 57.
    """
    assert all(method.factored for method in plan(*CASES["discrete actions"]()).methods.values())
    few = plan(*CASES["few positions"]()).methods
    assert [(w.factored, w.positions, w.inputs, w.outputs) for w in few.values()] == [(True, 2, 10, 8), (True, 2, 9, 9)]
    conv = plan(*CASES["images"]()).methods[0]
    assert (conv.factored, conv.positions, conv.inputs, conv.outputs) == (False, 12, 19, 3)
    assert conv.stored == 19 * 3
    assert few[0].stored == 2 * (10 + 8)


def test_memory_grows_with_samples_and_too_much_of_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["discrete actions"]()
    made = plan(*case)
    need = [made.bytes(count) for count in (10, 100, 1000)]
    assert need[0] < need[1] < need[2]
    assert need[2] - need[0] > 4 * (1000**2 - 10**2)  # the result alone
    monkeypatch.setattr(engine, "available_bytes", lambda: made.bytes(SAMPLES))
    with pytest.raises(UsageError, match=r"gradients of 7 samples need .* available: lower the budget"):
        gram(*case)
    monkeypatch.setattr(engine, "available_bytes", lambda: 2 * made.bytes(SAMPLES))
    gram(*case)


@settings(max_examples=5)  # each compiles
@given(microbatch=st.integers(1, 9))
def test_per_sample_gradients_are_unscaled_at_any_microbatch_size(microbatch: int) -> None:
    case, expected = with_oracle("clipped PPO, shared torso")
    found = jax.jit(lambda *at: per_sample_gradients(case.losses, *at, microbatch=microbatch))(*case[1:])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_the_mean_of_per_sample_gradients_is_the_gradient_of_the_batch() -> None:
    case = CASES["images"]()
    mean = mean_gradient(*case)
    assert np.linalg.norm(mean) > 0.1
    np.testing.assert_allclose(np.mean(per_sample_gradients(*case), axis=0), mean, rtol=1e-4, atol=1e-6)


def test_a_projection_is_unbiased_and_its_error_covers() -> None:
    """200 seeds. Every inner product within 4 standard errors of its mean; the stated errors are neither too small nor
    idle: the error in their units has a root mean square near 1 (below it by the term that is left out)."""
    case = CASES["discrete actions"]()
    gradients = oracle(case)
    exact = gradients @ gradients.T
    run = jax.jit(jax.vmap(lambda seed: projected_gram(*case, directions=64, seed=seed)))
    products, stated = (np.asarray(a, np.float64) for a in run(jnp.arange(200)))
    of_mean = products.std(axis=0, ddof=1) / np.sqrt(len(products))
    assert np.all(np.abs(products.mean(axis=0) - exact) < 4 * of_mean)
    rms = np.sqrt(np.mean(((products - exact) / stated) ** 2))
    assert 0.8 < rms < 1.1


def test_a_projection_is_of_its_seed() -> None:
    case = CASES["discrete actions"]()
    first, again, other = (np.asarray(project(*case, directions=3, seed=seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.all(first != other)
    assert first.shape == (SAMPLES, 3)
