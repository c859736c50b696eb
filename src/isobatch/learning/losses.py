"""Per-sample losses of policy optimization: unreduced, in log-probabilities, values and advantages.

Symbols as in Hilton, Cobbe & Schulman (2021), section 2: theta is the current policy, theta_behav
collected the data, theta_prox controls the step size; A is the advantage. A loss is minus the
objective. Only `aggregation` reduces these arrays to a number.

Ratios live in log space: stale data makes pi_theta/pi_behav overflow long before its logarithm does.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

PerSample = Float[Array, "*B"]
Scalar = Float[Array, ""] | float


def policy_gradient(log_prob: PerSample, advantage: PerSample) -> PerSample:
    """-log pi_theta(a|s) A, whose gradient is the vanilla policy gradient (Sutton 1999)."""
    return -log_prob * advantage


def importance_weighted(log_prob: PerSample, log_behav: PerSample, advantage: PerSample) -> PerSample:
    """-(pi_theta / pi_behav) A: Schulman 2017, equation 6, and the first term of equation 8."""
    return -jnp.exp(log_prob - log_behav) * advantage


def clipped(
    log_prob: PerSample, log_prox: PerSample, log_behav: PerSample, advantage: PerSample, clip_eps: Scalar
) -> PerSample:
    """Decoupled clipped objective (section 2), with r = pi_theta / pi_prox:

        -(pi_prox / pi_behav) min(r A, clip(r, 1-eps, 1+eps) A).

    With pi_prox = pi_behav this is PPO; with eps = inf the proximal policy drops out.
    """
    lower, upper = clip_bounds(clip_eps)
    log_clipped = jnp.clip(log_prob - log_prox, lower, upper) + log_prox
    unclipped_loss = importance_weighted(log_prob, log_behav, advantage)
    return jnp.maximum(unclipped_loss, importance_weighted(log_clipped, log_behav, advantage))


def clip_bounds(clip_eps: Scalar) -> tuple[Scalar, Scalar]:
    """Bounds of log r. From eps = 1 on nothing is clipped from below."""
    return jnp.log(jnp.maximum(1 - jnp.asarray(clip_eps), 0.0)), jnp.log1p(clip_eps)


def squared_log_ratio(log_prob: PerSample, log_prox: PerSample) -> PerSample:
    """1/2 (log pi_theta - log pi_prox)^2 on the sampled action: the reference code's KL penalty."""
    return 0.5 * (log_prob - log_prox) ** 2


def loglinear(log_prob: PerSample, log_behav: PerSample, alpha: Scalar) -> PerSample:
    """log pi_prox = log pi_behav + alpha (log pi_theta - log pi_behav), detached.

    A proximal policy between the behavior and the current one that needs no network of its own.
    """
    return log_behav + alpha * stop_gradient(log_prob - log_behav)


def capped_behavior(log_prob: PerSample, log_behav: PerSample, cap: Scalar) -> PerSample:
    """log pi_behav raised to at least log pi_theta - log cap, so that no importance ratio exceeds cap.

    pi_theta is detached here: a capped sample keeps its gradient, as in the reference code.
    """
    return jnp.maximum(log_behav, stop_gradient(log_prob) - jnp.log(cap))


def value_loss(value: PerSample, target: PerSample) -> PerSample:
    """1/2 (V - target)^2. The reference code has no 1/2: its coefficient .5 is 1 here."""
    return 0.5 * (value - target) ** 2


def clipped_value_loss(value: PerSample, behavior_value: PerSample, target: PerSample, eps: Scalar) -> PerSample:
    """The larger of the value loss and that of V clipped to behavior_value -+ eps (OpenAI baselines, ppo2)."""
    near = behavior_value + jnp.clip(value - behavior_value, -eps, eps)
    return jnp.maximum(value_loss(value, target), value_loss(near, target))
