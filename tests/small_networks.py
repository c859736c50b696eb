"""Networks of a few numbers, or with the encoder of a name, and observations for them."""

import jax
import jax.numpy as jnp
import numpy as np

from isobatch.envs.spaces import Discrete, Space
from isobatch.networks.actor_critic import ActorCritic
from isobatch.networks.initialization import make_networks
from isobatch.settings.config import Config
from isobatch.settings.presets import preset

OBS = np.random.default_rng(0).normal(size=(4, 3))  # four observations of three numbers
TWO_ACTIONS = Discrete(2)


def networks(seed: int = 0, space: Space = TWO_ACTIONS, shape: tuple[int, ...] = (3,), **settings) -> ActorCritic:
    defaults = dict(hidden_sizes="5,4", num_envs=4, num_steps=8, total_timesteps=32, num_minibatches=1)
    return make_networks(Config().replace(**(defaults | settings)), shape, space, seed)


def with_noise(tree, seed: int = 1):
    """The same networks with every parameter moved, biases too: zeros hide mistakes."""
    leaves, structure = jax.tree.flatten(tree)
    rng = np.random.default_rng(seed)
    return jax.tree.unflatten(structure, [leaf + jnp.asarray(rng.normal(size=leaf.shape)) for leaf in leaves])


def encoder(name: str, shape: tuple[int, ...], **overrides) -> ActorCritic:
    return make_networks(preset("ppo", encoder=name, **overrides), shape, Discrete(15), 0)
