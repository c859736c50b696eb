"""Action distributions: sample, log-probability, entropy, analytic KL. Leading axes are batch axes.

A distribution is a pytree of its parameters, so a rollout can store it and a scan can carry it.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

LOG_2PI = math.log(2 * math.pi)


class Categorical(eqx.Module):
    """Probabilities softmax(logits) over actions 0 .. A-1; logits [*B, A].

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> int(ib.Categorical(jnp.array([0.0, 2.0])).mode())
        1
    """

    logits: Float[Array, "*B A"]

    @property
    def log_probs(self) -> Float[Array, "*B A"]:
        return jax.nn.log_softmax(self.logits)

    def sample(self, key: Key[Array, ""]) -> Int[Array, "*B"]:
        return jax.random.categorical(key, self.logits)

    def mode(self) -> Int[Array, "*B"]:
        return jnp.argmax(self.logits, axis=-1)

    def log_prob(self, action: Int[Array, "*B"]) -> Float[Array, "*B"]:
        # A product with one-hot rows, not a gather: its gradient is dense and needs no scatter.
        return jnp.sum(self.log_probs * jax.nn.one_hot(action, self.logits.shape[-1]), axis=-1)

    def entropy(self) -> Float[Array, "*B"]:
        return -jnp.sum(jnp.exp(self.log_probs) * self.log_probs, axis=-1)

    def kl(self, other: Distribution) -> Float[Array, "*B"]:
        """KL[p, q] of this and another one of the same class: sum_a p (log p - log q)."""
        assert isinstance(other, Categorical)
        return jnp.sum(jnp.exp(self.log_probs) * (self.log_probs - other.log_probs), axis=-1)


class DiagonalGaussian(eqx.Module):
    """Independent normal distributions, one per action dimension; mean and log_std [*B, D].

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> ib.DiagonalGaussian(mean=jnp.array([0.5, -0.5]), log_std=jnp.zeros(2)).mode().tolist()
        [0.5, -0.5]
    """

    mean: Float[Array, "*B D"]
    log_std: Float[Array, "*B D"]

    def sample(self, key: Key[Array, ""]) -> Float[Array, "*B D"]:
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)

    def mode(self) -> Float[Array, "*B D"]:
        return self.mean

    def log_prob(self, action: Float[Array, "*B D"]) -> Float[Array, "*B"]:
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return -jnp.sum(0.5 * z**2 + self.log_std + 0.5 * LOG_2PI, axis=-1)

    def entropy(self) -> Float[Array, "*B"]:
        return jnp.sum(self.log_std + 0.5 * (LOG_2PI + 1), axis=-1)

    def kl(self, other: Distribution) -> Float[Array, "*B"]:
        """KL[p, q] = log s_q/s_p + (s_p^2 + (m_p - m_q)^2) / (2 s_q^2) - 1/2, summed over dimensions."""
        assert isinstance(other, DiagonalGaussian)
        variance_ratio = jnp.exp(2 * (self.log_std - other.log_std))
        shift = ((self.mean - other.mean) * jnp.exp(-other.log_std)) ** 2
        return jnp.sum(other.log_std - self.log_std + 0.5 * (variance_ratio + shift - 1), axis=-1)


class MultiCategorical(eqx.Module):
    """Independent choices, the i-th among sizes[i]; their logits [*B, sum of sizes] stand side by side.

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> ib.MultiCategorical(jnp.array([0.0, 1.0, 5.0, 0.0, 0.0]), sizes=(2, 3)).mode().tolist()
        [1, 0]
    """

    logits: Float[Array, "*B A"]
    sizes: tuple[int, ...] = eqx.field(static=True)

    @property
    def parts(self) -> list[Categorical]:
        ends = list(itertools.accumulate(self.sizes))
        return [Categorical(part) for part in jnp.split(self.logits, ends[:-1], axis=-1)]

    def sample(self, key: Key[Array, ""]) -> Int[Array, "*B K"]:
        keys = jax.random.split(key, len(self.sizes))
        return jnp.stack([part.sample(k) for part, k in zip(self.parts, keys, strict=True)], axis=-1)

    def mode(self) -> Int[Array, "*B K"]:
        return jnp.stack([part.mode() for part in self.parts], axis=-1)

    def log_prob(self, action: Int[Array, "*B K"]) -> Float[Array, "*B"]:
        return sum_of(part.log_prob(action[..., i]) for i, part in enumerate(self.parts))

    def entropy(self) -> Float[Array, "*B"]:
        return sum_of(part.entropy() for part in self.parts)

    def kl(self, other: Distribution) -> Float[Array, "*B"]:
        """Of independent choices the divergences add up."""
        assert isinstance(other, MultiCategorical)
        return sum_of(p.kl(q) for p, q in zip(self.parts, other.parts, strict=True))


class Bernoulli(eqx.Module):
    """Independent switches, on with probability sigmoid(logits); logits [*B, D].

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> ib.Bernoulli(jnp.array([-1.0, 1.0])).mode().tolist()
        [0, 1]
    """

    logits: Float[Array, "*B D"]

    def sample(self, key: Key[Array, ""]) -> Int[Array, "*B D"]:
        return jax.random.bernoulli(key, jax.nn.sigmoid(self.logits)).astype(jnp.int32)

    def mode(self) -> Int[Array, "*B D"]:
        return (self.logits > 0).astype(jnp.int32)

    def log_prob(self, action: Int[Array, "*B D"]) -> Float[Array, "*B"]:
        # log sigmoid(x) if on, log sigmoid(-x) if off.
        return jnp.sum(jax.nn.log_sigmoid(jnp.where(action == 1, self.logits, -self.logits)), axis=-1)

    def entropy(self) -> Float[Array, "*B"]:
        return -jnp.sum(self._expected(self), axis=-1)

    def kl(self, other: Distribution) -> Float[Array, "*B"]:
        """KL[p, q] = sum over switches of p log p/q + (1 - p) log (1 - p)/(1 - q)."""
        assert isinstance(other, Bernoulli)
        return jnp.sum(self._expected(self) - self._expected(other), axis=-1)

    def _expected(self, other: Bernoulli) -> Float[Array, "*B D"]:
        """Mean of log q under this distribution, switch by switch."""
        on = jax.nn.sigmoid(self.logits)
        return on * jax.nn.log_sigmoid(other.logits) + (1 - on) * jax.nn.log_sigmoid(-other.logits)


def sum_of(parts: Iterable[Array]) -> Array:
    return functools.reduce(jnp.add, parts)


Distribution = Categorical | DiagonalGaussian | MultiCategorical | Bernoulli
