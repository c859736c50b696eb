"""An environment of your own, written in JAX: it becomes a part of the compiled program.

Run  python examples/own_environment.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

import isobatch as ib


class Position(NamedTuple):
    place: jax.Array
    time: jax.Array


@dataclass(frozen=True)
class Corridor(ib.JaxEnvironment):
    """Walk right to the end of a corridor: reward 1 there, -0.01 for each step before."""

    length: int = 8
    max_steps: int = 40
    action_space = ib.Discrete(2)  # left, right

    @property
    def obs_shape(self) -> tuple[int, ...]:
        return (self.length,)

    def reset(self, key: jax.Array) -> tuple[Position, jax.Array]:
        position = Position(jax.random.randint(key, (), 0, self.length // 2), jnp.int32(0))
        return position, self.observe(position)

    def step(self, key: jax.Array, state: Position, action: jax.Array) -> ib.Step:
        place = jnp.clip(state.place + 2 * action - 1, 0, self.length - 1)
        after = Position(place, state.time + 1)
        arrived = place == self.length - 1
        return ib.Step(
            state=after,
            obs=self.observe(after),
            reward=jnp.where(arrived, 1.0, -0.01),
            terminated=arrived,
            truncated=~arrived & (after.time >= self.max_steps),  # out of time, which is not an end
        )

    def observe(self, state: Position) -> jax.Array:
        return jax.nn.one_hot(state.place, self.length)


def main(total_timesteps: int = 40_000) -> ib.Result:
    config = ib.preset("ppo", num_envs=16, num_steps=32, learning_rate=3e-3, total_timesteps=total_timesteps)
    result = ib.train(config, env=Corridor(length=10), num_seeds=2)  # as an object ...
    print(result)
    ib.register_env("ShortCorridor", Corridor(length=4))  # ... or under a name, wherever an id is asked for
    print(ib.train(config.replace(env="ShortCorridor"), num_seeds=2))
    return result


if __name__ == "__main__":
    main()
