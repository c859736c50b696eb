"""Models of Stable-Baselines3 as small as they can be, for the tests of `isobatch.torch`."""

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

torch.set_num_threads(1)  # networks this small are slower with more

SPACES = {"discrete": gym.spaces.Discrete(3), "continuous": gym.spaces.Box(-9.0, 9.0, (2,))}


class Walk(gym.Env):
    """Observations drawn at random, rewards that depend on them and on the action; episodes of 5 steps, or cut at 7."""

    observation_space = gym.spaces.Box(-10.0, 10.0, (3,))

    def __init__(self, space: str = "discrete") -> None:
        self.action_space = SPACES[space]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.steps, self.obs = 0, self.np_random.normal(size=3).astype(np.float32)
        return self.obs, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        reward = float(self.obs[0] * np.sum(action) + self.obs[1])
        self.steps += 1
        self.obs = self.np_random.normal(size=3).astype(np.float32)
        return self.obs, reward, self.steps == 5 and self.obs[2] > 0, self.steps == 7, {}


class Shared(BaseFeaturesExtractor):
    """One hidden layer that policy and values share."""

    def __init__(self, space: gym.Space, width: int = 4) -> None:
        super().__init__(space, width)
        self.layer = torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.Tanh())

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.layer(obs)


SHARED = dict(features_extractor_class=Shared, net_arch=[], ortho_init=False)
SEPARATE = dict(net_arch=dict(pi=[4], vf=[4]))
SIZES = dict(n_steps=6, batch_size=12, n_epochs=2, seed=3, device="cpu")


def walks(count: int = 4, space: str = "discrete") -> VecEnv:
    return DummyVecEnv([lambda: Walk(space) for _ in range(count)])


def small(kind: type[PPO] = PPO, space: str = "discrete", count: int = 4, **settings: Any) -> Any:
    """4 environments x 6 steps, two minibatches, two epochs."""
    return kind("MlpPolicy", walks(count, space), policy_kwargs=settings.pop("policy_kwargs", SEPARATE),
                **(SIZES | settings))  # fmt: skip


def weights(model: PPO) -> dict[str, np.ndarray]:
    return {name: value.detach().numpy().copy() for name, value in model.policy.state_dict().items()}
