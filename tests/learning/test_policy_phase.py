"""The policy phase: every objective and its gradient against NumPy, one step by hand, whole phases step by step."""

import math
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from jax.flatten_util import ravel_pytree
from made_up import make_actor_critic, make_config, make_learner, make_minibatch, make_segment, with_fields

from isobatch.errors import UsageError
from isobatch.learning import policy_phase as phase
from isobatch.learning.iteration import Learned, policy_phase
from isobatch.learning.minibatches import minibatch_indices
from isobatch.learning.optimizers import make_optimizer
from isobatch.learning.policy_phase import Batch, optimize, prepare, total_loss
from isobatch.learning.proximal import Ewma
from isobatch.learning.state import Learner
from isobatch.networks.actor_critic import ActorCritic, Policy
from isobatch.networks.layers import Dense
from isobatch.networks.moments import Moments, RewardScale
from isobatch.networks.torso import Torso
from isobatch.settings.config import Config
from isobatch.settings.presets import STALE_OBJECTIVES, with_stale_objective

pytestmark = pytest.mark.usefixtures("float64")

CLOSE = dict(rtol=1e-6, atol=1e-6)

# One program: operation by operation there would be a hundred to compile.
gradient_step = jax.jit(phase.gradient_step, static_argnums=(0, 1))

# name -> the choices under test; `aggregation` is in the batch's weights
OBJECTIVES: dict[str, dict[str, Any]] = {
    "ppo": dict(objective="clip"),
    "clip with a cap": dict(objective="clip", clip_eps=0.3, importance_cap=1.1),
    "clip around the average": dict(objective="clip", proximal_policy="ewma"),
    "clip, log-linear": dict(objective="clip", proximal_policy="loglinear", loglinear_alpha=0.3),
    "kl": dict(objective="kl", kl_coef=0.7),
    "kl with a cap": dict(objective="kl", kl_coef=0.7, importance_cap=1.1),
    "kl, squared": dict(objective="kl", kl_form="squared", kl_coef=0.7),
    "kl to the average": dict(objective="kl", proximal_policy="ewma", kl_coef=0.7),
    "kl, squared, to the average": dict(objective="kl", proximal_policy="ewma", kl_form="squared"),
    "kl, squared, log-linear": dict(objective="kl", proximal_policy="loglinear", kl_form="squared"),
    "policy gradient": dict(objective="policy-gradient"),
    "clipped value loss": dict(objective="clip", clip_value_loss=True, value_clip_eps=0.3),
}


class NumpyNetworks:
    """The same networks (one hidden layer of tanh, dual arrangement) from one flat vector of their parameters."""

    def __init__(self, networks: ActorCritic) -> None:
        self.vector = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(networks)]).astype(float)
        self.shapes = [leaf.shape for leaf in jax.tree.leaves(networks)]

    def __call__(self, vector: np.ndarray, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities of all actions, and values."""
        parts, start = [], 0
        for shape in self.shapes:
            parts.append(vector[start : start + math.prod(shape)].reshape(shape))
            start += math.prod(shape)
        w1, b1, w2, b2, v1, c1, v2, c2 = parts
        logits = np.tanh(obs @ w1 + b1) @ w2 + b2
        return np.array([oracles.softmax(row) for row in logits]), (np.tanh(obs @ v1 + c1) @ v2 + c2)[:, 0]


def total_loss_by_hand(
    config: Config, batch: Batch, numpy: NumpyNetworks, vector: np.ndarray, averaged: np.ndarray | None
) -> float:
    """Policy loss + vf_coef x value loss - ent_coef x entropy, weighted. What the paper holds fixed is held at
    `numpy.vector`: the policy inside the importance cap and inside the log-linear proximal policy."""
    h = config.hypers
    obs, action = np.asarray(batch.obs), np.asarray(batch.action)
    rows = np.arange(len(action))
    p, value = numpy(vector, obs)
    pi, fixed = p[rows, action], numpy(numpy.vector, obs)[0][rows, action]
    advantage, target = np.asarray(batch.advantage), np.asarray(batch.target)
    proximal = np.array([oracles.softmax(row) for row in np.asarray(batch.proximal.logits)])
    if averaged is not None:
        proximal = averaged
    prox = proximal[rows, action]
    if config.proximal_policy == "loglinear":
        prox = np.exp(oracles.loglinear(fixed, np.exp(np.asarray(batch.log_behav)), h.loglinear_alpha))
    behav = np.exp(oracles.cap_importance(np.log(fixed), np.asarray(batch.log_importance), h.importance_cap))
    if config.objective == "policy-gradient":
        policy = -np.log(pi) * advantage
    elif config.objective == "clip":
        policy = oracles.decoupled_clip(pi, prox, behav, advantage, h.clip_eps)
    elif config.kl_form == "analytic":
        penalty = np.array([oracles.categorical_kl(q, r) for q, r in zip(proximal, p, strict=True)])
        policy = oracles.decoupled_kl(pi, behav, advantage, penalty, h.kl_coef)
    else:
        policy = oracles.decoupled_kl(pi, behav, advantage, oracles.squared_log_ratio(pi, prox), h.kl_coef)
    entropy = np.array([oracles.categorical_entropy(q) for q in p])
    if config.clip_value_loss:
        values = oracles.clipped_value_loss(value, np.asarray(batch.value), target, h.value_clip_eps)
    else:
        values = oracles.value_loss(value, target)
    per_sample = policy - h.ent_coef * entropy + h.vf_coef * values
    return float(np.sum(np.asarray(batch.weight) * per_sample) / len(per_sample))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_and_its_gradient_agree_with_numpy(name):
    config = make_config(**OBJECTIVES[name])
    learner, batch = make_learner(config), make_minibatch(config, size=12)
    averaged_policy = None if learner.proximal is None else learner.proximal.params
    loss = partial(total_loss, config, "joint", batch, averaged=averaged_policy, hypers=config.hypers)
    (ours, metrics), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(learner.networks)
    numpy = NumpyNetworks(learner.networks)
    averaged = None if averaged_policy is None else np.exp(averaged_policy(batch.obs).log_probs)
    by_hand = partial(total_loss_by_hand, config, batch, numpy, averaged=averaged)
    np.testing.assert_allclose(ours, by_hand(numpy.vector), **CLOSE)
    np.testing.assert_allclose(ravel_pytree(gradient)[0], oracles.numerical_gradient(by_hand, numpy.vector), **CLOSE)
    if "cap" in name:
        assert 0 < metrics["importance/capped"] < 1  # or the case would test nothing
    if "clip" in name and "value" not in name:
        assert 0 < metrics["losses/clipfrac"] < 1


def test_parts_of_the_loss_add_up():
    """joint = policy part + value part, in value and in gradient."""
    config = make_config()
    learner, batch = make_learner(config), make_minibatch(config)
    value_and_grad = jax.jit(
        jax.value_and_grad(lambda nets, part: total_loss(config, part, batch, nets, None, config.hypers)[0]),
        static_argnums=1,
    )
    (joint, policy, value) = (value_and_grad(learner.networks, part) for part in ("joint", "policy", "value"))
    for whole, a, b in zip(*map(jax.tree.leaves, (joint, policy, value)), strict=True):
        np.testing.assert_allclose(whole, a + b, rtol=1e-9, atol=1e-12)


def test_with_prox_equal_to_behav_ppo_is_ppo():
    """On fresh data, whatever `proximal_policy` says of behavior and recent: the same loss, bit for bit."""
    settings = [
        dict(proximal_policy=p, importance_policy=i) for p in ("behavior", "recent") for i in ("behavior", "recent")
    ]
    phases = []
    for choice in settings:
        config = make_config(objective="clip", **choice)
        learner = make_learner(config)
        batch, *_ = prepare(config, make_segment(config), learner.networks.policy, None, Moments.empty(), config.hypers)
        phases.append([batch.log_importance, batch.log_prox, batch.proximal.logits])
    for other in phases[1:]:
        jax.tree.map(np.testing.assert_array_equal, other, phases[0])


@pytest.mark.parametrize("name", STALE_OBJECTIVES)
@pytest.mark.parametrize("objective", ["clip", "kl"])
def test_the_three_ways_to_treat_stale_data(name, objective):
    """Figure 1. recent: both are the policy before the update; decoupled: importance behavior, proximal recent;
    behavior: both are the policy that acted."""
    config = with_stale_objective(make_config(objective=objective, staleness=2), name)
    learner, segment = make_learner(config), make_segment(config)
    recent = learner.networks.policy(segment.obs)
    batch, *_ = prepare(config, segment, learner.networks.policy, None, Moments.empty(), config.hypers)
    log_recent, log_behav = recent.log_prob(segment.action), segment.behavior.log_prob(segment.action)
    assert not np.allclose(log_recent, log_behav)
    importance = log_recent if name == "recent" else log_behav
    proximal, log_prox = (segment.behavior, log_behav) if name == "behavior" else (recent, log_recent)
    np.testing.assert_allclose(batch.log_behav, log_behav, rtol=1e-9)
    np.testing.assert_allclose(batch.log_importance, importance, rtol=1e-9)
    np.testing.assert_allclose(batch.log_prox, log_prox, rtol=1e-9)
    np.testing.assert_allclose(batch.proximal.logits, proximal.logits, rtol=1e-9)


# Advantages, targets and weights.

DONE = np.zeros((6, 4), bool)
DONE[[1, 3, 4, 2, 5], [0, 0, 1, 2, 3]] = True
TRUNCATED = np.zeros((6, 4), bool)
TRUNCATED[[3, 2], [0, 2]] = True


def prepared(config: Config, **kwargs) -> tuple[Batch, Any, Any, Any]:
    segment = kwargs.get("segment", make_segment(config, DONE, TRUNCATED))
    policy = make_actor_critic(config, 0).policy
    moments = kwargs.get("moments", Moments.empty())
    return prepare(config, segment, policy, kwargs.get("reward_scale"), moments, config.hypers)


def raw_advantages(config: Config, segment) -> np.ndarray:
    h, s = config.hypers, jax.tree.map(np.asarray, segment)
    return oracles.gae(s.reward, s.value, s.next_value, s.terminated, s.truncated, h.gamma, h.gae_lambda)


def test_targets_are_lambda_returns():
    """target = A + V, before A is normalized."""
    config = make_config(advantage_norm="iteration")
    segment = make_segment(config, DONE, TRUNCATED)
    batch, *_ = prepared(config)
    np.testing.assert_allclose(batch.target, raw_advantages(config, segment) + np.asarray(segment.value), **CLOSE)


@pytest.mark.parametrize("norm", ["none", "minibatch", "iteration", "ewma"])
def test_advantage_normalizers(norm):
    """none and minibatch leave them to the minibatch; iteration: this rollout's moments; ewma: those of an average that
    had 10 samples' weight of mean 1 and variance 4 before, at decay 0.5."""
    config = make_config(advantage_norm=norm, adv_norm_decay=0.5, adv_norm_eps=0.1)
    before = Moments(jnp.array(1.0), jnp.array(4.0), jnp.array(10.0))
    batch, _, moments, metrics = prepared(config, moments=before)
    raw = raw_advantages(config, make_segment(config, DONE, TRUNCATED))
    old = np.array([-1.0, 3.0] * 5)  # ten samples of mean 1 and variance 4
    ewma_mean, ewma_variance, ewma_weight = oracles.moments([old, raw], 0.5)
    expected = {
        "none": raw,
        "minibatch": raw,
        "iteration": (raw - raw.mean()) / (raw.std() + 0.1),
        "ewma": (raw - ewma_mean) / (math.sqrt(ewma_variance) + 0.1),
    }[norm]
    np.testing.assert_allclose(batch.advantage, expected, **CLOSE)
    np.testing.assert_allclose(
        [metrics["advantages/mean"], metrics["advantages/std"]], [raw.mean(), raw.std()], **CLOSE
    )
    if norm == "ewma":
        np.testing.assert_allclose(
            [moments.mean, moments.variance, moments.weight], [ewma_mean, ewma_variance, ewma_weight], **CLOSE
        )
        np.testing.assert_allclose(metrics["advantages/ewma_std"], math.sqrt(ewma_variance), **CLOSE)


def test_per_minibatch_normalization_happens_in_the_gradient_step():
    """The same step as with advantages normalized by hand over the samples in use."""
    norm, plain = (make_config(advantage_norm=n, optimizer="sgd", adv_norm_eps=0.1) for n in ("minibatch", "none"))
    batch = with_fields(make_minibatch(norm), used=jnp.arange(8) < 5, weight=jnp.where(jnp.arange(8) < 5, 1.6, 0.0))
    used = np.asarray(batch.advantage)[:5]
    by_hand = with_fields(batch, advantage=(batch.advantage - used.mean()) / (used.std() + 0.1))
    steps = [
        gradient_step(config, "joint", data, make_learner(config), config.hypers, jnp.array(0.1))[0].networks
        for config, data in ((norm, batch), (plain, by_hand))
    ]
    np.testing.assert_allclose(*(ravel_pytree(nets)[0] for nets in steps), rtol=1e-9)
    assert not np.allclose(ravel_pytree(steps[0])[0], ravel_pytree(make_learner(norm).networks)[0])


def test_a_minibatch_without_a_used_sample_moves_nothing():
    config = make_config(advantage_norm="minibatch", optimizer="sgd", complete_episodes=True)
    batch = with_fields(make_minibatch(config), used=jnp.zeros(8, bool), weight=jnp.zeros(8), share=jnp.zeros(8))
    learner = make_learner(config)
    after, _ = gradient_step(config, "joint", batch, learner, config.hypers, jnp.array(0.1))
    np.testing.assert_array_equal(ravel_pytree(after.networks)[0], ravel_pytree(learner.networks)[0])


def test_reward_normalization_comes_before_the_advantages():
    config = make_config(normalize_rewards=True, advantage_norm="none", reward_clip=0.8, reward_norm_gamma=0.9)
    segment = make_segment(config, DONE, TRUNCATED)
    batch, scale, *_ = prepared(config, reward_scale=RewardScale.empty(4))
    (scaled,), variance = oracles.scale_rewards([(np.asarray(segment.reward), DONE)], 0.9, 0.8)
    np.testing.assert_allclose(scale.moments.variance, variance, **CLOSE)
    np.testing.assert_allclose(batch.advantage, raw_advantages(config, with_fields(segment, reward=scaled)), **CLOSE)


def test_whole_episodes_begin_the_discounted_return_of_the_normalizer_anew():
    """Every iteration starts with a reset: what an unfinished episode had gathered before it is no one's return."""
    before = RewardScale(jnp.full(4, 1e3), Moments.empty())
    settings = dict(normalize_rewards=True, reward_norm_gamma=0.9, complete_episodes=True)
    segment = make_segment(make_config(**settings), DONE, time_limit=1)
    _, scale, *_ = prepared(make_config(**settings), segment=segment, reward_scale=before)
    _, variance = oracles.scale_rewards([(np.asarray(segment.reward), DONE)], 0.9, 10.0)
    np.testing.assert_allclose(scale.moments.variance, variance, **CLOSE)
    _, going_on, *_ = prepared(
        make_config(**settings | dict(complete_episodes=False)), segment=segment, reward_scale=before
    )
    assert going_on.moments.variance > 100 * variance  # otherwise the return goes on from one rollout to the next


def test_explained_variance():
    """1 - Var(target - V)/Var(target)."""
    config = make_config()
    value = np.asarray(make_segment(config, DONE, TRUNCATED).value)
    batch, _, _, metrics = prepared(config)
    target = np.asarray(batch.target)
    assert float(metrics["losses/explained_variance"]) == pytest.approx(1 - np.var(target - value) / np.var(target))


def test_reinforce_is_reward_to_go_minus_the_baseline():
    """No bootstrapping, lambda 1: what comes after a cut or after the rollout counts as nothing."""
    config = make_config(bootstrap=False, gae_lambda=1.0, gamma=0.9, advantage_norm="none")
    segment = make_segment(config, DONE, TRUNCATED)
    batch, *_ = prepared(config)
    returns = oracles.reward_to_go(np.asarray(segment.reward), DONE, 0.9)
    np.testing.assert_allclose(batch.target, returns, **CLOSE)
    np.testing.assert_allclose(batch.advantage, returns - np.asarray(segment.value), **CLOSE)


def test_without_a_baseline_the_advantage_is_the_return_and_no_value_is_trained():
    config = make_config(
        bootstrap=False, baseline=False, gae_lambda=1.0, gamma=0.9, advantage_norm="none", optimizer="sgd"
    )
    segment = make_segment(config, DONE, TRUNCATED)
    batch, *_ = prepared(config)
    np.testing.assert_allclose(batch.advantage, oracles.reward_to_go(np.asarray(segment.reward), DONE, 0.9), **CLOSE)
    learner = make_learner(config)
    after, metrics = optimize(config, batch, learner, config.hypers, jnp.array(0.1), jax.random.key(0))
    for part in ("value_torso", "value_head"):
        jax.tree.map(np.testing.assert_array_equal, getattr(after.networks, part), getattr(learner.networks, part))
    assert "losses/value_loss" not in metrics


def test_without_a_baseline_nothing_may_ask_for_one():
    free = dict(bootstrap=False, baseline=False, gae_lambda=1.0)
    assert make_config(**free).static.baseline is False  # the form in which it is compiled is valid too
    for other in (dict(bootstrap=True), dict(gae_lambda=0.9), dict(value_epochs=1)):
        with pytest.raises(UsageError, match="baseline=False"):
            make_config(**(free | other))


def aggregated(kind: str, horizon: float) -> dict[str, Any]:
    """The settings of an aggregation; only one of them has a horizon."""
    return dict(aggregation=kind) | (dict(aggregation_horizon=horizon) if kind == "constant" else {})


def test_whole_episodes_weigh_in_and_parts_of_episodes_do_not():
    """Rows of 6 steps, limit 3: used are episodes that began at step 3 or before."""
    rows = [".x.x..", "..x.x.", "xxx..x", "..x..x"]
    done = np.array([[mark == "x" for mark in row] for row in rows]).T
    for kind in ("timestep", "trajectory", "trajectory-mean", "constant"):
        config = make_config(complete_episodes=True, advantage_norm="none", **aggregated(kind, 7.0))
        batch, _, moments, metrics = prepared(config, segment=make_segment(config, done, time_limit=3))
        episodes = [e for e in oracles.split_episodes(done) if e[0][0] + 3 <= 6]
        assert [len(e) for e in episodes] == [2, 2, 3, 2, 1, 1, 1, 3, 3, 3]
        per_sample = np.random.default_rng(0).normal(size=(6, 4))
        expected = oracles.aggregate(kind, [[per_sample[sample] for sample in e] for e in episodes], 7.0)
        assert float(np.mean(np.asarray(batch.weight) * per_sample)) == pytest.approx(expected)
        assert float(jnp.mean(batch.share)) == pytest.approx(1.0)
        raw = np.array([np.asarray(batch.advantage)[sample] for e in episodes for sample in e])
        np.testing.assert_allclose([moments.mean, moments.variance], [raw.mean(), raw.var()], **CLOSE)
        np.testing.assert_allclose(metrics["advantages/mean"], raw.mean(), **CLOSE)
        assert set(map(tuple, np.argwhere(batch.used).tolist())) == {sample for e in episodes for sample in e}


# Episodes that end early, in the first step or in the last one, and pieces that go on after the rollout.
PIECES = np.array([[mark == "x" for mark in row] for row in ("x.....", "...x..", ".....x", "......")]).T


@pytest.mark.parametrize("kind", ["timestep", "trajectory", "trajectory-mean", "constant"])
def test_in_a_rollout_a_trajectory_is_the_piece_of_an_episode_that_it_holds(kind):
    """The whole loss, with its value loss and its entropy, against a loop over trajectories of samples one by one."""
    config = make_config(ent_coef=0.3, **aggregated(kind, 7.0))
    networks = make_actor_critic(config, 0)
    batch, *_ = prepared(config, segment=make_segment(config, PIECES))
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)
    alone = with_fields(jax.tree.map(lambda x: x[:, None], flat), weight=jnp.ones((24, 1)))
    loss = partial(total_loss, config, "joint", networks=networks, averaged=None, hypers=config.hypers)
    per_sample = np.asarray(jax.jit(jax.vmap(lambda one: loss(one)[0]))(alone)).reshape(6, 4)
    trajectories = oracles.split_trajectories(PIECES)
    assert [len(t) for t in trajectories] == [1, 5, 4, 2, 6, 6]
    expected = oracles.aggregate(kind, [[per_sample[sample] for sample in t] for t in trajectories], 7.0)
    assert float(jax.jit(lambda all_: loss(all_)[0])(flat)) == pytest.approx(expected, rel=1e-9)
    if kind == "timestep":
        np.testing.assert_array_equal(batch.weight, 1.0)


def test_aggregations_that_mean_nothing_are_refused():
    with pytest.raises(UsageError, match=r"aggregation='trajectory-mean' .* num_steps=1 .*: use aggregation=timestep"):
        make_config(aggregation="trajectory-mean", num_steps=1)
    with pytest.raises(UsageError, match=r"aggregation_horizon=7 .* aggregation='timestep', .*: use aggregation=const"):
        make_config(aggregation_horizon=7.0)


# Aggregation on real policy gradients: one step of SGD through the whole policy phase.

EQUAL = np.tile(np.array([False, False, True])[:, None], (2, 4))  # episodes of 3 steps
UNEQUAL = np.array([[mark == "x" for mark in row] for row in ("x....x", "...x.x", ".x.x.x", "xxxxxx")]).T


@cache
def policy_step(aggregation: str, lengths: str) -> np.ndarray:
    """How far one step of learning rate 1 moves the policy: minus its gradient."""
    config = make_config(
        complete_episodes=True, objective="policy-gradient", optimizer="sgd", max_grad_norm=math.inf,
        learning_rate=1.0, ent_coef=0.0, vf_coef=0.0, advantage_norm="none", **aggregated(aggregation, 11.0),
    )  # fmt: skip
    done = {"equal": EQUAL, "unequal": UNEQUAL}[lengths]
    learner, segment = make_learner(config), make_segment(config, done, time_limit=1)
    learned = Learned(learner, None, Moments.empty(), jnp.zeros((6, 4)))
    (after, *_), _ = jax.jit(partial(policy_phase, config))(
        learned, segment, config.hypers, jnp.int32(0), jax.random.key(0)
    )
    return ravel_pytree(after.networks.policy)[0] - ravel_pytree(learner.networks.policy)[0]


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def test_equal_lengths_all_aggregations_are_exactly_proportional():
    """8 trajectories of 3 steps: timestep = trajectory/3 = trajectory-mean = constant x 11/3."""
    timestep, trajectory, mean, constant = (
        policy_step(kind, "equal") for kind in ("timestep", "trajectory", "trajectory-mean", "constant")
    )
    for other in (trajectory / 3, mean, constant * 11 / 3):
        np.testing.assert_allclose(timestep, other, rtol=1e-9, atol=1e-12)


def test_unequal_lengths_timestep_is_trajectory_times_n_over_the_sum_of_lengths():
    """13 episodes of 24 steps in all: the factor is 13/24, a different one for every batch of episodes."""
    lengths = [len(e) for e in oracles.split_episodes(UNEQUAL)]
    assert (len(lengths), sum(lengths)) == (13, 24)
    np.testing.assert_allclose(
        policy_step("timestep", "unequal"), policy_step("trajectory", "unequal") * 13 / 24, rtol=1e-9, atol=1e-12
    )


def test_unequal_lengths_trajectory_mean_is_another_direction():
    timestep, trajectory, mean = (policy_step(k, "unequal") for k in ("timestep", "trajectory", "trajectory-mean"))
    assert cosine(timestep, trajectory) == pytest.approx(1.0, abs=1e-12)
    assert cosine(mean, trajectory) < 0.95


def test_the_trajectory_gradient_is_the_textbook_estimator():
    """(1/N) sum_i sum_t A_t grad log pi(a_t|s_t), one sample's gradient at a time."""
    config = make_config()
    networks, segment = make_actor_critic(config, 0), make_segment(config, UNEQUAL, time_limit=1)
    advantage = raw_advantages(config, segment)
    score = jax.jit(jax.grad(lambda policy, obs, action: policy(obs).log_prob(action)))
    total = 0.0
    for sample in [sample for episode in oracles.split_episodes(UNEQUAL) for sample in episode]:
        gradient = score(networks.policy, segment.obs[sample], segment.action[sample])
        total = total + advantage[sample] * ravel_pytree(gradient)[0]
    np.testing.assert_allclose(policy_step("trajectory", "unequal"), total / 13, **CLOSE)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_mean_of_per_sample_gradients_is_the_batch_gradient(name):
    """What the gradient laboratory stands on."""
    config = make_config(**OBJECTIVES[name])
    learner, batch = make_learner(config), make_minibatch(config)
    averaged = None if learner.proximal is None else learner.proximal.params

    def gradient(data: Batch):
        return jax.grad(lambda n: total_loss(config, "joint", data, n, averaged, config.hypers)[0])(learner.networks)

    singles = jax.tree.map(lambda leaf: leaf[:, None], batch)  # eight minibatches of one sample
    whole, each = jax.jit(lambda: (gradient(batch), jax.vmap(gradient)(singles)))()
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(each), strict=True):
        np.testing.assert_allclose(a, jnp.mean(b, axis=0), rtol=1e-9, atol=1e-12)


# One gradient step.


def linear_learner(config: Config) -> Learner:
    """logits = x W + b and V = x w + c: no hidden layer, so that gradients can be written down."""
    rng = np.random.default_rng(5)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape))  # noqa: E731
    policy = Policy(Torso((), (), "tanh", 1), Dense(draw(3, 3), draw(3)), None)
    networks = ActorCritic(policy, Torso((), (), "tanh", 1), Dense(draw(3, 1), draw(1)), None, "dual")
    return Learner(networks, make_optimizer(config, config.hypers).init(networks), None, None, None)


def test_two_steps_of_ppo_with_a_linear_policy_by_hand():
    """With p = softmax(x W + b), r = p_a / behav_a, 1_a the unit vector of the action and H the entropy, per sample:

    d(-clip objective)/dlogits = -r A (1_a - p) where the unclipped term is the smaller one, else 0
    dH/dlogits_j = -p_j (log p_j + H);  d(1/2 (V - target)^2)/dV = V - target
    dL/dW = mean over samples of x (dL/dlogits)^T. Then the global norm is clipped to 0.5 and Adam makes a step of 0.1.
    """
    config = make_config(objective="clip", clip_eps=0.2, ent_coef=0.03, vf_coef=0.5, max_grad_norm=0.5)
    learner, batch = linear_learner(config), make_minibatch(config)
    batch = with_fields(batch, log_importance=batch.log_behav, log_prox=batch.log_behav)
    x, action, advantage, target, weight = (
        np.asarray(v) for v in (batch.obs, batch.action, batch.advantage, batch.target, batch.weight)
    )
    behav = np.exp(np.asarray(batch.log_behav))
    W, b, w, c = (np.asarray(leaf).astype(float) for leaf in jax.tree.leaves(learner.networks))
    gradients, clipped_samples, first = [], 0, None
    for step in range(2):
        dW, db, dw, dc = np.zeros_like(W), np.zeros_like(b), np.zeros_like(w), np.zeros_like(c)
        for i in range(len(x)):
            p = oracles.softmax(x[i] @ W + b)
            r, entropy = p[action[i]] / behav[i], oracles.categorical_entropy(p)
            free = r * advantage[i] <= np.clip(r, 0.8, 1.2) * advantage[i]
            clipped_samples += not free
            dlogits = -float(free) * r * advantage[i] * (np.eye(3)[action[i]] - p)
            dlogits -= 0.03 * -p * (np.log(p) + entropy)
            dvalue = 0.5 * (x[i] @ w[:, 0] + c[0] - target[i])
            scale = weight[i] / len(x)
            dW, db = dW + scale * np.outer(x[i], dlogits), db + scale * dlogits
            dw, dc = dw + scale * (x[i] * dvalue)[:, None], dc + scale * dvalue
        flat = np.concatenate([np.ravel(g) for g in (dW, db, dw, dc)])
        first = np.linalg.norm(flat) if first is None else first
        gradients.append(oracles.clip_global_norm(flat, 0.5))
        update = 0.1 * oracles.adam(gradients, 0.9, 0.999, 1e-5)[-1]
        W, b, w, c = (
            p - u.reshape(p.shape) for p, u in zip((W, b, w, c), np.split(update, np.cumsum([9, 3, 3])), strict=True)
        )
        learner, metrics = gradient_step(config, "joint", batch, learner, config.hypers, jnp.array(0.1))
        if step == 0:
            assert float(metrics["losses/grad_norm"]) == pytest.approx(first)  # before clipping
            assert first > 0.5
    assert 0 < clipped_samples < 2 * len(x)
    for ours, theirs in zip(jax.tree.leaves(learner.networks), (W, b, w, c), strict=True):
        np.testing.assert_allclose(ours, theirs, **CLOSE)


def test_the_average_is_updated_after_the_step_and_used_before_it():
    """theta_prox' = (beta w theta_prox + theta')/(beta w + 1), theta' being the weights after this step; the step
    itself held on to theta_prox. Value networks are not averaged."""
    config = make_config(proximal_policy="ewma", beta_prox=0.6, optimizer="sgd")
    learner, batch = make_learner(config), make_minibatch(config)
    after, metrics = gradient_step(config, "joint", batch, learner, config.hypers, jnp.array(0.3))
    w = float(learner.proximal.weight)
    old, new, average = (
        ravel_pytree(t)[0] for t in (learner.proximal.params, after.networks.policy, after.proximal.params)
    )
    np.testing.assert_allclose(average, (0.6 * w * old + new) / (0.6 * w + 1), rtol=1e-9)
    assert float(metrics["proximal/age"]) == pytest.approx(float(learner.proximal.age))
    assert jax.tree.structure(after.proximal.params) == jax.tree.structure(after.networks.policy)
    gradient = jax.grad(lambda n: total_loss(config, "joint", batch, n, learner.proximal.params, config.hypers)[0])(
        learner.networks
    )
    clipped = oracles.clip_global_norm(np.asarray(ravel_pytree(gradient)[0]), 0.5)
    np.testing.assert_allclose(
        ravel_pytree(after.networks)[0], ravel_pytree(learner.networks)[0] - 0.3 * clipped, rtol=1e-9
    )


def test_vmapped_hyperparameters_agree_with_a_loop():
    """A grid over Hypers is one program."""
    config = make_config(proximal_policy="ewma")
    learner, batch = make_learner(config), make_minibatch(config)
    cases = [
        config.replace(clip_eps=e, beta_prox=b, max_grad_norm=g).hypers
        for e, b, g in ((0.1, 0.5, 0.2), (9.0, 0.9, 5.0))
    ]
    stacked = jax.tree.map(lambda *leaves: jnp.asarray(leaves), *cases)
    step = lambda hypers: gradient_step(config, "joint", batch, learner, hypers, jnp.array(0.1))[0]  # noqa: E731
    together = jax.jit(jax.vmap(step))(stacked)
    for i, hypers in enumerate(cases):
        alone = step(hypers)
        for ours, theirs in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(ours[i], theirs, rtol=1e-9, atol=1e-12)
    assert not np.allclose(*(together.networks.policy.head.weight))


# Whole phases.


@pytest.mark.parametrize("scheme", ["shuffle", "envs"])
def test_a_phase_is_its_gradient_steps_one_after_the_other(scheme):
    """E = 2 epochs of M = 4 minibatches, each epoch with a key of its own; the average is that of all weights passed
    through, in closed form; a metric is the mean over all steps."""
    config = make_config(proximal_policy="ewma", update_epochs=2, num_minibatches=4, minibatch_scheme=scheme)
    learner = make_learner(config)
    start = with_fields(learner, proximal=Ewma.start(learner.networks.policy))
    batch, *_ = prepared(config)
    rate, key = jnp.array(0.05), jax.random.key(3)
    after, metrics = jax.jit(partial(optimize, config))(batch, start, config.hypers, rate, key)
    flat = jax.tree.map(lambda leaf: leaf.reshape(24, *leaf.shape[2:]), batch)
    step = partial(gradient_step, config, "joint")
    learner, thetas, seen = start, [ravel_pytree(start.networks.policy)[0]], []
    for epoch_key in jax.random.split(key, 2):
        for index in minibatch_indices(epoch_key, 4, 6, 4, scheme):
            learner, one = step(jax.tree.map(lambda leaf: leaf[index], flat), learner, config.hypers, rate)  # noqa: B023
            thetas.append(ravel_pytree(learner.networks.policy)[0])
            seen.append(one)
    np.testing.assert_allclose(
        ravel_pytree(after.networks)[0], ravel_pytree(learner.networks)[0], rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(
        ravel_pytree(after.proximal.params)[0], oracles.ewma(thetas, config.hypers.beta_prox), rtol=1e-6, atol=1e-9
    )
    for name in ("losses/policy_loss", "losses/value_loss", "losses/entropy", "losses/grad_norm", "losses/clipfrac"):
        assert float(metrics[name]) == pytest.approx(np.mean([float(one[name]) for one in seen]))
    ages = np.mean([oracles.ewma_age(n, config.hypers.beta_prox) for n in range(8)])
    assert float(metrics["proximal/age"]) == pytest.approx(ages * 24 / 8)  # in environment steps: 3 new ones a step


def test_separate_value_epochs_train_the_value_first_with_an_optimizer_of_its_own():
    """E_V = 2, E_pi = 1: the value loss alone moves the value network; the policy loss alone then moves the policy."""
    config = make_config(value_epochs=2, num_minibatches=2, proximal_policy="ewma")
    learner = make_learner(config)
    batch, *_ = prepared(config)
    rate, key = jnp.array(0.05), jax.random.key(3)
    after, _ = jax.jit(partial(optimize, config))(batch, learner, config.hypers, rate, key)
    flat = jax.tree.map(lambda leaf: leaf.reshape(24, *leaf.shape[2:]), batch)
    value_key, policy_key = jax.random.split(key)
    expected = learner
    for part, part_key, epochs in (("value", value_key, 2), ("policy", policy_key, 1)):
        for epoch_key in jax.random.split(part_key, epochs):
            for index in minibatch_indices(epoch_key, 4, 6, 2, "shuffle"):
                minibatch = jax.tree.map(lambda leaf: leaf[index], flat)  # noqa: B023
                before = expected
                expected, _ = gradient_step(config, part, minibatch, expected, config.hypers, rate)
                frozen = "policy" if part == "value" else "value_head"
                jax.tree.map(
                    np.testing.assert_array_equal,
                    getattr(expected.networks, frozen),
                    getattr(before.networks, frozen),
                )
                if part == "value":
                    # Only policy steps age the proximal policy.
                    jax.tree.map(np.testing.assert_array_equal, expected.proximal, before.proximal)
    for ours, theirs in zip(jax.tree.leaves(after), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_value_and_policy_steps_keep_their_moments_apart():
    """After a policy step the first value step is still the first of its Adam, and leaves the other's state alone."""
    config = make_config(value_epochs=1)
    learner, batch, rate = make_learner(config), make_minibatch(config), jnp.array(0.1)
    policy_first, _ = gradient_step(config, "policy", batch, learner, config.hypers, rate)
    both, _ = gradient_step(config, "value", batch, policy_first, config.hypers, rate)
    alone, _ = gradient_step(config, "value", batch, learner, config.hypers, rate)
    jax.tree.map(np.testing.assert_array_equal, both.networks.value_head, alone.networks.value_head)
    jax.tree.map(np.testing.assert_array_equal, both.value_optimizer, alone.value_optimizer)
    jax.tree.map(np.testing.assert_array_equal, both.optimizer, policy_first.optimizer)
    assert not np.allclose(both.networks.value_head.weight, learner.networks.value_head.weight)


@pytest.mark.parametrize("minibatches", [1, 4])
def test_metrics_are_means_over_all_samples_at_any_minibatch_size(minibatches):
    """With a learning rate of 0 nothing moves and every metric can be computed from the whole batch at once."""
    config = make_config(
        objective="clip", staleness=1, num_minibatches=minibatches, update_epochs=2, importance_cap=1.3, clip_eps=0.1
    )
    learner, segment = make_learner(config), make_segment(config, DONE, TRUNCATED)
    batch, *_ = prepared(config, segment=segment)
    _, metrics = optimize(config, batch, learner, config.hypers, jnp.array(0.0), jax.random.key(0))
    current, value = learner.networks(segment.obs)
    log_ratio = np.asarray(current.log_prob(segment.action) - segment.log_prob)
    ratio = np.exp(log_ratio)
    weight = np.minimum(ratio, 1.3)
    expected = {
        "losses/clipfrac": np.mean((ratio < 0.9) | (ratio > 1.1)),
        "losses/old_approx_kl": np.mean(-log_ratio),
        "losses/approx_kl": np.mean(ratio - 1 - log_ratio),
        "proximal/approx_kl": np.mean(ratio - 1 - log_ratio),
        "importance/mean": np.mean(weight),
        "importance/ess": np.mean(weight) ** 2 / np.mean(weight**2),
        "importance/chi2": np.mean(weight**2) - 1,
        "importance/capped": np.mean(ratio > 1.3),
        "losses/entropy": np.mean(np.asarray(current.entropy())),
        "losses/value_loss": np.mean(0.5 * (np.asarray(value) - np.asarray(batch.target)) ** 2),
        "losses/policy_loss": np.mean(
            -np.asarray(batch.advantage)
            * np.where(np.asarray(batch.advantage) > 0, np.minimum(ratio, 1.1), np.maximum(ratio, 0.9))
            * np.where(ratio > 1.3, 1.3 / ratio, 1.0)
        ),
    }
    for name, number in expected.items():
        assert float(metrics[name]) == pytest.approx(number, rel=1e-9), name
    assert 0 < metrics["importance/capped"] < 1
    assert 0 < metrics["losses/clipfrac"] < 1
