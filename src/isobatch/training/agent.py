"""A trained policy for other people's loops: NumPy observations in, NumPy actions out.

`predict` has the signature of Stable-Baselines3, so an agent can stand wherever one of its models is only asked to
act, for example in its `evaluate_policy`.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from isobatch.envs.host_interface import HostEnvironment
from isobatch.envs.host_spaces import Action, Observation, batched
from isobatch.envs.interface import Environment
from isobatch.envs.registry import environment_of
from isobatch.envs.spaces import Box
from isobatch.errors import UsageError
from isobatch.learning.state import TrainState
from isobatch.networks.actor_critic import Networks, PolicyFunction
from isobatch.networks.moments import Moments
from isobatch.rollouts.segment import clip_to_bounds, preprocessor
from isobatch.settings.config import Config

Memory = TypeVar("Memory")  # of policies that have one


@dataclasses.dataclass(frozen=True)
class TrainedSeed:
    """What training left of one seed."""

    config: Config
    seed: int  # that it was trained with
    iteration: int
    networks: Networks
    obs_moments: Moments | None
    reward_std: float | None  # that rewards were divided by


class Agent:
    """Acts as the policy does in training: observations normalized, real-valued actions clipped to their bounds.

    `load_agent` and `Result.agent` give one. `predict(observation)` gives actions for one observation [*obs_shape] or a
    batch [n, *obs_shape], as NumPy arrays, with the signature of Stable-Baselines3.

    Example:
        >>> import isobatch as ib, numpy as np
        >>> config = ib.preset("ppo", "Probe-Action", num_envs=4, num_steps=8, total_timesteps=64)
        >>> actions, _ = ib.train(config).agent().predict(np.zeros((3, 1)))
        >>> actions.shape
        (3,)
    """

    def __init__(self, learned: TrainedSeed, seed: int = 0) -> None:
        self.learned = learned
        self.env = environment_of(learned.config)
        self._policy = (learned.networks.policy, learned.obs_moments)
        self.set_random_seed(seed)

        def act(
            policy: tuple[PolicyFunction, Moments | None],
            obs: Array,
            key: Key[Array, ""],
            count: Array,
            deterministic: bool,
        ) -> Array:
            network, moments = policy
            distribution = network(preprocessor(moments, learned.config.hypers.obs_clip)(obs))
            action = distribution.mode() if deterministic else distribution.sample(jax.random.fold_in(key, count))
            return clip_to_bounds(action, self.env)

        self._act = jax.jit(act, static_argnums=4)

    def set_random_seed(self, seed: int) -> None:
        """Sampled actions begin anew: the same seed and observations give the same actions."""
        self._key, self._calls = jax.random.key(seed), 0

    def predict(
        self,
        observation: Observation,
        state: Memory | None = None,
        episode_start: object = None,
        deterministic: bool = False,
    ) -> tuple[Action, Memory | None]:
        """Actions for one observation or a batch of them, and `state` as it came: the policy has no memory.

        Sampled, or with `deterministic` the most likely one. Compiled on the first call for each size of batch. A
        single choice for one observation is a NumPy integer, not an array without axes: environments that look an
        action up in a table (FrozenLake, Taxi) need something that can be hashed.
        """
        obs = checked_observations(self.env, flat_observations(self.env, observation))
        single = obs.ndim == len(self.env.obs_shape)
        batch = obs[None] if single else obs
        chosen = np.asarray(self._act(self._policy, batch, self._key, np.uint32(self._calls), bool(deterministic)))
        self._calls += 1
        if isinstance(self.env, HostEnvironment):
            actions = self.env.actions.convert(chosen)
        else:
            actions = chosen if isinstance(self.env.action_space, Box) else chosen.astype(np.int64)
        return (actions[0] if single else actions), state


def flat_observations(env: Environment | HostEnvironment, observation: Observation) -> Observation:
    """What an environment outside JAX shows, as one array: it may be a number, a dictionary or a tuple."""
    if not isinstance(env, HostEnvironment) or env.observations.is_box:
        return observation
    try:
        single = env.observations.is_single(observation)
        flat = env.observations.convert(batched(observation) if single else observation)
    except (LookupError, TypeError, ValueError):
        raise UsageError(f"observation does not fit: use one of {env.observations.space}, or a batch.") from None
    return flat[0] if single else flat


def checked_observations(env: Environment | HostEnvironment, observation: Observation) -> np.ndarray:
    """One observation or a batch of them, as the environment stores them; or a sentence about what is wrong."""
    obs, shape = np.asarray(observation), env.obs_shape
    if obs.shape != shape and obs.shape[1:] != shape:
        batch = ", ".join(map(str, ("n", *shape)))
        raise UsageError(f"observation of shape {obs.shape} does not fit: use {shape}, or a batch ({batch}).")
    if obs.dtype.kind not in "biuf":
        raise UsageError(f"observation of dtype {obs.dtype} is not numeric: use {env.obs_dtype}.")
    if env.obs_dtype != "float32":  # small types hold everything, so what they cannot hold is a mistake
        small = obs.astype(env.obs_dtype)
        if not np.array_equal(small, obs):
            raise UsageError(
                f"observation of dtype {obs.dtype} has values that are no {env.obs_dtype}: use {env.obs_dtype}."
            )
        return small
    if not np.isfinite(obs).all():
        raise UsageError("observation has values that are not finite: use numbers.")
    return obs.astype(np.float32)


class TrainedRun(Protocol):
    """A run from its directory (`loading.LoadedRun`), or one that just ended (`result.Result`)."""

    @property
    def config(self) -> Config: ...
    @property
    def seeds(self) -> list[int]: ...
    @property
    def iteration(self) -> int: ...
    @property
    def states(self) -> TrainState: ...


def learned_of(run: TrainedRun, policy_seed: int | None = None) -> TrainedSeed:
    """The policy of one seed, by default the first."""
    seed = run.seeds[0] if policy_seed is None else policy_seed
    if seed not in run.seeds:
        raise UsageError(f"policy_seed={seed} is not in this run: use {' or '.join(map(str, run.seeds))}.")
    place = run.seeds.index(seed)
    state = jax.tree.map(lambda leaf: leaf[place], run.states)
    scale = state.learning.reward_scale
    return TrainedSeed(
        config=run.config,
        seed=seed,
        iteration=run.iteration,
        networks=state.networks,
        obs_moments=state.obs_moments,
        reward_std=None if scale is None else 1 / scale.apply(jnp.ones((1, 1)), jnp.inf).item(),
    )
