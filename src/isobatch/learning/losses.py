"""Per-sample losses of policy optimization: unreduced, in log-probabilities, values and advantages.

Symbols as in Hilton, Cobbe & Schulman (2021), section 2: theta is the current policy, theta_behav
collected the data, theta_prox controls the step size; A is the advantage. A loss is minus the
objective. Only `aggregation` reduces these arrays to a number. All arrays have the same shape [*B], one number for each
sample, and so has what is returned.

| paper                                                                  | link                             |
|------------------------------------------------------------------------|----------------------------------|
| Hilton, Cobbe & Schulman 2021, Batch size-invariance for policy optimization | https://arxiv.org/abs/2110.00641 |
| Schulman et al. 2017, Proximal policy optimization algorithms           | https://arxiv.org/abs/1707.06347 |

Ratios live in log space: stale data makes pi_theta/pi_behav overflow long before its logarithm does.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

PerSample = Float[Array, "*B"]
Scalar = Float[Array, ""] | float


def policy_gradient(log_prob: PerSample, advantage: PerSample) -> PerSample:
    """-log pi_theta(a|s) A, whose gradient is the vanilla policy gradient.

    Sutton et al. 1999, https://papers.nips.cc/paper/1713.

    Args:
        log_prob: log pi_theta(a|s) of the sampled actions [*B].
        advantage: A [*B].

    Returns:
        Losses [*B].

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> ib.losses.policy_gradient(jnp.array([-0.5, -1.0]), jnp.array([2.0, -1.0])).tolist()
        [1.0, -1.0]
    """
    return -log_prob * advantage


def importance_weighted(log_prob: PerSample, log_behav: PerSample, advantage: PerSample) -> PerSample:
    """-(pi_theta / pi_behav) A: Schulman et al. 2017, equation 6, and the first term of equation 8.

    https://arxiv.org/abs/1707.06347

    Args:
        log_prob, log_behav: log-probabilities of the sampled actions, now and when they were sampled [*B].
        advantage: A [*B].

    Returns:
        Losses [*B].

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> ib.losses.importance_weighted(jnp.log(jnp.array([0.5])), jnp.log(jnp.array([0.25])), jnp.ones(1)).tolist()
        [-2.0]
    """
    return -jnp.exp(log_prob - log_behav) * advantage


def clipped(
    log_prob: PerSample, log_prox: PerSample, log_behav: PerSample, advantage: PerSample, clip_eps: Scalar
) -> PerSample:
    """Decoupled clipped objective (Hilton et al. 2021, section 2), with r = pi_theta / pi_prox:

        -(pi_prox / pi_behav) min(r A, clip(r, 1-eps, 1+eps) A).

    With pi_prox = pi_behav this is PPO; with eps = inf the proximal policy drops out. https://arxiv.org/abs/2110.00641

    Args:
        log_prob, log_prox, log_behav: log-probabilities of the sampled actions under the current, the proximal and the
            behavior policy [*B].
        advantage: A [*B].
        clip_eps: eps, a number.

    Returns:
        Losses [*B].

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> old, new = jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([0.8, 0.55]))
        >>> [round(float(loss), 3) for loss in ib.losses.clipped(new, old, old, jnp.ones(2), clip_eps=0.2)]
        [-1.2, -1.1]
    """
    lower, upper = clip_bounds(clip_eps)
    log_clipped = jnp.clip(log_prob - log_prox, lower, upper) + log_prox
    unclipped_loss = importance_weighted(log_prob, log_behav, advantage)
    return jnp.maximum(unclipped_loss, importance_weighted(log_clipped, log_behav, advantage))


def clip_bounds(clip_eps: Scalar) -> tuple[Scalar, Scalar]:
    """Bounds log(1 - eps) and log(1 + eps) of log r. From eps = 1 on nothing is clipped from below.

    Schulman et al. 2017, equation 7, https://arxiv.org/abs/1707.06347, in log space.

    Args:
        clip_eps: eps, a number.

    Returns:
        The two bounds, numbers.

    Example:
        >>> import isobatch as ib
        >>> [round(float(bound), 4) for bound in ib.losses.clip_bounds(0.2)]
        [-0.2231, 0.1823]
    """
    return jnp.log(jnp.maximum(1 - jnp.asarray(clip_eps), 0.0)), jnp.log1p(clip_eps)


def squared_log_ratio(log_prob: PerSample, log_prox: PerSample) -> PerSample:
    """1/2 (log pi_theta - log pi_prox)^2 on the sampled action: the reference code's KL penalty.

    https://github.com/openai/ppo-ewma; the paper, https://arxiv.org/abs/2110.00641, has the analytic KL.

    Args:
        log_prob, log_prox: log-probabilities of the sampled actions [*B].

    Returns:
        Penalties [*B].

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> ib.losses.squared_log_ratio(jnp.array([-1.0]), jnp.array([-3.0])).tolist()
        [2.0]
    """
    return 0.5 * (log_prob - log_prox) ** 2


def loglinear(log_prob: PerSample, log_behav: PerSample, alpha: PerSample | Scalar) -> PerSample:
    """log pi_prox = log pi_behav + alpha (log pi_theta - log pi_behav), detached.

    A proximal policy between the behavior and the current one that needs no network of its own: A-3PO (Li et al. 2025,
    https://arxiv.org/abs/2512.06547).

    Args:
        log_prob, log_behav: log-probabilities of the sampled actions [*B].
        alpha: a number from 0 (behavior) to 1 (current), or one for each sample [*B].

    Returns:
        log pi_prox [*B].

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> ib.losses.loglinear(jnp.array([-1.0]), jnp.array([-3.0]), alpha=0.5).tolist()
        [-2.0]
    """
    return log_behav + alpha * stop_gradient(log_prob - log_behav)


def alpha_of_lag(lag: PerSample | Scalar) -> PerSample | Scalar:
    """d/(d + 1): how far the proximal policy lies from the behavior policy towards the current one, by versions.

    A-3PO (Li et al. 2025, https://arxiv.org/abs/2512.06547): alpha = (v_prox - v_behav)/(v_theta - v_behav). The
    proximal policy is the one before the update, d versions after the behavior policy, and the update makes version
    d + 1. Fresh data has 0: the behavior policy, as in PPO.

    Args:
        lag: d, in updates: a number, or one for each sample [*B].

    Returns:
        alpha, for `loglinear`.

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> ib.losses.alpha_of_lag(jnp.array([0.0, 1.0, 3.0])).tolist()
        [0.0, 0.5, 0.75]
    """
    return lag / (lag + 1)


def capped_behavior(log_prob: PerSample, log_behav: PerSample, cap: Scalar) -> PerSample:
    """log pi_behav raised to at least log pi_theta - log cap, so that no importance ratio exceeds cap.

    pi_theta is detached here: a capped sample keeps its gradient, as in the reference code,
    https://github.com/openai/ppo-ewma.

    Args:
        log_prob, log_behav: log-probabilities of the sampled actions [*B].
        cap: the largest ratio, a number.

    Returns:
        log pi_behav [*B], to be used in its place.

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> capped = ib.losses.capped_behavior(jnp.zeros(2), jnp.array([-1.0, -9.0]), cap=100.0)
        >>> [round(float(ratio), 2) for ratio in jnp.exp(-capped)]
        [2.72, 100.0]
    """
    return jnp.maximum(log_behav, stop_gradient(log_prob) - jnp.log(cap))


def value_loss(value: PerSample, target: PerSample) -> PerSample:
    """1/2 (V - target)^2: Schulman et al. 2017, equation 9, https://arxiv.org/abs/1707.06347, where it has no 1/2.

    Nor has it in the reference code, whose coefficient .5 is 1 here.

    Args:
        value: V(s) [*B].
        target: the return to predict [*B].

    Returns:
        Losses [*B].

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> ib.losses.value_loss(jnp.array([1.0, 2.0]), jnp.array([3.0, 2.0])).tolist()
        [2.0, 0.0]
    """
    return 0.5 * (value - target) ** 2


def clipped_value_loss(value: PerSample, behavior_value: PerSample, target: PerSample, eps: Scalar) -> PerSample:
    """The larger of the value loss and that of V clipped to behavior_value -+ eps.

    https://github.com/openai/baselines/blob/master/baselines/ppo2/model.py

    Args:
        value, behavior_value: V(s) now and when the data was collected [*B].
        target: the return to predict [*B].
        eps: a number.

    Returns:
        Losses [*B].

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> ib.losses.clipped_value_loss(jnp.ones(1), jnp.zeros(1), jnp.ones(1), eps=0.5).tolist()
        [0.125]
    """
    near = behavior_value + jnp.clip(value - behavior_value, -eps, eps)
    return jnp.maximum(value_loss(value, target), value_loss(near, target))
