"""Made-up data: networks, rollouts and minibatches drawn at random, in which no two policies are the same.

Real data is kind to mistakes: on fresh data the behavior, the recent and the proximal policy agree, values are small
and biases zero. Here the policy that acted, the one before the update and the averaged one are three different ones.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from isobatch.envs.spaces import Box, Discrete, Space
from isobatch.learning.optimizers import make_optimizer
from isobatch.learning.policy_phase import Batch
from isobatch.learning.proximal import Ewma
from isobatch.learning.state import Learner
from isobatch.networks.actor_critic import ActorCritic
from isobatch.networks.distributions import Distribution
from isobatch.networks.initialization import make_networks
from isobatch.rollouts.segment import Segment
from isobatch.settings.config import Config

OBS = 3  # numbers in an observation
DISCRETE: Space = Discrete(3)
CONTINUOUS: Space = Box((2,), (-9.0, -9.0), (9.0, 9.0))


def make_config(**settings: Any) -> Config:
    """4 environments x 6 steps and one hidden layer, by default in one minibatch."""
    defaults = dict(num_envs=4, num_steps=6, hidden_sizes="4", num_minibatches=1, update_epochs=1, total_timesteps=240)
    return Config().replace(**(defaults | settings))


def make_actor_critic(config: Config, seed: int, space: Space = DISCRETE) -> ActorCritic:
    """Networks all of whose parameters are far from zero, biases too."""
    networks = make_networks(config, (OBS,), space, seed)
    leaves, structure = jax.tree.flatten(networks)
    rng = np.random.default_rng(seed)
    return jax.tree.unflatten(
        structure, [jnp.asarray(leaf + rng.normal(0, 0.4, leaf.shape)) for leaf in map(np.asarray, leaves)]
    )


def make_learner(config: Config, seed: int = 0, space: Space = DISCRETE) -> Learner:
    """A learner whose averaged policy, if it has one, is an average over three gradient steps."""
    networks = make_actor_critic(config, seed, space)
    proximal = None
    if config.proximal_policy == "ewma":
        proximal = Ewma.start(make_actor_critic(config, seed + 1, space).policy)
        for other in (2, 3):
            proximal = proximal.update(make_actor_critic(config, seed + other, space).policy, 0.5)
    state = make_optimizer(config, config.hypers).init(networks)
    return Learner(
        networks=networks,
        optimizer=state,
        value_optimizer=state if config.value_epochs else None,
        aux_optimizer=state if config.policy_iterations_per_phase else None,
        proximal=proximal,
    )


def make_actions(behavior: Distribution, seed: int) -> jax.Array:
    return behavior.sample(jax.random.key(seed))


def make_segment(
    config: Config,
    done: np.ndarray | None = None,
    truncated: np.ndarray | None = None,
    seed: int = 0,
    space: Space = DISCRETE,
    time_limit: int = 6,
) -> Segment:
    """A rollout [T, N] by a policy of its own; `done` marks the last steps of episodes, `truncated` those cut off."""
    rng = np.random.default_rng(seed)
    shape = (config.num_steps, config.num_envs)
    done = np.zeros(shape, bool) if done is None else done
    truncated = np.zeros(shape, bool) if truncated is None else truncated
    obs = jnp.asarray(rng.normal(size=(*shape, OBS)))
    behavior = make_actor_critic(config, 100 + seed, space).policy(obs)
    action = make_actions(behavior, seed)
    value = rng.normal(size=shape)
    after = np.concatenate([value[1:], rng.normal(size=(1, config.num_envs))])
    return Segment(
        obs=obs,
        action=action,
        behavior=behavior,
        log_prob=behavior.log_prob(action),
        reward=jnp.asarray(rng.normal(size=shape)),
        terminated=jnp.asarray(done & ~truncated),
        truncated=jnp.asarray(truncated),
        value=jnp.asarray(value),
        next_value=jnp.asarray(np.where(truncated, rng.normal(size=shape), after)),
        time_limit=time_limit,
    )


def make_minibatch(config: Config, size: int = 8, seed: int = 0, space: Space = DISCRETE) -> Batch:
    """A minibatch [B] whose behavior, importance and proximal policies are three different ones."""
    rng = np.random.default_rng(seed)
    obs = jnp.asarray(rng.normal(size=(size, OBS)))
    behavior, importance, proximal = (make_actor_critic(config, s + seed, space).policy(obs) for s in (200, 300, 400))
    action = make_actions(behavior, seed)
    return Batch(
        obs=obs,
        action=action,
        log_behav=behavior.log_prob(action),
        log_importance=importance.log_prob(action),
        proximal=proximal,
        log_prox=proximal.log_prob(action),
        value=jnp.asarray(rng.normal(size=size)),
        advantage=jnp.asarray(rng.normal(size=size)),
        target=jnp.asarray(rng.normal(size=size)),
        used=jnp.ones(size, bool),
        weight=jnp.asarray(rng.uniform(0.2, 2.0, size=size)),
        share=jnp.ones(size),
    )


def with_fields(tree: Any, **fields: Any) -> Any:
    """A copy of an equinox module with these fields replaced."""
    names = list(fields)
    return eqx.tree_at(lambda t: [getattr(t, n) for n in names], tree, [fields[n] for n in names])
