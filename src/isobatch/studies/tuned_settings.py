"""Settings that others tuned for a task, as they published them, and what isobatch makes of them.

The numbers are kept here so that a study does not depend on what is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from isobatch.interop.library import from_settings
from isobatch.interop.stable_baselines3 import LIBRARY as SB3
from isobatch.settings.config import Config
from isobatch.settings.parsing import SettingsByName
from isobatch.settings.presets import MINATAR, MUJOCO, preset

ZOO, CLEANRL, PUREJAXRL = "rl-zoo3", "CleanRL", "PureJaxRL"


@dataclass(frozen=True)
class TunedSettings:
    """Settings that somebody tuned for a task."""

    env: str
    source: str
    settings: SettingsByName
    """In the words of the source."""
    steps: Mapping[str, int]
    """Environment steps by scale; a multiple of 16 of its own iteration batches, so that every move has as many."""

    def config(self, scale: str) -> Config:
        """As isobatch trains it; what has no counterpart here (gSDE, a clip range that falls) is left out."""
        if self.source == ZOO:
            settings = self.settings | {"n_timesteps": self.steps[scale]}
            as_measured = {"clip_schedule": "constant"}
            return from_settings(SB3, settings, env=self.env, overrides=as_measured).config
        return preset("ppo", self.env, None, **self.settings | {"total_timesteps": self.steps[scale]})

    @property
    def holds_size(self) -> bool:
        """Whether the library's setting is the size of a minibatch, which stays, or their number."""
        return self.source == ZOO


# rl-zoo3 2.9.2, hyperparams/ppo.yml, without what does not change numbers here (the policy's name).
ZOO_SETTINGS: dict[str, SettingsByName] = {
    "CartPole-v1": dict(
        n_envs=8, n_steps=32, batch_size=256, gae_lambda=0.8, gamma=0.98, n_epochs=20, ent_coef=0.0,
        learning_rate="lin_0.001", clip_range="lin_0.2",
    ),
    "Pendulum-v1": dict(
        n_envs=4, n_steps=1024, gae_lambda=0.95, gamma=0.9, n_epochs=10, ent_coef=0.0, learning_rate=1e-3,
        clip_range=0.2, use_sde=True, sde_sample_freq=4,
    ),
    "Acrobot-v1": dict(normalize=True, n_envs=16, n_steps=256, gae_lambda=0.94, gamma=0.99, n_epochs=4, ent_coef=0.0),
    "MountainCar-v0": dict(
        normalize=True, n_envs=16, n_steps=16, gae_lambda=0.98, gamma=0.99, n_epochs=4, ent_coef=0.0
    ),
    "LunarLander-v3": dict(
        n_envs=16, n_steps=1024, batch_size=64, gae_lambda=0.98, gamma=0.999, n_epochs=4, ent_coef=0.01
    ),
    "BipedalWalker-v3": dict(
        normalize=True, n_envs=32, n_steps=2048, batch_size=64, gae_lambda=0.95, gamma=0.999, n_epochs=10, ent_coef=0.0,
        learning_rate=3e-4, clip_range=0.18,
    ),
    "Swimmer-v4": dict(
        normalize=True, gamma=0.9999, n_envs=4, n_steps=1024, batch_size=256, learning_rate=6e-4, gae_lambda=0.98
    ),
}  # fmt: skip
# At laptop scale CartPole and Pendulum have the length they were tuned for, the others a half to a fortieth of it.
ENTRIES = (
    TunedSettings("CartPole-v1", ZOO, ZOO_SETTINGS["CartPole-v1"], dict(quick=40_960, laptop=102_400, paper=102_400)),
    TunedSettings("Pendulum-v1", ZOO, ZOO_SETTINGS["Pendulum-v1"], dict(laptop=131_072, paper=131_072)),
    TunedSettings("Acrobot-v1", ZOO, ZOO_SETTINGS["Acrobot-v1"], dict(laptop=262_144, paper=1_048_576)),
    TunedSettings("MountainCar-v0", ZOO, ZOO_SETTINGS["MountainCar-v0"], dict(laptop=499_712, paper=1_003_520)),
    TunedSettings("envpool/LunarLander-v3", ZOO, ZOO_SETTINGS["LunarLander-v3"], dict(laptop=524_288, paper=1_048_576)),
    TunedSettings("envpool/Hopper-v4", CLEANRL, MUJOCO, dict(laptop=131_072, paper=1_015_808)),
    TunedSettings("envpool/HalfCheetah-v4", CLEANRL, MUJOCO, dict(laptop=131_072, paper=1_015_808)),
    TunedSettings("Breakout-MinAtar", PUREJAXRL, MINATAR, dict(laptop=262_144, paper=10_092_544)),
    TunedSettings("envpool/Swimmer-v4", ZOO, ZOO_SETTINGS["Swimmer-v4"], dict(paper=1_048_576)),
    TunedSettings("envpool/Walker2d-v4", CLEANRL, MUJOCO, dict(laptop=131_072, paper=1_015_808)),
    TunedSettings("envpool/BipedalWalker-v3", ZOO, ZOO_SETTINGS["BipedalWalker-v3"], dict(paper=5_242_880)),
)
