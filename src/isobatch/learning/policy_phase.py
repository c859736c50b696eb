"""What every algorithm does with a rollout: estimate advantages, then take E x M gradient steps.

What distinguishes the algorithms are the values of `Config`'s choices, read here and in `iteration`.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Key

from isobatch.learning import losses
from isobatch.learning.advantages import gae
from isobatch.learning.aggregation import aggregate, sample_weights
from isobatch.learning.micro_batches import Metrics, gradient_of
from isobatch.learning.minibatches import minibatch_indices
from isobatch.learning.optimizers import updated
from isobatch.learning.state import Learner
from isobatch.learning.step_size import adapted, is_too_far
from isobatch.networks.actor_critic import Networks, PolicyFunction
from isobatch.networks.distributions import Distribution
from isobatch.networks.moments import Moments, RewardScale
from isobatch.networks.shards import axes_of, mean, shard_key, total
from isobatch.rollouts.segment import Segment, complete_episodes, trajectories
from isobatch.settings.config import Config, Hypers

Part = Literal["joint", "policy", "value"]


class Batch(eqx.Module):
    """What the losses need of each sample. Leading axes [T, N], or [B] in a minibatch."""

    obs: Array
    action: Array
    log_behav: Float[Array, "*B"]
    log_importance: Float[Array, "*B"]  # of the importance policy: the behavior policy, or the recent one
    proximal: Distribution  # the behavior or the recent policy, for a proximal policy that is one of them
    log_prox: Float[Array, "*B"]
    value: Float[Array, "*B"]  # by the behavior's value function
    advantage: Float[Array, "*B"]
    target: Float[Array, "*B"]
    used: Bool[Array, "*B"]
    weight: Float[Array, "*B"]  # of the sample's loss
    share: Float[Array, "*B"]  # of the sample in a metric; the mean over the iteration is 1
    lag: Float[Array, "*B"] | None = None  # as in `Segment`


def prepare(
    config: Config,
    segment: Segment,
    recent: PolicyFunction,
    reward_scale: RewardScale | None,
    advantage_moments: Moments,
    hypers: Hypers,
) -> tuple[Batch, RewardScale | None, Moments, Metrics]:
    """Advantages, value targets and weights of a segment, and what they say about it."""
    reward, done, across = segment.reward, segment.terminated | segment.truncated, axes_of(config.num_shards)
    if reward_scale is not None:
        if config.complete_episodes:  # every row begins with a reset
            reward_scale = eqx.tree_at(lambda r: r.discounted_return, reward_scale, replace_fn=jnp.zeros_like)
        if segment.discounted is None:
            reward_scale = reward_scale.update(reward, done, hypers.reward_norm_gamma, segment.valid, across)
        else:
            reward_scale = reward_scale.seen(reward_scale.discounted_return, segment.discounted, segment.valid, across)
        reward = reward_scale.apply(reward, hypers.reward_clip)
    advantage = estimate_advantages(config, segment, reward, hypers)
    value = segment.value if config.baseline else jnp.zeros_like(segment.value)
    target = advantage + value
    if config.complete_episodes:
        lengths, used = complete_episodes(done, segment.time_limit, segment.valid)
    else:
        _, lengths = trajectories(done, segment.valid)
        used = jnp.ones_like(done) if segment.valid is None else segment.valid
    share = sample_weights("timestep", lengths, used, hypers.aggregation_horizon, across)
    decay = hypers.adv_norm_decay if config.advantage_norm == "ewma" else 0.0
    advantage_moments = advantage_moments.update(advantage, decay, used, across)
    newest, targets, errors = (
        Moments.empty().update(x, used=used, across=across) for x in (advantage, target, target - value)
    )
    metrics = {
        "losses/explained_variance": 1 - errors.variance / jnp.maximum(targets.variance, 1e-12),
        "advantages/mean": newest.mean,
        "advantages/std": jnp.sqrt(newest.variance),
        "advantages/ewma_mean": advantage_moments.mean,
        "advantages/ewma_std": jnp.sqrt(advantage_moments.variance),
    }
    if config.complete_episodes:
        metrics["charts/samples_used"] = total(jnp.sum(used), across).astype(advantage.dtype)
    if config.advantage_norm in ("iteration", "ewma"):
        advantage = advantage_moments.normalize(advantage, hypers.adv_norm_eps)
    # On fresh data the recent policy, the one before this iteration's updates, is the behavior policy.
    with_recent = config.is_stale and "recent" in (config.importance_policy, config.proximal_policy)
    before = recent(segment.obs) if with_recent else segment.behavior
    log_before = before.log_prob(segment.action) if with_recent else segment.log_prob
    proximal_is_recent = config.proximal_policy == "recent"
    batch = Batch(
        obs=segment.obs,
        action=segment.action,
        log_behav=segment.log_prob,
        log_importance=log_before if config.importance_policy == "recent" else segment.log_prob,
        proximal=before if proximal_is_recent else segment.behavior,
        log_prox=log_before if proximal_is_recent else segment.log_prob,
        value=value,
        advantage=advantage,
        target=target,
        used=used,
        weight=sample_weights(config.aggregation, lengths, used, hypers.aggregation_horizon, across),
        share=share,
        lag=segment.lag,
    )
    return batch, reward_scale, advantage_moments, metrics


def estimate_advantages(
    config: Config, segment: Segment, reward: Float[Array, "T N"], hypers: Hypers
) -> Float[Array, "T N"]:
    """GAE; with lambda 1 and without bootstrapping, reward-to-go minus the baseline, if there is one."""
    value, next_value = segment.value, segment.next_value
    if not config.bootstrap:
        cut = segment.truncated.at[-1].set(True)
        next_value = jnp.where(cut, 0.0, next_value)
    if not config.baseline:
        value, next_value = jnp.zeros_like(value), jnp.zeros_like(value)
    return gae(reward, value, next_value, segment.terminated, segment.truncated, hypers.gamma, hypers.gae_lambda)


def optimize(
    config: Config, batch: Batch, learner: Learner, hypers: Hypers, rate: Float[Array, ""], key: Key[Array, ""]
) -> tuple[Learner, Metrics]:
    """E epochs of M gradient steps. Metrics are means over all samples of all epochs."""
    (steps, rows), across = batch.advantage.shape, axes_of(config.num_shards)
    if learner.stopped is not None:
        learner = eqx.tree_at(lambda l: l.stopped, learner, jnp.zeros((), bool))
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)

    def epochs(part: Part, learner: Learner, key: Key[Array, ""], count: int) -> tuple[Learner, Metrics]:
        def epoch(learner: Learner, key: Key[Array, ""]) -> tuple[Learner, dict[str, Array]]:
            indices = minibatch_indices(
                shard_key(key, across), rows, steps, config.num_minibatches, config.minibatch_scheme
            )
            shuffled = jax.tree.map(lambda x: x[indices], flat)
            return jax.lax.scan(
                lambda learner, part_of: gradient_step(config, part, part_of, learner, hypers, rate), learner, shuffled
            )

        learner, metrics = jax.lax.scan(epoch, learner, jax.random.split(key, count))
        return learner, {name: jnp.mean(value) for name, value in metrics.items()}

    if config.value_epochs:  # as in the reference code: separate optimizers, the value function first
        value_key, key = jax.random.split(key)
        learner, value_metrics = epochs("value", learner, value_key, config.value_epochs)
        learner, means = epochs("policy", learner, key, config.update_epochs)
        means["losses/value_loss"] = value_metrics["losses/value_loss"]
    else:
        learner, means = epochs("joint", learner, key, config.update_epochs)
    if learner.stopped is not None:
        means["charts/gradient_steps"] *= config.geometry.gradient_steps
    # Of all samples together, not a mean over minibatches, which would depend on their size.
    second_moment = means.pop("importance/second_moment")
    means["importance/ess"] = means["importance/mean"] ** 2 / second_moment
    means["importance/chi2"] = second_moment - 1
    lag = jnp.asarray(float(config.staleness)) if batch.lag is None else jnp.mean(batch.share * batch.lag)
    age = means["proximal/age"] if learner.proximal is not None else rollout_policy_age(config, hypers, lag)
    means["proximal/age"] = age * config.geometry.env_steps_per_gradient_step
    return learner, means


def rollout_policy_age(config: Config, hypers: Hypers, lag: Float[Array, ""]) -> Float[Array, ""]:
    """Mean age, in gradient steps, of a proximal policy that the updates of a rollout share, which is `lag` updates
    old."""
    steps = config.geometry.gradient_steps
    since_recent = (steps - 1) / 2
    since_behavior = since_recent + lag * steps
    ages = {
        "recent": since_recent,
        "behavior": since_behavior,
        "loglinear": (1 - hypers.loglinear_alpha) * since_behavior,
        "loglinear-age": (1 - losses.alpha_of_lag(lag)) * since_behavior,
    }
    return jnp.asarray(ages[config.proximal_policy], float)


def gradient_step(
    config: Config, part: Part, batch: Batch, learner: Learner, hypers: Hypers, rate: Float[Array, ""]
) -> tuple[Learner, Metrics]:
    """One step of the optimizer on one minibatch, then one of the proximal policy's average."""
    across = axes_of(config.num_shards)
    if config.advantage_norm == "minibatch":
        moments = Moments.empty().update(batch.advantage, used=batch.used, across=across)
        batch = eqx.tree_at(lambda b: b.advantage, batch, moments.normalize(batch.advantage, hypers.adv_norm_eps))
    averaged = None if learner.proximal is None else learner.proximal.params

    def loss(networks: Networks, samples: Batch) -> tuple[Float[Array, ""], Metrics]:
        return total_loss(config, part, samples, networks, averaged, hypers)

    # Shards have as many samples each.
    gradient, metrics = mean(gradient_of(config, loss, learner.networks, batch), across)
    if learner.rate is not None and part != "value":
        rate = adapted(learner.rate, metrics["losses/approx_kl"], hypers.desired_kl)
    state = learner.value_optimizer if part == "value" else learner.optimizer
    updates, state = updated(config, hypers, gradient, state, learner.networks)
    networks = jax.tree.map(lambda p, u: p - rate * u, learner.networks, updates)
    metrics["losses/grad_norm"] = optax.tree.norm(gradient.mean)
    if part == "value":
        return eqx.tree_at(lambda l: (l.networks, l.value_optimizer), learner, (networks, state)), metrics
    proximal = None if learner.proximal is None else learner.proximal.update(networks.policy, hypers.beta_prox)
    metrics["proximal/age"] = jnp.zeros(()) if learner.proximal is None else learner.proximal.age
    after = Learner(
        networks, state, learner.value_optimizer, learner.aux_optimizer, proximal, learner.rate, learner.stopped
    )
    if learner.rate is not None:
        after = eqx.tree_at(lambda l: l.rate, after, rate)
    if learner.stopped is not None:
        stopped = learner.stopped | is_too_far(metrics["losses/approx_kl"], hypers.target_kl)
        after = jax.tree.map(lambda old, new: jnp.where(stopped, old, new), learner, after)
        after = eqx.tree_at(lambda l: l.stopped, after, stopped)
        metrics["charts/gradient_steps"] = 1.0 - stopped
    return after, metrics


def total_loss(
    config: Config, part: Part, batch: Batch, networks: Networks, averaged: PolicyFunction | None, hypers: Hypers
) -> tuple[Float[Array, ""], Metrics]:
    """Policy loss + vf_coef x value loss - ent_coef x entropy, or one part of it, and this minibatch's metrics."""
    current, value = networks(batch.obs)
    per_sample = jnp.zeros_like(batch.weight)
    metrics: Metrics = {}
    if part != "value":
        entropy = current.entropy()
        policy_losses, metrics = policy_loss(config, batch, current, averaged, hypers)
        per_sample += policy_losses - hypers.ent_coef * entropy
        metrics |= {
            "losses/policy_loss": jnp.mean(batch.share * policy_losses),
            "losses/entropy": jnp.mean(batch.share * entropy),
        }
    if part != "policy" and config.baseline:
        if config.clip_value_loss:
            value_losses = losses.clipped_value_loss(value, batch.value, batch.target, hypers.value_clip_eps)
        else:
            value_losses = losses.value_loss(value, batch.target)
        per_sample += hypers.vf_coef * value_losses
        metrics["losses/value_loss"] = jnp.mean(batch.share * value_losses)
    return aggregate(per_sample, batch.weight), metrics


def policy_loss(
    config: Config, batch: Batch, current: Distribution, averaged: PolicyFunction | None, hypers: Hypers
) -> tuple[Float[Array, "B"], Metrics]:
    """The objective of `config`, per sample, with its importance policy and its proximal policy."""
    log_prob = current.log_prob(batch.action)
    proximal, log_prox = batch.proximal, batch.log_prox
    if averaged is not None:
        proximal = averaged(batch.obs)
        log_prox = proximal.log_prob(batch.action)
    elif config.proximal_policy == "loglinear":
        log_prox = losses.loglinear(log_prob, batch.log_behav, hypers.loglinear_alpha)
    elif config.proximal_policy == "loglinear-age":
        lag = float(config.staleness) if batch.lag is None else batch.lag
        log_prox = losses.loglinear(log_prob, batch.log_behav, losses.alpha_of_lag(lag))
    log_behav = losses.capped_behavior(log_prob, batch.log_importance, hypers.importance_cap)
    match config.objective:
        case "policy-gradient":
            per_sample = losses.policy_gradient(log_prob, batch.advantage)
        case "clip":
            per_sample = losses.clipped(log_prob, log_prox, log_behav, batch.advantage, hypers.clip_eps)
        case "kl":
            analytic = config.kl_form == "analytic"
            penalty = proximal.kl(current) if analytic else losses.squared_log_ratio(log_prob, log_prox)
            per_sample = losses.importance_weighted(log_prob, log_behav, batch.advantage) + hypers.kl_coef * penalty
    return per_sample, ratio_metrics(batch, log_prob, log_prox, log_behav, hypers)


def ratio_metrics(
    batch: Batch, log_prob: Float[Array, "B"], log_prox: Float[Array, "B"], log_behav: Float[Array, "B"], hypers: Hypers
) -> Metrics:
    """How far the policy is from the one that collected the data, and from the proximal one."""
    lower, upper = losses.clip_bounds(hypers.clip_eps)
    log_ratio, log_ratio_prox = log_prob - batch.log_behav, log_prob - log_prox
    weight = jnp.exp(log_prob - log_behav)
    per_sample = {
        "losses/clipfrac": (log_ratio_prox < lower) | (log_ratio_prox > upper),
        "losses/old_approx_kl": -log_ratio,
        "losses/approx_kl": jnp.expm1(log_ratio) - log_ratio,
        "proximal/approx_kl": jnp.expm1(log_ratio_prox) - log_ratio_prox,
        "importance/mean": weight,
        "importance/second_moment": weight**2,
        "importance/capped": log_behav > batch.log_importance,
    }
    return {name: jnp.mean(batch.share * value) for name, value in per_sample.items()}
