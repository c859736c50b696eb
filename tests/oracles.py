"""Slow and obvious float64 implementations, written from the equations in NumPy: one loop per sum, no tricks.

They know nothing of the package. Ratios are ratios here, not differences of logarithms; advantages are weighted sums
of n-step returns, not a backward recursion; averages are sums over everything seen, not running updates. What the
package computes in its own, faster way has to come out the same.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

Array = np.ndarray


# objectives (paper, section 2), per sample, as losses: minus the objective


def ppo_clip(pi: Array, pi_old: Array, advantage: Array, eps: float) -> Array:
    """Schulman 2017, equation 7: -min(r A, clip(r, 1 - eps, 1 + eps) A) with r = pi / pi_old."""
    out = np.empty(len(pi))
    for i in range(len(pi)):
        r = pi[i] / pi_old[i]
        out[i] = -min(r * advantage[i], min(max(r, 1 - eps), 1 + eps) * advantage[i])
    return out


def decoupled_clip(pi: Array, prox: Array, behav: Array, advantage: Array, eps: float) -> Array:
    """-(prox / behav) min(r A, clip(r, 1 - eps, 1 + eps) A) with r = pi / prox."""
    out = np.empty(len(pi))
    for i in range(len(pi)):
        r = pi[i] / prox[i]
        out[i] = -(prox[i] / behav[i]) * min(r * advantage[i], min(max(r, 1 - eps), 1 + eps) * advantage[i])
    return out


def decoupled_kl(pi: Array, behav: Array, advantage: Array, penalty: Array, coefficient: float) -> Array:
    """-((pi / behav) A - coefficient KL[prox, pi])."""
    return np.array([-(pi[i] / behav[i] * advantage[i] - coefficient * penalty[i]) for i in range(len(pi))])


def cap_importance(log_pi: Array, log_behav: Array, cap: float) -> Array:
    """log behav raised where pi / behav would exceed the cap, to just reach it (reference code, cap 100)."""
    out = np.array(log_behav, float)
    for i in range(len(out)):
        if log_pi[i] - log_behav[i] > math.log(cap):
            out[i] = log_pi[i] - math.log(cap)
    return out


def squared_log_ratio(pi: Array, prox: Array) -> Array:
    """EnvGroup the square of log(pi / prox) (reference code's penalty)."""
    return np.array([0.5 * math.log(p / q) ** 2 for p, q in zip(pi, prox, strict=True)])


def loglinear(pi: Array, behav: Array, alpha: float) -> Array:
    """The log of the geometric mean behav^(1 - alpha) pi^alpha."""
    return np.array([math.log(b ** (1 - alpha) * p**alpha) for p, b in zip(pi, behav, strict=True)])


def value_loss(value: Array, target: Array) -> Array:
    return np.array([0.5 * (v - g) ** 2 for v, g in zip(value, target, strict=True)])


def clipped_value_loss(value: Array, old: Array, target: Array, eps: float) -> Array:
    """The worse of two value losses: of V, and of V held within eps of the old value (baselines, ppo2)."""
    out = np.empty(len(value))
    for i in range(len(value)):
        held = min(max(value[i], old[i] - eps), old[i] + eps)
        out[i] = 0.5 * max((value[i] - target[i]) ** 2, (held - target[i]) ** 2)
    return out


# advantages


def gae(
    reward: Array, value: Array, next_value: Array, terminated: Array, truncated: Array, gamma: float, lam: float
) -> Array:
    """Schulman 2015b, equation 16: the lambda-weighted mean of all n-step advantages.

    A^(n)_t = r_t + ... + gamma^(n-1) r_(t+n-1) + gamma^n V(s_(t+n)) - V(s_t), where V of a terminal state is 0. With K
    steps until the episode ends, is cut off, or the rollout is over:
    A_t = (1 - lambda) (A^(1) + lambda A^(2) + ... + lambda^(K-2) A^(K-1)) + lambda^(K-1) A^(K).
    `next_value` is V of the state each step led to: of the final observation where an episode was cut off.
    """
    steps, envs = reward.shape
    out = np.zeros((steps, envs))
    for n in range(envs):
        for t in range(steps):
            n_step = []
            rewards = 0.0
            for k in range(t, steps):
                rewards += gamma ** (k - t) * reward[k, n]
                future = 0.0 if terminated[k, n] else gamma ** (k - t + 1) * next_value[k, n]
                n_step.append(rewards + future - value[t, n])
                if terminated[k, n] or truncated[k, n]:
                    break
            last = len(n_step) - 1
            out[t, n] = sum((1 - lam) * lam**i * n_step[i] for i in range(last)) + lam**last * n_step[last]
    return out


def reward_to_go(reward: Array, done: Array, gamma: float) -> Array:
    """Discounted rewards from here to the end of the episode or of the rollout."""
    steps, envs = reward.shape
    out = np.zeros((steps, envs))
    for n in range(envs):
        for t in range(steps):
            for k in range(t, steps):
                out[t, n] += gamma ** (k - t) * reward[k, n]
                if done[k, n]:
                    break
    return out


# averages


def ewma(thetas: Sequence[Array], beta: float) -> Array:
    """sum_i beta^(n-i) theta_i / sum_i beta^(n-i), i = 0 .. n."""
    n = len(thetas) - 1
    weights = [beta ** (n - i) for i in range(n + 1)]
    return sum(w * np.asarray(t, float) for w, t in zip(weights, thetas, strict=True)) / sum(weights)


def ewma_age(n: int, beta: float) -> float:
    """Mean age of the weights in that average, in gradient steps: sum_i beta^(n-i) (n-i) / sum_i beta^(n-i)."""
    return sum(beta**age * age for age in range(n + 1)) / sum(beta**age for age in range(n + 1))


def moments(batches: Sequence[Array], decay: float) -> tuple[float, float, float]:
    """Mean, variance and total weight of all samples; one of a batch that is k batches old counts decay^k."""
    samples, weights = [], []
    for i, batch in enumerate(batches):
        for sample in np.ravel(batch):
            samples.append(float(sample))
            weights.append(decay ** (len(batches) - 1 - i))
    total = sum(weights)
    mean = sum(w * s for w, s in zip(weights, samples, strict=True)) / total
    variance = sum(w * (s - mean) ** 2 for w, s in zip(weights, samples, strict=True)) / total
    return mean, variance, total


def scale_rewards(
    segments: Sequence[tuple[Array, Array]], gamma: float, clip: float, eps: float = 1e-8
) -> tuple[list[Array], float]:
    """Reference code: each segment's rewards over the standard deviation of all discounted returns so far, clipped.

    `segments` are (reward, done) pairs in order; R_t = gamma R_(t-1) + r_t, from 0 with each episode. Also returns the
    variance.
    """
    seen: list[float] = []
    running = np.zeros(segments[0][0].shape[1])
    scaled, variance = [], 1.0
    for reward, done in segments:
        for t in range(reward.shape[0]):
            for n in range(reward.shape[1]):
                running[n] = gamma * running[n] + reward[t, n]
                seen.append(running[n])
                if done[t, n]:
                    running[n] = 0.0
        variance = float(np.mean([(s - np.mean(seen)) ** 2 for s in seen]))
        scaled.append(np.minimum(np.maximum(reward / math.sqrt(variance + eps), -clip), clip))
    return scaled, variance


# aggregation (FACTS 7)


def aggregate(kind: str, trajectories: Sequence[Sequence[float]], horizon: float) -> float:
    """The four ways from the losses of N trajectories to one number."""
    n = len(trajectories)
    if kind == "timestep":
        total, count = 0.0, 0
        for losses in trajectories:
            for loss in losses:
                total, count = total + loss, count + 1
        return total / count
    result = 0.0
    for losses in trajectories:
        inner = sum(losses)
        result += {"trajectory": inner, "trajectory-mean": inner / len(losses), "constant": inner / horizon}[kind] / n
    return result


def split_trajectories(done: Array) -> list[list[tuple[int, int]]]:
    """The (step, row) pairs of each episode, or piece of one, that a [T, N] rollout holds."""
    trajectories = []
    for n in range(done.shape[1]):
        current: list[tuple[int, int]] = []
        for t in range(done.shape[0]):
            current.append((t, n))
            if done[t, n] or t == done.shape[0] - 1:
                trajectories.append(current)
                current = []
    return trajectories


def split_episodes(done: Array) -> list[list[tuple[int, int]]]:
    """Of rollouts whose rows begin with a reset: the episodes that ended."""
    return [trajectory for trajectory in split_trajectories(done) if done[trajectory[-1]]]


# distributions


def softmax(logits: Array) -> Array:
    exponentials = np.array([math.exp(x - max(logits)) for x in logits])
    return exponentials / sum(exponentials)


def categorical_entropy(p: Array) -> float:
    return -sum(x * math.log(x) for x in p if x > 0)


def categorical_kl(p: Array, q: Array) -> float:
    return sum(x * math.log(x / y) for x, y in zip(p, q, strict=True) if x > 0)


def normal_log_pdf(x: Array, mean: float, std: float) -> Array:
    return -((x - mean) ** 2) / (2 * std**2) - math.log(std * math.sqrt(2 * math.pi))


def normal_entropy(mean: float, std: float) -> float:
    """-integral p log p, by trapezoids over 12 standard deviations to both sides."""
    return -_integrate(lambda x: np.exp(normal_log_pdf(x, mean, std)) * normal_log_pdf(x, mean, std), mean, std)


def normal_kl(mean: float, std: float, other_mean: float, other_std: float) -> float:
    """Integral of p (log p - log q), likewise."""

    def integrand(x: Array) -> Array:
        log_p, log_q = normal_log_pdf(x, mean, std), normal_log_pdf(x, other_mean, other_std)
        return np.exp(log_p) * (log_p - log_q)

    return _integrate(integrand, mean, std)


def _integrate(f: Callable[[Array], Array], mean: float, std: float) -> float:
    """Trapezoids are exact to rounding for a smooth function that vanishes at both ends."""
    x = np.linspace(mean - 12 * std, mean + 12 * std, 2001)
    y = f(x)
    return float(np.sum((y[1:] + y[:-1]) * np.diff(x)) / 2)


# optimizers


def clip_global_norm(gradient: Array, largest: float) -> Array:
    norm = math.sqrt(sum(g**2 for g in gradient))
    return gradient * (largest / norm) if norm > largest else gradient


def adam(gradients: Sequence[Array], beta1: float, beta2: float, eps: float) -> list[Array]:
    """Kingma & Ba 2014, algorithm 1: m_hat / (sqrt(v_hat) + eps), step by step."""
    m = v = np.zeros_like(gradients[0])
    out = []
    for t, g in enumerate(gradients, 1):
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
        out.append(m / (1 - beta1**t) / (np.sqrt(v / (1 - beta2**t)) + eps))
    return out


def adam_micro(gradients: Sequence[Array], beta1: float, beta2: float, eps: float, largest: float) -> list[Array]:
    """Wang & Aitchison 2024: as Adam, but v averages squares of the gradients [K, P] of micro-batches, not the square
    of their mean. The mean is clipped to a norm of `largest`, and with it, by the same factor, each of them."""
    m = v = np.zeros_like(gradients[0][0])
    out = []
    for t, parts in enumerate(gradients, 1):
        norm = np.sqrt(np.sum(np.mean(parts, axis=0) ** 2))
        parts = parts * (largest / norm if norm > largest else 1.0)
        m = beta1 * m + (1 - beta1) * sum(parts) / len(parts)
        v = beta2 * v + (1 - beta2) * sum(part**2 for part in parts) / len(parts)
        out.append(m / (1 - beta1**t) / (np.sqrt(v / (1 - beta2**t)) + eps))
    return out


def rmsprop(gradients: Sequence[Array], decay: float, eps: float) -> list[Array]:
    """Hinton's lecture 6e: g / (sqrt(v) + eps)."""
    v = np.zeros_like(gradients[0])
    out = []
    for g in gradients:
        v = decay * v + (1 - decay) * g**2
        out.append(g / (np.sqrt(v) + eps))
    return out


# the auxiliary phase of PPG (Cobbe 2020)


def ppg_joint_loss(aux_value: Array, value: Array, target: Array, old: Array, new: Array, beta_clone: float) -> float:
    """Mean of 1/2 (V_aux - target)^2 + beta_clone KL[old, new] + 1/2 (V - target)^2; old and new are probabilities."""
    total = 0.0
    for i in range(len(target)):
        total += 0.5 * (aux_value[i] - target[i]) ** 2 + 0.5 * (value[i] - target[i]) ** 2
        total += beta_clone * categorical_kl(old[i], new[i])
    return total / len(target)


# minibatches


def env_minibatches(row_order: Sequence[int], steps: int, count: int) -> list[list[tuple[int, int]]]:
    """The (step, row) pairs of each minibatch of scheme `envs`, the rows taken in this order.

    As many minibatches as rows or fewer: whole rows. More: each row is cut into equal chunks of its time.
    """
    rows = len(row_order)
    if count <= rows:
        each = rows // count
        groups = [row_order[i * each : (i + 1) * each] for i in range(count)]
        return [[(t, row) for row in group for t in range(steps)] for group in groups]
    chunks = count // rows
    length = steps // chunks
    return [[(t, row) for t in range(c * length, (c + 1) * length)] for row in row_order for c in range(chunks)]


# derivatives


def numerical_gradient(f: Callable[[Array], float], x: Array, step: float = 1e-5) -> Array:
    """Central differences, one coordinate at a time; the error is of order step^2."""
    x = np.array(x, float)
    out = np.zeros_like(x)
    for i in np.ndindex(*x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        out[i] = (f(up) - f(down)) / (2 * step)
    return out
