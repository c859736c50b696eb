"""Measure the return of uniformly random actions: the low end of the ranges in `isobatch.statistics.normalization`.

    python docs/results/random_returns.py [--episodes 1024] [--seed 0] [--only ID,...]

Environments that gymnax does not have are EnvPool's. Prints a table: mean return of whole episodes from reset, its
standard error, and their mean length.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from isobatch.envs.catalog import IN_JAX
from isobatch.envs.host_interface import HostEnvironment
from isobatch.envs.interface import Environment
from isobatch.envs.registry import make_env
from isobatch.envs.spaces import Box, Space
from isobatch.statistics.normalization import OTHERS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", metavar="ID,...", help="some of the environments")
    args = parser.parse_args()
    print("| environment | mean return | standard error | mean length | in the table |\n|---|---:|---:|---:|---:|")
    only = args.only.split(",") if args.only else list(OTHERS)
    for env_id, range_ in ((name, OTHERS[name]) for name in only):
        if env_id in IN_JAX:
            env = make_env(env_id)
            returns, lengths = (np.asarray(x) for x in play(env, args.episodes, jax.random.key(args.seed)))
        else:
            returns, lengths = play_outside(make_env(f"envpool/{env_id}"), args.episodes, args.seed)
        error = returns.std(ddof=1) / args.episodes**0.5
        print(f"| {env_id} | {returns.mean():.3f} | {error:.3f} | {lengths.mean():.1f} | {range_.low:g} |", flush=True)


@partial(jax.jit, static_argnums=(0, 1))
def play(env: Environment, episodes: int, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return and length [episodes] of random play, each episode to its first end."""
    reset_key, key = jax.random.split(key)
    state, _ = jax.vmap(env.reset)(jax.random.split(reset_key, episodes))

    def running(carry: Any) -> jax.Array:
        time, *_, over = carry
        return (time < env.max_steps) & ~jnp.all(over)

    def step(carry: Any) -> Any:
        time, state, returns, lengths, over = carry
        action_key, step_key = jax.random.split(jax.random.fold_in(key, time))
        action = random_actions(env.action_space, episodes, action_key)
        after = jax.vmap(env.step)(jax.random.split(step_key, episodes), state, action)
        returns, lengths = returns + jnp.where(over, 0.0, after.reward), lengths + ~over
        return time + 1, after.state, returns, lengths, over | after.terminated | after.truncated

    nothing = jnp.zeros(episodes)
    carry = (jnp.int32(0), state, nothing, nothing.astype(jnp.int32), nothing.astype(bool))
    _, _, returns, lengths, _ = jax.lax.while_loop(running, step, carry)
    return returns, lengths


def play_outside(env: HostEnvironment, episodes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """As `play`, of environments that step outside JAX, all at once."""
    vector, rng = env.open([seed * episodes + place for place in range(episodes)]), np.random.default_rng(seed)
    vector.reset([], np.ones(episodes, dtype=bool))
    returns, lengths, over = np.zeros(episodes), np.zeros(episodes, dtype=int), np.zeros(episodes, dtype=bool)
    while not over.all():
        key = jax.random.key(int(rng.integers(2**31)))
        vector.send(np.asarray(random_actions(env.action_space, episodes, key)))
        after = vector.receive()
        returns, lengths = returns + np.where(over, 0.0, after.reward), lengths + ~over
        over = over | after.terminated | after.truncated
    vector.close()
    return returns, lengths


def random_actions(space: Space, count: int, key: jax.Array) -> jax.Array:
    """`count` actions, uniform over the choices or between the bounds."""
    if isinstance(space, Box):
        low, high = (jnp.reshape(jnp.array(bound), space.shape) for bound in (space.low, space.high))
        return jax.random.uniform(key, (count, *space.shape), minval=low, maxval=high)
    return jax.random.randint(key, (count,), 0, space.n)


if __name__ == "__main__":
    main()
