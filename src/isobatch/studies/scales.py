"""The settings that the studies share: the paper's own, and versions of them that a laptop can run.

Laptop settings keep what the paper's claims are about: one policy epoch, a KL penalty, an averaged proximal policy, and a
KL per iteration of the paper's order (.01 to .02). They are smaller in everything else.
"""

from __future__ import annotations

from typing import Any

from isobatch.config import Config
from isobatch.presets import preset
from isobatch.studies.normalisation import PROCGEN_HARD

CARTPOLE: dict[str, Any] = dict(
    num_envs=64, num_steps=32, num_minibatches=8, update_epochs=1, learning_rate=3e-3, lr_schedule="constant"
)
ACROBOT: dict[str, Any] = dict(
    num_envs=64, num_steps=64, num_minibatches=8, update_epochs=1, learning_rate=1e-3, lr_schedule="constant"
)
MINATAR: dict[str, Any] = dict(
    num_envs=64, num_steps=64, num_minibatches=8, update_epochs=1, learning_rate=1e-3, lr_schedule="constant"
)
SETTINGS = {
    "CartPole-v1": CARTPOLE,
    "Acrobot-v1": ACROBOT,
    "Breakout-MinAtar": MINATAR,
    "Asterix-MinAtar": MINATAR,
    "Freeway-MinAtar": MINATAR,
    "SpaceInvaders-MinAtar": MINATAR,
}
STEPS = {  # environment steps per seed
    "quick": {"CartPole-v1": 100_000},
    "laptop": {"CartPole-v1": 400_000, "Acrobot-v1": 500_000, "Breakout-MinAtar": 500_000, "Asterix-MinAtar": 500_000},
}
SEEDS = {"quick": 2, "laptop": 4, "paper": 3}
PAPER: dict[str, Any] = dict(
    num_envs=256, num_steps=256, num_minibatches=8, update_epochs=3, total_timesteps=100_000_000, learning_rate=5e-4,
    gamma=0.999, gae_lambda=0.95, clip_eps=0.2, vf_coef=0.5, ent_coef=0.01, normalize_rewards=True, arrangement="shared",
)  # fmt: skip


def environments(scale: str) -> list[str]:
    return [f"procgen:{game}" for game in PROCGEN_HARD] if scale == "paper" else list(STEPS[scale])


def base(algo: str, env: str, scale: str, **overrides: Any) -> Config:
    """The settings of one algorithm on one environment at a scale, before what a study varies."""
    if scale == "paper":
        return preset(algo, env, **(PAPER | overrides))
    return preset(algo, env, **(SETTINGS[env] | dict(total_timesteps=STEPS[scale][env]) | overrides))
