"""Running mean and variance, of all data or exponentially weighted, and what is normalized with them."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from isobatch.networks.shards import WHOLE, Axes, gathered

Scalar = Float[Array, ""] | float


class Moments(eqx.Module):
    """Mean and variance of batches of samples, the batch before last weighted by decay, and so on.

    After batches of n_i samples: weight = sum_i decay^(k-i) n_i; mean and variance are those of all samples so
    weighted. decay 1 remembers everything, 0 only the newest batch. Kept as mean and variance, not as the
    reference code's raw sums: those cancel in float32. Of advantages, with a decay, they are what
    batch-size-invariant normalization needs (Hilton, Cobbe & Schulman 2021, section 4,
    https://arxiv.org/abs/2110.00641).

    `Moments.empty(shape)` has seen nothing; `update(sample [*B, *shape], decay, used [*B])` gives new moments, and
    `normalize(sample, eps)` is (sample - mean) / (standard deviation + eps). Where samples are spread over the
    shards of a run (`across`), moments are those of all of them.

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> moments = ib.Moments.empty().update(jnp.array([1.0, 3.0])).update(jnp.array([5.0, 7.0]), decay=1.0)
        >>> float(moments.mean), float(moments.variance), float(moments.weight)
        (4.0, 5.0, 4.0)
    """

    mean: Float[Array, "*S"]
    variance: Float[Array, "*S"]
    weight: Float[Array, ""]

    @classmethod
    def empty(cls, shape: tuple[int, ...] = ()) -> Moments:
        return cls(jnp.zeros(shape), jnp.ones(shape), jnp.zeros(()))

    def update(
        self,
        sample: Float[Array, "..."],
        decay: Scalar = 1.0,
        used: Bool[Array, "..."] | None = None,
        across: Axes = WHOLE,
    ) -> Moments:
        """With one more batch, whose leading axes are samples; `used` says which of them count."""
        axes = tuple(range(sample.ndim - self.mean.ndim))
        each = None if used is None else used.reshape(*used.shape, *(1,) * self.mean.ndim)
        count = sample.size / self.mean.size if used is None else jnp.sum(used)
        mean, variance = jnp.mean(sample, axes, where=each), jnp.var(sample, axes, where=each)
        if across:
            count, mean, variance = _of_all_shards(count, mean, variance)
        old = decay * self.weight
        total = old + count
        shift = mean - self.mean
        updated = Moments(
            mean=self.mean + shift * (count / total),
            variance=(old * self.variance + count * variance) / total + shift**2 * (old / total) * (count / total),
            weight=total,
        )
        if used is None:
            return updated
        # Of no samples there is no mean: a minibatch of whole-episode data may hold none that is used.
        return jax.tree.map(lambda new, before: jnp.where(count > 0, new, before), updated, self)

    def normalize(self, sample: Float[Array, "..."], eps: Scalar) -> Float[Array, "..."]:
        """(sample - mean) / (standard deviation + eps)."""
        return (sample - self.mean) / (jnp.sqrt(self.variance) + eps)


def _of_all_shards(
    count: Scalar | Int[Array, ""], mean: Float[Array, "*S"], variance: Float[Array, "*S"]
) -> tuple[Array, Array, Array]:
    """Count, mean and variance of the samples of all shards, from those of each; one that has none does not count."""
    counts = jnp.full_like(mean, count)
    counts, means, variances = jnp.moveaxis(gathered(jnp.stack([counts, mean, variance])), 1, 0)
    means, variances = (jnp.where(counts > 0, each, 0.0) for each in (means, variances))
    shares = counts / jnp.maximum(jnp.sum(counts, axis=0), 1)
    mean = jnp.sum(shares * means, axis=0)
    return jnp.sum(counts, axis=0).ravel()[0], mean, jnp.sum(shares * (variances + (means - mean) ** 2), axis=0)


class RewardScale(eqx.Module):
    """Rewards divided by the standard deviation of a running discounted return (reference code, OpenAI baselines)."""

    discounted_return: Float[Array, "N"]
    moments: Moments

    @classmethod
    def empty(cls, num_envs: int) -> RewardScale:
        return cls(jnp.zeros(num_envs), Moments.empty())

    def update(
        self,
        reward: Float[Array, "T N"],
        done: Bool[Array, "T N"],
        gamma: Scalar,
        used: Bool[Array, "T N"] | None = None,
        across: Axes = WHOLE,
    ) -> RewardScale:
        """R_t = gamma R_{t-1} + r_t, begun anew with each episode. Rows that are not `used` lie between episodes."""
        last, returns = discounted_returns(self.discounted_return, reward, done, gamma)
        return self.seen(last, returns, used, across)

    def seen(
        self,
        last: Float[Array, "N"],
        returns: Float[Array, "T N"],
        used: Bool[Array, "T N"] | None = None,
        across: Axes = WHOLE,
    ) -> RewardScale:
        """After these R_t, of which those of the environments' last steps are `last`."""
        return RewardScale(last, self.moments.update(returns, used=used, across=across))

    def apply(self, reward: Float[Array, "*B"], clip: Scalar) -> Float[Array, "*B"]:
        return jnp.clip(reward / jnp.sqrt(self.moments.variance + 1e-8), -clip, clip)


def discounted_returns(
    before: Float[Array, "N"], reward: Float[Array, "T N"], done: Bool[Array, "T N"], gamma: Scalar
) -> tuple[Float[Array, "N"], Float[Array, "T N"]]:
    """R_t = gamma R_{t-1} + r_t, which is 0 before an episode: after the last step, and at each."""

    def forwards(carry: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        current = gamma * carry + step[0]
        return jnp.where(step[1], 0.0, current), current

    return jax.lax.scan(forwards, before, (reward, done))
