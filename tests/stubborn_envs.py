"""Gymnasium environments that can be drawn and do not want to step, to end or to be closed."""

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Stubborn(gymnasium.Env):
    """Episodes of four steps; `deed` is what it does wrong in the third."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None, deed: str | None = None) -> None:
        self.render_mode, self.deed, self.time = render_mode, deed, 0
        if deed == "hang-make":
            time.sleep(1000)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        now = self.deed if self.time == 3 else ""
        if now == "hang":
            time.sleep(1000)
        obs = np.full(2, np.nan if now == "nan-observation" else self.time, np.float32)
        over = self.time >= 4 and self.deed != "endless"
        return obs, float("inf") if now == "inf-reward" else 1.0, over, False, {}

    def render(self) -> np.ndarray:
        if self.deed == "hang-picture" and self.time >= 2:
            time.sleep(1000)
        return np.full((8, 8, 3), 20 * (self.time % 10), np.uint8)

    def close(self) -> None:
        if self.deed == "hang-close":
            time.sleep(1000)
        if self.deed == "raise-close":
            raise ConnectionError("the port is taken")


class Worsening(Stubborn):
    """Each step is worse than the one before, over all episodes."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        obs, _, terminated, truncated, info = super().step(action)
        return obs, -float(self.steps), terminated, truncated, info


gymnasium.register("Stubborn-v0", Stubborn)
gymnasium.register("Worsening-v0", Worsening)
