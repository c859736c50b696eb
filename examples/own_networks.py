"""Networks of your own, made of any Equinox modules.

They train with PPO, PPO-EWMA, A2C and REINFORCE; PPG, `diagnose` and `export` need the networks of this package.

Run  python examples/own_networks.py
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

import isobatch as ib


class Actor(eqx.Module):
    layers: eqx.nn.MLP

    def __call__(self, obs: jax.Array) -> ib.Categorical:
        """Of observations [..., features]: `jnp.vectorize` makes a function of one vector take any leading axes."""
        return ib.Categorical(jnp.vectorize(self.layers, signature="(i)->(o)")(obs))


class ActorAndCritic(ib.Networks):
    policy: Actor  # a field of its own, because PPO-EWMA averages its weights
    critic: eqx.nn.MLP

    def value(self, obs: jax.Array) -> jax.Array:
        return jnp.vectorize(self.critic, signature="(i)->(o)")(obs)[..., 0]


def make(config: ib.Config, obs_shape: tuple[int, ...], action_space: ib.Discrete, seed: int) -> ActorAndCritic:
    """Called once for each seed, outside any compiled program."""
    actor_key, critic_key = jax.random.split(jax.random.key(seed))
    actor = eqx.nn.MLP(obs_shape[0], action_space.n, width_size=32, depth=1, activation=jax.nn.silu, key=actor_key)
    critic = eqx.nn.MLP(obs_shape[0], 1, width_size=64, depth=2, activation=jax.nn.silu, key=critic_key)
    return ActorAndCritic(Actor(actor), critic)


def main(total_timesteps: int = 100_000, algo: str = "ppo-ewma") -> ib.Result:
    config = ib.preset(algo, "CartPole-v1", total_timesteps=total_timesteps)
    result = ib.train(config, networks=make, num_seeds=2)
    print(result)
    return result


if __name__ == "__main__":
    main()
