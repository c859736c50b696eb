"""One iteration of every algorithm: collect, estimate advantages, take E x M gradient steps.

What distinguishes the algorithms are the values of `Config`'s choices, read here and nowhere else.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from isobatch import losses
from isobatch.advantages import gae
from isobatch.aggregation import aggregate, sample_weights
from isobatch.config import Config, Hypers
from isobatch.distributions import Distribution
from isobatch.envs.interface import Environment
from isobatch.minibatches import minibatch_indices
from isobatch.moments import Moments, RewardScale
from isobatch.networks import ActorCritic, Policy
from isobatch.optimizers import make_optimizer
from isobatch.rollout import Episodes, Segment, collect
from isobatch.state import Learner, TrainState, learning_rate

Metrics = dict[str, Float[Array, ""]]


class Batch(eqx.Module):
    """What the losses need of each sample. Leading axes [T, N], or [B] in a minibatch."""

    obs: Array
    action: Array
    behavior: Distribution
    log_behav: Float[Array, "*B"]
    value: Float[Array, "*B"]  # by the behavior's value function
    advantage: Float[Array, "*B"]
    target: Float[Array, "*B"]
    weight: Float[Array, "*B"]


def iterate(
    config: Config, env: Environment, state: TrainState, hypers: Hypers
) -> tuple[TrainState, Metrics, Episodes]:
    """One alternation between sampling and optimisation."""
    key, rollout_key, update_key = jax.random.split(state.key, 3)
    networks = state.learner.networks
    envs, segment, episodes, raw_obs = collect(
        env, networks, state.envs, state.obs_moments, hypers.obs_clip, config.num_steps, rollout_key
    )
    batch, reward_scale, advantage_moments, metrics = prepare(
        config, segment, state.reward_scale, state.advantage_moments, hypers
    )
    rate = learning_rate(config, hypers, state.iteration)
    learner, step_metrics = optimize(config, batch, state.learner, hypers, rate, update_key)
    new_state = TrainState(
        learner=learner,
        gradient_steps=state.gradient_steps + config.geometry.gradient_steps,
        envs=envs,
        obs_moments=None if state.obs_moments is None else state.obs_moments.update(raw_obs),
        reward_scale=reward_scale,
        advantage_moments=advantage_moments,
        key=key,
        iteration=state.iteration + 1,
    )
    return new_state, metrics | step_metrics | {"charts/learning_rate": rate}, episodes


def prepare(
    config: Config,
    segment: Segment,
    reward_scale: RewardScale | None,
    advantage_moments: Moments,
    hypers: Hypers,
) -> tuple[Batch, RewardScale | None, Moments, Metrics]:
    """Advantages, value targets and sample weights of a segment, and what they say about it."""
    reward, done = segment.reward, segment.terminated | segment.truncated
    if reward_scale is not None:
        reward_scale = reward_scale.update(reward, done, hypers.reward_norm_gamma)
        reward = reward_scale.apply(reward, hypers.reward_clip)
    advantage = gae(
        reward,
        segment.value,
        segment.next_value,
        segment.terminated,
        segment.truncated,
        hypers.gamma,
        hypers.gae_lambda,
    )
    target = advantage + segment.value
    decay = hypers.adv_norm_decay if config.advantage_norm == "ewma" else 0.0
    advantage_moments = advantage_moments.update(advantage, decay)
    metrics = {
        "losses/explained_variance": 1 - jnp.var(target - segment.value) / jnp.maximum(jnp.var(target), 1e-12),
        "advantages/mean": jnp.mean(advantage),
        "advantages/std": jnp.std(advantage),
        "advantages/ewma_mean": advantage_moments.mean,
        "advantages/ewma_std": jnp.sqrt(advantage_moments.variance),
    }
    if config.advantage_norm in ("iteration", "ewma"):
        advantage = advantage_moments.normalize(advantage, hypers.adv_norm_eps)
    lengths = jnp.full_like(advantage, config.num_steps)
    batch = Batch(
        obs=segment.obs,
        action=segment.action,
        behavior=segment.behavior,
        log_behav=segment.log_prob,
        value=segment.value,
        advantage=advantage,
        target=target,
        weight=sample_weights(lengths, config.num_envs, config.aggregation, hypers.aggregation_horizon),
    )
    return batch, reward_scale, advantage_moments, metrics


def optimize(
    config: Config,
    batch: Batch,
    learner: Learner,
    hypers: Hypers,
    rate: Float[Array, ""],
    key: Key[Array, ""],
) -> tuple[Learner, Metrics]:
    """E epochs of M gradient steps. Metrics are means over all samples of all epochs."""
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)

    def epoch(learner: Learner, key: Key[Array, ""]) -> tuple[Learner, Metrics]:
        indices = minibatch_indices(key, config.geometry, config.minibatch_scheme)
        shuffled = jax.tree.map(lambda x: x[indices], flat)
        return jax.lax.scan(lambda l, mb: gradient_step(config, mb, l, hypers, rate), learner, shuffled)

    learner, metrics = jax.lax.scan(epoch, learner, jax.random.split(key, config.update_epochs))
    means = {name: jnp.mean(value) for name, value in metrics.items()}
    # (sum w)^2 / (n sum w^2) of all samples, not the mean over minibatches, which depends on their size.
    second_moment = means.pop("importance/second_moment")
    means["importance/ess"] = means["importance/mean"] ** 2 / second_moment
    means["proximal/age"] *= config.geometry.env_steps_per_gradient_step
    return learner, means


def gradient_step(
    config: Config, batch: Batch, learner: Learner, hypers: Hypers, rate: Float[Array, ""]
) -> tuple[Learner, Metrics]:
    """One step of the optimiser on one minibatch, then one of the proximal policy's average."""
    if config.advantage_norm == "minibatch":
        moments = Moments.empty().update(batch.advantage)
        batch = eqx.tree_at(lambda b: b.advantage, batch, moments.normalize(batch.advantage, hypers.adv_norm_eps))
    averaged = None if learner.proximal is None else learner.proximal.params
    loss = jax.grad(total_loss, argnums=2, has_aux=True)
    gradient, metrics = loss(config, batch, learner.networks, averaged, hypers)
    updates, optimizer = make_optimizer(config, hypers).update(gradient, learner.optimizer, learner.networks)
    networks = jax.tree.map(lambda p, u: p - rate * u, learner.networks, updates)
    proximal = None if learner.proximal is None else learner.proximal.update(networks.policy, hypers.beta_prox)
    metrics["losses/grad_norm"] = optax.global_norm(gradient)
    metrics["proximal/age"] = jnp.zeros(()) if learner.proximal is None else learner.proximal.age
    return Learner(networks, optimizer, proximal), metrics


def total_loss(
    config: Config, batch: Batch, networks: ActorCritic, averaged: Policy | None, hypers: Hypers
) -> tuple[Float[Array, ""], Metrics]:
    """Policy loss + vf_coef x value loss - ent_coef x entropy, and the metrics of this minibatch."""
    current, value = networks(batch.obs)
    log_prob = current.log_prob(batch.action)
    entropy = current.entropy()
    policy_losses, metrics = policy_loss(config, batch, current, log_prob, averaged, hypers)
    if config.clip_value_loss:
        value_losses = losses.clipped_value_loss(value, batch.value, batch.target, hypers.value_clip_eps)
    else:
        value_losses = losses.value_loss(value, batch.target)
    total = policy_losses + hypers.vf_coef * value_losses - hypers.ent_coef * entropy
    metrics |= {
        "losses/policy_loss": jnp.mean(policy_losses),
        "losses/value_loss": jnp.mean(value_losses),
        "losses/entropy": jnp.mean(entropy),
    }
    return aggregate(total, batch.weight), metrics


def policy_loss(
    config: Config,
    batch: Batch,
    current: Distribution,
    log_prob: Float[Array, "B"],
    averaged: Policy | None,
    hypers: Hypers,
) -> tuple[Float[Array, "B"], Metrics]:
    """The objective of `config`, per sample, with its importance policy and its proximal policy."""
    match config.proximal_policy:
        case "behavior" | "recent":  # without staleness the policy before this iteration collected the data
            proximal, log_prox = batch.behavior, batch.log_behav
        case "ewma":
            proximal = averaged(batch.obs)
            log_prox = proximal.log_prob(batch.action)
        case "loglinear":
            proximal = None
            log_prox = batch.log_behav + hypers.loglinear_alpha * jax.lax.stop_gradient(log_prob - batch.log_behav)
    log_behav = losses.capped_behavior(log_prob, batch.log_behav, hypers.importance_cap)
    match config.objective:
        case "policy-gradient":
            per_sample = losses.policy_gradient(log_prob, batch.advantage)
        case "clip":
            per_sample = losses.clipped(log_prob, log_prox, log_behav, batch.advantage, hypers.clip_eps)
        case "kl":
            if config.kl_form == "analytic":
                penalty = proximal.kl(current)
            else:
                penalty = losses.squared_log_ratio(log_prob, log_prox)
            per_sample = losses.importance_weighted(log_prob, log_behav, batch.advantage) + hypers.kl_coef * penalty
    lower, upper = losses.clip_bounds(hypers.clip_eps)
    log_ratio, log_ratio_prox = log_prob - batch.log_behav, log_prob - log_prox
    ratio = jnp.exp(log_prob - log_behav)
    metrics = {
        "losses/clipfrac": jnp.mean((log_ratio_prox < lower) | (log_ratio_prox > upper), dtype=float),
        "losses/old_approx_kl": -jnp.mean(log_ratio),
        "losses/approx_kl": jnp.mean(jnp.expm1(log_ratio) - log_ratio),
        "proximal/approx_kl": jnp.mean(jnp.expm1(log_ratio_prox) - log_ratio_prox),
        "importance/mean": jnp.mean(ratio),
        "importance/second_moment": jnp.mean(ratio**2),
        "importance/capped": jnp.mean(log_behav > batch.log_behav, dtype=float),
    }
    return per_sample, metrics
