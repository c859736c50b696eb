"""Little Gymnasium environments: well-behaved ones, and each kind of evil. Import this module to register them."""

import multiprocessing
import os
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTHS = (3, 4, 5)  # of episodes, in turn; every second one is cut off


class Clock(gymnasium.Env):
    """Shows its clock and a number that its first seed and the episode decide; rewards are of clock and action.

    It `shows` new arrays, or one array that it writes into again and again.
    """

    def __init__(self, actions: str = "discrete", shows: str = "new-arrays") -> None:
        self.array = np.zeros(2, np.float32) if shows == "one-array" else None
        self.observation_space = spaces.Box(-100, 100, (2,), np.float32)
        self.action_space = {
            "discrete": spaces.Discrete(2, start=5),
            "multi-discrete": spaces.MultiDiscrete([2, 3]),
            "multi-binary": spaces.MultiBinary(3),
            "box": spaces.Box(np.array([-2.0, 0.0]), np.array([2.0, 4.0]), dtype=np.float64),
        }[actions]
        self.episode, self.time, self.base = -1, 0, None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        self.base = self.np_random.uniform() if self.base is None else self.base
        return self.seen(), {}

    def seen(self) -> np.ndarray:
        obs = np.array([self.time, self.base + 0.3 * self.episode], np.float32)
        if self.array is None:
            return obs
        self.array[:] = obs
        return self.array

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.time += 1
        over = self.time == LENGTHS[self.episode % 3]
        cut = self.episode % 2 == 1
        reward = float(self.time + 0.5 * np.sum(action))
        return self.seen(), reward, over and not cut, over and cut, {}


class Walk(gymnasium.Env):
    """A random walk pushed by actions, which ends by itself after some dozen steps; its noise comes from its seed.

    Each step takes a random time of up to `naps` seconds, which no seed decides.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, noise: str = "seeded", naps: float = 0.0) -> None:
        self.noise, self.naps = noise, naps

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at = self.np_random.normal(size=2)
        return self.at.astype(np.float32), {}

    def step(self, action: Any) -> Any:
        if self.naps:
            time.sleep(np.random.default_rng().uniform(0, self.naps))
        rng = self.np_random if self.noise == "seeded" else np.random.default_rng()
        self.at = self.at + 0.3 * (2 * action - 1) + rng.normal(size=2)
        return self.at.astype(np.float32), float(-abs(self.at[0])), bool(abs(self.at[0]) > 4), False, {}


class Evil(Walk):
    """Does something wrong at its 30th step, unless the file `once` says that it has been done already.

    Or, by its deed, the third of four copies cannot be made, or one cannot be reset to this `seed`. The copies come
    after one that is only looked at; as workers they come in two vectors, and the third is the first of the second.
    """

    def __init__(self, deed: str, once: str, seed: int = -1) -> None:
        super().__init__()
        self.deed, self.once, self.seed, self.steps, self.is_slow = deed, once, seed, 0, False
        if deed == "make":
            with open(once, "a") as made:
                made.write(".")
            if os.path.getsize(once) > 3 and multiprocessing.current_process().name.endswith(("MainProcess", "-0")):
                raise ConnectionError("the port is taken")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if self.deed == "reset" and seed == self.seed:
            raise ConnectionError("the port is taken")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self.steps += 1
        obs, reward, terminated, truncated, info = super().step(action)
        if self.deed == "slow" and self.steps > 30 and self.is_slow:
            time.sleep(0.05)
        if self.deed != "nothing" and self.steps == 30 and not os.path.exists(self.once):
            open(self.once, "w").close()
            match self.deed:
                case "raise":
                    raise ZeroDivisionError("the cart has left the universe")
                case "nan-observation":
                    obs = obs * np.nan
                case "nan-at-the-end":
                    obs, truncated = obs * np.nan, True
                case "inf-reward":
                    reward = float("inf")
                case "nan-reward":
                    reward = float("nan")
                case "shape":
                    obs = np.zeros(3, np.float32)
                case "hang":
                    time.sleep(1000)
                case "slow":  # from now on, and no other copy
                    self.is_slow = True
                case "die":
                    os._exit(3)
        return obs, reward, terminated, truncated, info


class Parts(gymnasium.Env):
    """Observations of many parts."""

    observation_space = spaces.Dict(
        {
            "b": spaces.Discrete(3, start=1),
            "a": spaces.Box(-1, 1, (2, 2), np.float64),
            "c": spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3]))),
        }
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 1.0, bool(self.np_random.uniform() < 0.2), False, {}


class Pixels(gymnasium.Env):
    """Bytes, channels first or last."""

    action_space = spaces.Discrete(3)

    def __init__(self, shape: tuple[int, ...] = (3, 12, 12), kind: str = "image") -> None:
        image = spaces.Box(0, 255, tuple(shape), np.uint8)
        self.observation_space = image if kind == "image" else spaces.Dict({"image": image, "x": spaces.Discrete(2)})

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.show(), {}

    def show(self) -> np.ndarray:
        return self.np_random.integers(0, 256, self.observation_space.shape, dtype=np.uint8)

    def step(self, action: Any) -> Any:
        return self.show(), float(action), bool(self.np_random.uniform() < 0.1), False, {}


class Text(gymnasium.Env):
    observation_space = spaces.Text(5)
    action_space = spaces.Discrete(2)


for name, entry in {
    "Clock": Clock,
    "Walk": Walk,
    "Evil": Evil,
    "Parts": Parts,
    "Pixels": Pixels,
    "Text": Text,
}.items():
    gymnasium.register(
        f"{name}-v0", entry, max_episode_steps=40 if name in ("Walk", "Evil", "Parts", "Pixels") else None
    )
gymnasium.register("Short-v0", Clock, max_episode_steps=3)
