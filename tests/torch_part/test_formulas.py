"""The formulas in PyTorch, against those of the package in JAX and against sums written out."""

# ruff: noqa: E402

import doctest

import jax.numpy as jnp
import numpy as np
import pytest

import isobatch as ib

torch = pytest.importorskip("torch", reason="the extra sb3 is not installed")

from isobatch.torch import AdvantageMoments, Ewma, LossWithProximal, formulas

pytestmark = pytest.mark.usefixtures("float64")
NEAR = dict(rtol=1e-12, atol=1e-12)


def draw(seed: int, size: int = 64) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=size)


def test_examples() -> None:
    assert doctest.testmod(formulas).failed == 0
    assert doctest.testmod(formulas).attempted > 10


@pytest.mark.parametrize("cap", [1.5, 100.0])
@pytest.mark.parametrize("eps", [0.1, 0.2, 2.0])
def test_clipped_loss_and_its_gradient(eps: float, cap: float) -> None:
    import jax

    log_prob, log_prox, log_behav, advantage = (draw(seed) for seed in range(4))

    def ours(log_prob: jax.Array) -> jax.Array:
        behav = ib.losses.capped_behavior(log_prob, jnp.asarray(log_behav), cap)
        return ib.losses.clipped(log_prob, jnp.asarray(log_prox), behav, jnp.asarray(advantage), eps)

    current = torch.tensor(log_prob, requires_grad=True)
    others = [torch.tensor(x) for x in (log_prox, log_behav, advantage)]
    losses = LossWithProximal(clip_eps=eps, importance_cap=cap)(current, *others)
    losses.sum().backward()
    np.testing.assert_allclose(losses.detach().numpy(), ours(jnp.asarray(log_prob)), **NEAR)
    slopes = jax.grad(lambda x: jnp.sum(ours(x)))(jnp.asarray(log_prob))
    np.testing.assert_allclose(current.grad.numpy(), slopes, **NEAR)


def test_kl_losses() -> None:
    log_prob, log_prox, log_behav, advantage, kl = (draw(seed) for seed in range(5))
    loss = LossWithProximal(kl_coef=0.7)
    tensors = [torch.tensor(x) for x in (log_prob, log_prox, log_behav, advantage)]
    weighted = np.exp(log_prob - log_behav) * advantage
    np.testing.assert_allclose(loss(*tensors, torch.tensor(kl)).numpy(), 0.7 * kl - weighted, **NEAR)
    squared = 0.35 * (log_prob - log_prox) ** 2
    np.testing.assert_allclose(loss(*tensors).numpy(), squared - weighted, **NEAR)


def test_the_loss_is_finite_where_ratios_overflow() -> None:
    far = [torch.tensor([x], requires_grad=True) for x in (0.0, -800.0, -900.0, 1.0)]
    loss = LossWithProximal()(*far)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(far[0].grad)


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.99])
def test_the_average_is_the_sum_it_stands_for(beta: float) -> None:
    layer = torch.nn.Linear(3, 2, dtype=torch.float64)
    average, ours = Ewma(layer, beta), ib.Ewma.start(jnp.asarray(layer.weight.detach().numpy()))
    seen = [layer.weight.detach().numpy().copy()]
    for seed in range(5):
        layer.weight.data = torch.tensor(draw(seed, 6).reshape(2, 3))
        seen.append(layer.weight.detach().numpy().copy())
        average.update(layer)
        ours = ours.update(jnp.asarray(seen[-1]), beta)
    shares = beta ** np.arange(5, -1, -1)
    shares /= shares.sum()
    np.testing.assert_allclose(average.module.weight.numpy(), np.tensordot(shares, seen, 1), **NEAR)
    np.testing.assert_allclose(average.age.item(), np.sum(shares * np.arange(5, -1, -1)), **NEAR)
    np.testing.assert_allclose([average.age.item(), average.weight.item()], [ours.age, ours.weight], rtol=1e-6)
    average.restart(layer)
    assert torch.equal(average.module.weight, layer.weight)
    assert average.age == 0


def test_buffers_are_the_newest() -> None:
    norm = torch.nn.BatchNorm1d(2)
    average = Ewma(norm, 0.9)
    norm(torch.randn(8, 2))
    average.update(norm)
    assert torch.equal(average.module.running_mean, norm.running_mean)
    assert not average.module.training


@pytest.mark.parametrize("decay", [0.0, 0.6])
def test_moments_are_those_of_all_samples_so_weighted(decay: float) -> None:
    moments, ours, batches = AdvantageMoments(decay), ib.Moments.empty(), [draw(seed, 4 + seed) for seed in range(4)]
    for batch in batches:
        moments.update(torch.tensor(batch))
        ours = ours.update(jnp.asarray(batch), decay)
    samples = np.concatenate(batches)
    weights = np.concatenate([np.full(len(batch), decay ** (3 - i)) for i, batch in enumerate(batches)])
    mean = np.average(samples, weights=weights)
    variance = np.average((samples - mean) ** 2, weights=weights)
    np.testing.assert_allclose([moments.mean.item(), moments.variance.item()], [mean, variance], **NEAR)
    np.testing.assert_allclose(moments.weight.item(), weights.sum(), **NEAR)
    np.testing.assert_allclose([ours.mean, ours.variance], [mean, variance], rtol=1e-6)
    expected = (samples - mean) / (np.sqrt(variance) + 1e-8)
    np.testing.assert_allclose(moments.normalize(torch.tensor(samples)).numpy(), expected, **NEAR)
