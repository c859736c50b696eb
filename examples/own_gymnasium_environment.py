"""A Gymnasium environment of your own, without an id: a class, a function that makes one, or an object.

Run  python examples/own_gymnasium_environment.py
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

import isobatch as ib


class Thermostat(gymnasium.Env):
    """Keep a room at 20 degrees by heating with 0 to 1; `leak` is how fast it cools."""

    observation_space = gymnasium.spaces.Box(-5.0, 5.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)

    def __init__(self, leak: float = 0.1) -> None:
        self.leak = leak

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.degrees = self.np_random.uniform(10.0, 30.0)
        return self.observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.degrees += 4 * float(action[0]) - self.leak * (self.degrees - 5)
        return self.observe(), -abs(self.degrees - 20) / 10, False, False, {}

    def observe(self) -> np.ndarray:
        return np.clip(np.array([(self.degrees - 20) / 5], np.float32), -5, 5)


def make_thermostat(leak: float = 0.1) -> gymnasium.Env:
    return gymnasium.wrappers.TimeLimit(Thermostat(leak), max_episode_steps=50)


def main(total_timesteps: int = 20_000) -> ib.Result:
    config = ib.preset("ppo", num_envs=8, num_steps=64, learning_rate=1e-3, total_timesteps=total_timesteps)
    result = ib.train(config.replace(env_kwargs={"leak": 0.2}), env=make_thermostat)  # a function, with its arguments
    print(result)
    print(ib.train(config, env=make_thermostat(leak=0.05)))  # an object, of which copies are made
    ib.register_env("Thermostat", make_thermostat)  # or under a name, wherever an id is asked for
    print(ib.evaluate(ib.train(config.replace(env="Thermostat")), episodes=20))
    return result


if __name__ == "__main__":
    main()
