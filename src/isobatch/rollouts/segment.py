"""From what was collected to what is learned from: one type for a rollout, wherever its environments stepped.

Terminated is not truncated: where a time limit cut an episode off, `next_value` is the value of the true final
observation, also in the middle of a rollout.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from isobatch.envs.host_interface import AnyEnvironment
from isobatch.envs.spaces import Box
from isobatch.networks.actor_critic import Networks
from isobatch.networks.distributions import Distribution
from isobatch.networks.moments import Moments
from isobatch.rollouts.collected import CollectedRollout

OBS_EPS = 1e-8  # added to the standard deviation that observations are divided by
NUMBERS_AT_ONCE = 2**25  # in the observations of a rollout that are valued in one pass

Preprocess = Callable[[Array], Array]


class OpenEpisodes(eqx.Module):
    """The episodes in progress."""

    total: Float[Array, "N"]  # return so far
    length: Int[Array, "N"]
    counts: Bool[Array, "N"]  # False during an episode that a staggered reset made shorter

    @classmethod
    def start(cls, counts: Bool[Array, "N"]) -> OpenEpisodes:
        zeros = jnp.zeros(counts.shape)
        return cls(zeros, zeros.astype(jnp.int32), counts)

    def step(
        self, reward: Float[Array, "N"], done: Bool[Array, "N"], steps: Int[Array, "N"] | Bool[Array, "N"] | int = 1
    ) -> tuple[OpenEpisodes, EndedEpisodes]:
        """After one more row, which is `steps` steps: 0 where it fills in for a reset."""
        total, length = self.total + reward, self.length + steps
        ended = EndedEpisodes(done & self.counts, total, length)
        return OpenEpisodes(jnp.where(done, 0.0, total), jnp.where(done, 0, length), self.counts | done), ended


class EndedEpisodes(eqx.Module):
    """Where episodes ended that count, with their return and length; what stands elsewhere is no episode."""

    counted: Bool[Array, "*T N"]
    total: Float[Array, "*T N"]
    length: Int[Array, "*T N"]

    def sums(self, among: Bool[Array, "*T N"] | None = None) -> EpisodeSums:
        """Added up, of all or of those `among` these."""
        counted = self.counted if among is None else self.counted & among
        return EpisodeSums(*(jnp.sum(jnp.where(counted, e, 0), dtype=jnp.float32) for e in jax.tree.leaves(self)))


class EpisodeSums(eqx.Module):
    """Sums over the episodes that ended during a rollout; sums, so that they add up over rollouts."""

    count: Float[Array, ""]
    return_sum: Float[Array, ""]
    length_sum: Float[Array, ""]


class EnvCarry(eqx.Module):
    """Where the environments stand between two rollouts."""

    state: PyTree  # `HostState`, or that of an environment written in JAX
    obs: Array
    episodes: OpenEpisodes


class Segment(eqx.Module):
    """One rollout, time first, as the learner gets it. What the behavior policy thought is stored with what it did."""

    obs: Array  # [T, N, ...], as the networks see it
    action: Array
    behavior: Distribution
    log_prob: Float[Array, "T N"]
    reward: Float[Array, "T N"]
    terminated: Bool[Array, "T N"]
    truncated: Bool[Array, "T N"]
    value: Float[Array, "T N"]
    next_value: Float[Array, "T N"]
    time_limit: int = eqx.field(static=True)  # of the environment's episodes
    # Rows that are steps. The others fill the place of a reset, have no reward, and nothing may be learned from them.
    # None: all are steps.
    valid: Bool[Array, "T N"] | None = None
    # Of data by actors: how many updates older than the policy that learns from it the one is that collected it.
    lag: Float[Array, "T N"] | None = None
    # Of data by actors whose rewards are normalized: their discounted returns, since rows need not follow on the last.
    discounted: Float[Array, "T N"] | None = None


def to_segment(
    rollout: CollectedRollout,
    networks: Networks,
    preprocess: Preprocess,
    time_limit: int,
    fills_in: Bool[Array, "N"] | None = None,
) -> Segment:
    """The rollout with the values of its states, and of those they led to.

    `fills_in` is given where environments are reset by a step of their own: whether the first row is such a step.
    """
    obs, last = preprocess(rollout.obs), preprocess(rollout.last_obs)[None]
    if rollout.value is None:  # all states in one large pass instead of T small ones
        values = values_of(networks, jnp.concatenate([obs, last]))
    else:
        values = jnp.concatenate([rollout.value, networks.value(last)])
    valid, next_value, reward = None, values[1:], rollout.reward
    cut_off = rollout.truncated & ~rollout.terminated
    if fills_in is not None:  # the observation after the end of an episode is the one it ended with
        valid = ~jnp.concatenate([fills_in[None], rollout.done[:-1]])
        reward = jnp.where(valid, reward, 0.0)
    elif rollout.next_obs is not None:
        next_value = _value_cut_off(networks, preprocess, rollout.next_obs, cut_off, next_value)
    elif rollout.final_value is not None:
        next_value = jnp.where(cut_off, rollout.final_value, next_value)
    return Segment(
        obs=obs,
        action=rollout.action,
        behavior=rollout.behavior,
        log_prob=rollout.behavior.log_prob(rollout.action),
        reward=reward,
        terminated=rollout.terminated,
        truncated=rollout.truncated,
        value=values[:-1],
        next_value=next_value,
        time_limit=time_limit,
        valid=valid,
    )


def values_of(networks: Networks, obs: Array) -> Float[Array, "T N"]:
    """Values of observations [T, N, ...] at once; of large images step by step, to bound the memory."""
    if obs[0].size * obs.shape[0] < NUMBERS_AT_ONCE:
        return networks.value(obs)
    return jax.lax.map(networks.value, obs)


def _value_cut_off(
    networks: Networks,
    preprocess: Preprocess,
    next_obs: Array,
    cut_off: Bool[Array, "T N"],
    next_value: Float[Array, "T N"],
) -> Float[Array, "T N"]:
    """`next_value` with the value of the final observation where an episode was cut off.

    Truncation is rare, so only those states are valued, N of them at a time.
    """
    steps, chunk = cut_off.size, cut_off.shape[1]
    flat_obs = next_obs.reshape(steps, *next_obs.shape[2:])
    where = jnp.flatnonzero(cut_off, size=steps, fill_value=steps)
    count = jnp.sum(cut_off)

    def body(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        start, flat = carry
        index = jax.lax.dynamic_slice(where, (start,), (chunk,))
        value = networks.value(preprocess(flat_obs.at[index].get(mode="clip")))
        return start + chunk, flat.at[index].set(value, mode="drop")

    _, flat = jax.lax.while_loop(lambda c: c[0] < count, body, (jnp.zeros_like(count), next_value.reshape(-1)))
    return flat.reshape(cut_off.shape)


def trajectories(
    done: Bool[Array, "T N"], valid: Bool[Array, "T N"] | None = None
) -> tuple[Int[Array, "T N"], Float[Array, "T N"]]:
    """For each step: where its trajectory begins in the rollout, and how many steps of it the rollout holds.

    A trajectory is an episode, or the piece of one that lies inside the rollout.
    """
    steps = done.shape[0]
    time = jnp.arange(steps)[:, None]
    over = done if valid is None else ~valid  # an episode begins after the row that fills in for its reset
    begins = jnp.concatenate([jnp.ones_like(done[:1]), over[:-1]])
    first = jax.lax.cummax(jnp.where(begins, time, 0))
    last = jax.lax.cummin(jnp.where(done, time, steps - 1), reverse=True)
    return first, (last - first + 1).astype(jnp.result_type(float))


def complete_episodes(
    done: Bool[Array, "T N"], time_limit: int, valid: Bool[Array, "T N"] | None = None
) -> tuple[Float[Array, "T N"], Bool[Array, "T N"]]:
    """For each step of rows that began with a reset: the length of its episode, and whether to use it.

    Used are the episodes that began early enough to end within the row at any length, so that the choice does
    not depend on the length: taking every episode that happened to end would prefer short ones.
    """
    first, lengths = trajectories(done, valid)
    used = first + time_limit <= done.shape[0]
    return lengths, used if valid is None else used & valid


def preprocessor(moments: Moments | None, clip: Float[Array, ""] | float) -> Preprocess:
    """From raw observations to what the networks see."""
    if moments is None:
        return lambda obs: obs
    return lambda obs: jnp.clip(moments.normalize(obs.astype(float), OBS_EPS), -clip, clip)


def clip_to_bounds(action: Array, env: AnyEnvironment) -> Array:
    """Actions as the environment takes them."""
    space = env.action_space
    if not isinstance(space, Box):
        return action
    low, high = jnp.asarray(space.low), jnp.asarray(space.high)
    if space.rescaled:
        action = low + (action + 1) / 2 * (high - low)
    return jnp.clip(action, low, high).reshape(-1, *space.shape)
