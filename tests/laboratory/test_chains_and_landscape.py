"""The laboratory on an environment whose every episode can be listed: prediction, bias and lags against enumeration."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from later import GAMMA, LAMBDA, Later, decided, exact
from oracles import gae as slow_gae
from tiny import tiny

from isobatch.envs.registry import make_env
from isobatch.errors import UsageError
from isobatch.gradients.variance import direct
from isobatch.laboratory.batches import batch_products, first_episodes
from isobatch.laboratory.chains import num_groups, true_advantages, window_advantages
from isobatch.laboratory.jax_source import JaxSource
from isobatch.laboratory.landscape import ChainProducts, at_geometry, measure, squared_mean, weights_of, window_products
from isobatch.laboratory.options import LabOptions, automatic, chain_length, geometries_of
from isobatch.laboratory.per_sample import full, per_sample_gradients, vanilla
from isobatch.laboratory.sections.lags import diagonal_sums, lag_sums
from isobatch.laboratory.sections.trust_region import QUANTITIES, effect_by_epoch
from isobatch.laboratory.source import draws
from isobatch.learning.policy_phase import prepare, total_loss
from isobatch.learning.state import initial_state
from isobatch.settings.config import Config

pytestmark = pytest.mark.xdist_group("laboratory")


@pytest.fixture(scope="module")
def made() -> SimpleNamespace:
    config = tiny("ppo", gamma=GAMMA, gae_lambda=LAMBDA)
    env = Later()
    state = decided(initial_state(config, env, 3))
    source = JaxSource(config, env, state)
    policy = state.networks.policy
    return SimpleNamespace(config=config, state=state, policy=policy, source=source, chains=source.chains(384, 4, 0))


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("staggered", [False, True])
def test_every_quantity_of_the_landscape_agrees_with_enumeration(made: SimpleNamespace, steps: int, staggered: bool):
    products, _ = measure(made.config, made.policy, made.chains, [(steps, LAMBDA)])
    envs = 8 // steps
    found = at_geometry(products[steps, LAMBDA], envs, (steps, LAMBDA), staggered, weights_of(made.chains.count))
    truth = exact(made.state.networks, steps)
    variance = (truth.variance - truth.shared) / envs if staggered else (
        truth.variance / envs + (1 - 1 / envs) * truth.shared
    )  # fmt: skip
    expected = {
        "signal": truth.signal,
        "squared_bias": truth.squared_bias,
        "individual": truth.sample / 8,
        "variance": variance,
    }
    for name, value in expected.items():
        values = getattr(found, name)
        assert abs(values[0] - value) < 4 * values[1:].std() + 1e-9, name
    np.testing.assert_allclose(found.individual + found.within + found.across, found.variance, rtol=1e-9)
    # The intervals are worth something: the estimates are far from zero.
    assert found.variance[0] > 4 * found.variance[1:].std()
    if steps == 1:
        assert truth.squared_bias > 0.01 * truth.variance
        assert found.squared_bias[0] > 2 * found.squared_bias[1:].std()


def test_directly_measured_variance_agrees_with_the_prediction(made: SimpleNamespace) -> None:
    products = batch_products(made.config, made.policy, made.source, 4, 2, 256, 1)
    truth = exact(made.state.networks, 2)
    several = np.array(
        [float(direct(p)(np.ones(64))) for p in (products[i : i + 64, i : i + 64] for i in range(0, 256, 64))]
    )
    assert abs(several.mean() - truth.variance / 4) < 5 * several.std(ddof=1) / 2


def test_window_advantages_are_those_of_rollouts_cut_there(made: SimpleNamespace) -> None:
    """Against the slow oracle on each window by itself."""
    env, config = make_env("Probe-Delay"), tiny("ppo", "Probe-Delay", gamma=GAMMA)
    chains = JaxSource(config, env, initial_state(config, env, 0)).chains(4, 6, 0)
    segment = chains.segment
    for steps in (1, 3):
        found = np.asarray(window_advantages(config, chains, steps, LAMBDA))
        for begin in range(0, 6, steps):
            rows = slice(begin, begin + steps)
            columns = [np.asarray(x[rows], float) for x in (segment.reward, segment.value, segment.next_value)]
            ends = [np.asarray(x[rows]) for x in (segment.terminated, segment.truncated)]
            np.testing.assert_allclose(found[rows], slow_gae(*columns, *ends, GAMMA, LAMBDA), atol=1e-5)


def test_true_advantages_play_on_past_the_time_limit() -> None:
    """Probe-Truncation pays 1 for ever and is cut off after 5 steps: the true return is always 1/(1 - gamma)."""
    env, config = make_env("Probe-Truncation"), tiny("ppo", "Probe-Truncation", gamma=GAMMA)
    chains = JaxSource(config, env, initial_state(config, env, 0)).chains(4, 8, 0)
    returns = np.asarray(true_advantages(config, chains) + chains.segment.value)
    np.testing.assert_allclose(returns, 1 / (1 - GAMMA), rtol=0.03)  # of which 1 % is left to the value function
    without = config.replace(bootstrap=False)
    chains = JaxSource(without, env, initial_state(without, env, 0)).chains(4, 8, 0)
    returns = np.asarray(true_advantages(without, chains) + chains.segment.value)
    left = 5 - (np.arange(8) % 5)  # the chain begins with a reset, after one time limit
    np.testing.assert_allclose(returns, np.repeat(((1 - GAMMA**left) / (1 - GAMMA))[:, None], 4, axis=1), rtol=1e-4)


def test_window_products_against_explicit_gradients(made: SimpleNamespace) -> None:
    segment = made.chains.segment
    obs, action = segment.obs[:, :5], segment.action[:, :5]
    advantage = jnp.asarray(np.random.default_rng(0).normal(size=(4, 5)), obs.dtype)
    products, mean, squares = window_products(made.policy, obs, action, advantage, 2)
    flat = (obs.reshape(20, 1), action.reshape(20), advantage.reshape(20))
    each = np.asarray(per_sample_gradients(vanilla, made.policy, flat), float).reshape(2, 2, 5, -1).mean(axis=1)
    np.testing.assert_allclose(products, np.einsum("wup,wvp->uv", each, each) / 2, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(mean, each.mean(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(squares, np.sum(each**2, axis=2), rtol=1e-4, atol=1e-6)


def test_variance_and_covariance_between_environments_are_told_apart() -> None:
    """G_uw = m + a_w + b_uw with a_w shared by all chains: V = |a|^2 + |b|^2, C = |a|^2."""
    rng = np.random.default_rng(1)
    chains, windows, size = 200, 400, 3
    shared = 0.7 * rng.normal(size=(windows, 1, size))
    vectors = 2.0 + shared + 1.5 * rng.normal(size=(windows, chains, size))
    means = vectors.mean(axis=0)
    products = ChainProducts(
        windows=np.einsum("wup,wvp->uv", vectors, vectors) / windows,
        sample=np.mean(np.sum(vectors**2, axis=2), axis=0),
        mean=means @ means.T,
        bias=np.zeros((chains, chains)),
        together=~np.eye(chains, dtype=bool),
    )
    together, staggered = (at_geometry(products, 10, (1, 1.0), s, np.ones((1, chains))) for s in (False, True))
    own, common = size * 1.5**2, np.mean(np.sum(shared[:, 0] ** 2, axis=1)) - np.sum(shared.mean(axis=0) ** 2)
    np.testing.assert_allclose(together.variance, (own + common) / 10 + 0.9 * common, rtol=0.03)
    np.testing.assert_allclose(staggered.variance, own / 10, rtol=0.03)
    np.testing.assert_allclose(together.effective_samples, (own + common) / together.variance, rtol=0.03)


def test_a_squared_mean_over_groups_is_unbiased() -> None:
    """Four groups of two chains with means of their own. All pairs alike would give -0.27: groups meet too seldom."""
    rng = np.random.default_rng(2)
    group = np.repeat(np.arange(4), 2)
    means = np.array([[2.0, 0.3], [-2.0, 0.3], [1.0, 0.3], [-1.0, 0.3]])[group]
    vectors = means + 0.5 * rng.normal(size=(4000, 8, 2))
    together = (group[:, None] == group) & ~np.eye(8, dtype=bool)
    found = [squared_mean(v @ v.T, np.ones((1, 8)), together)[0] for v in vectors]
    assert abs(np.mean(found) - 0.09) < 4 * np.std(found) / 4000**0.5


def test_lag_sums_against_explicit_gradients(made: SimpleNamespace) -> None:
    """Centered with the mean of the other chains; a trajectory ends with its episode."""
    config, chains, count = made.config, made.source.chains(6, 4, 5), 6
    sums = lag_sums(config, made.policy, chains, LAMBDA)
    segment = chains.segment
    advantage = window_advantages(config, chains, 4, LAMBDA)
    flat = tuple(x.reshape(24, *x.shape[2:]) for x in (segment.obs, segment.action, advantage))
    each = np.asarray(per_sample_gradients(vanilla, made.policy, flat), float).reshape(4, count, -1)
    means = each.mean(axis=0)
    for u in range(count):
        others = [v for v in range(count) if v != u]
        mu = means[others].mean(axis=0)
        level = np.mean([means[v] @ means[t] for v in others for t in others if v != t])
        centered = each[:, u] @ each[:, u].T - (each[:, u] @ mu)[:, None] - (each[:, u] @ mu) + level
        # Episodes of two steps, begun at the chain's start: steps 0 and 1, then 2 and 3.
        np.testing.assert_allclose(sums.products[u, 0], np.trace(centered), rtol=2e-3, atol=1e-5)
        np.testing.assert_allclose(sums.products[u, 1], centered[0, 1] + centered[2, 3], rtol=2e-3, atol=1e-5)
        np.testing.assert_allclose(sums.everything[u], centered.sum(), rtol=2e-3, atol=1e-5)
    np.testing.assert_array_equal(sums.counts[0], [4, 2, 0, 0])
    shares = sums.shares([1, 2, 4], np.ones((1, count)))
    np.testing.assert_allclose(shares.sum(), 1)
    # The baseline: different chains at equal times, all reset together, over the variance of one sample.
    pairs = [(u, v) for u in range(count) for v in range(count) if u != v]
    signal = np.mean([means[u] @ means[v] for u, v in pairs])
    equal_times = np.mean([each[t, u] @ each[t, v] for u, v in pairs for t in range(4)])
    expected = (equal_times - signal) / (sums.products[:, 0].mean() / 4)
    np.testing.assert_allclose(sums.across(np.ones((1, count))), [expected], rtol=2e-3, atol=1e-5)


def test_diagonal_sums() -> None:
    matrix = np.random.default_rng(0).normal(size=(5, 5))
    np.testing.assert_allclose(diagonal_sums(jnp.asarray(matrix)), [np.trace(matrix, h) for h in range(5)], rtol=1e-5)


def test_first_episodes_are_whole(made: SimpleNamespace) -> None:
    vectors, lengths, ended = first_episodes(made.config, made.policy, made.source.episodes(6, 2, 0))
    assert vectors.shape[0] == 6
    np.testing.assert_array_equal(lengths, 2)
    assert np.all(ended)
    *_, ended = first_episodes(made.config, made.policy, made.source.episodes(6, 1, 0))
    assert not np.any(ended)


def effects(config: Config, made: SimpleNamespace) -> np.ndarray:
    """Of three batches."""
    segments = made.source.batches(config.num_envs, config.num_steps, draws(3, 0))
    return np.stack([np.asarray(effect_by_epoch(config, made.state, s, jax.random.key(1))) for s in segments])


def test_before_the_first_epoch_nothing_is_clipped(made: SimpleNamespace) -> None:
    config = made.config.replace(learning_rate=0.05, update_epochs=2)
    table = effects(config, made)
    assert table.shape == (3, 3, len(QUANTITIES))
    np.testing.assert_allclose(table[:, 0], [[1, 1, 0, 0]] * 3, atol=1e-5)
    assert np.all(table[:, 1:, list(QUANTITIES).index("kl")] > 0)
    unclipped = effects(config.replace(clip_eps=float("inf")), made)
    np.testing.assert_allclose(unclipped[..., :2], 1, atol=1e-4)


def test_the_full_loss_at_another_policy_has_the_gradient_of_training(made: SimpleNamespace) -> None:
    """The mean of the per-sample gradients of a run's objective is the policy part of what its optimizer gets."""
    config = made.config.replace(clip_eps=0.1, ent_coef=0.0)
    segment = next(made.source.batches(4, 8, draws(1, 0)))
    batch, *_ = prepare(config, segment, made.policy, None, made.state.learning.advantage_moments, config.hypers)
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), batch)
    moved = jax.tree.map(lambda leaf: 0.7 * leaf, made.state.networks)
    each = per_sample_gradients(full(config, config.hypers), moved.policy, flat)
    tree, metrics = jax.grad(total_loss, argnums=3, has_aux=True)(config, "policy", flat, moved, None, config.hypers)
    assert metrics["losses/clipfrac"] > 0.1
    np.testing.assert_allclose(each.mean(axis=0), ravel_pytree(tree.policy)[0], rtol=1e-3, atol=1e-5)


def test_geometries_of_a_budget() -> None:
    assert automatic(16, (4, 4)) == [(16, 1), (8, 2), (4, 4), (2, 8), (1, 16)]
    assert automatic(100, (4, 25)) == [(100, 1), (50, 2), (25, 4), (10, 10), (5, 20), (4, 25), (2, 50), (1, 100)]
    assert max(t for _, t in automatic(2**15, (256, 128))) == 2048
    assert geometries_of(LabOptions(geometries="4x8, 2x16"), 8, 4) == [(4, 8), (2, 16)]
    assert chain_length([(6, 4), (4, 6)]) == 12
    assert [num_groups(limit, 100) for limit in (50, 100, 101, 500)] == [1, 1, 2, 5]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (dict(geometries="4x100", budget=1024), "has 400 samples and not the budget of 1024: use 4x256, or budget=400"),
        (dict(geometries="fourx2"), "is not valid: use environments x steps"),
        (dict(geometries="0x8"), "is not valid"),
        (dict(chains=3), "chains=3 must be at least 4: an error bar needs"),
        (dict(batches=2), "batches=2 must be at least 4"),
        (dict(lambdas=(0.5, 1.5)), "lambdas=1.5 is out of range"),
        (dict(sections="geometrie"), "sections='geometrie' is unknown"),
        (dict(geometries="1021x1,1x1021", budget=1021), None),
        (dict(geometries="4x9973,9973x4", budget=39892), "fit together only after"),
    ],
)
def test_bad_options_get_one_sentence(options: dict, sentence: str | None) -> None:
    def use() -> None:
        made = LabOptions(**options)
        chain_length(geometries_of(made, 8, 4))

    if sentence is None:
        use()
    else:
        with pytest.raises(UsageError, match=sentence):
            use()
