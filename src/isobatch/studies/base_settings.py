"""The base settings of the studies by environment and scale: the paper's, and versions that a laptop can run.

Laptop settings keep what the claims are about: one policy epoch, an optimization batch that can be divided by 64, and
little movement of the policy per iteration. They are smaller in everything else. Learning rates are low enough for the
largest batch to learn well, since the rules hold where the noise of the gradient decides: at 2e-3 CartPole's largest
batch ended at .70, at 1e-3 at 1.00, smaller batches at 1.00 with both.
"""

from __future__ import annotations

from collections.abc import Mapping

from isobatch.settings.config import Config
from isobatch.settings.parsing import SettingsByName
from isobatch.settings.presets import PROCGEN, PROCGEN_PHASES, preset
from isobatch.statistics.normalization import PROCGEN_HARD

SMALL: SettingsByName = dict(
    num_envs=64, num_steps=32, num_minibatches=16, update_epochs=1, learning_rate=3e-3, lr_schedule="constant"
)
SETTINGS: dict[str, SettingsByName] = {
    "CartPole-v1": SMALL | dict(learning_rate=1e-3),
    "Acrobot-v1": SMALL | dict(normalize_observations=True, normalize_rewards=True, ent_coef=0.0),
    "Pendulum-v1": SMALL | dict(gamma=0.9, normalize_rewards=True, ent_coef=0.0),
    "Breakout-MinAtar": SMALL
    | dict(
        num_minibatches=8, learning_rate=1.5e-3, ent_coef=0.02, arrangement="shared", activation="relu",
        hidden_sizes=(64,), channels=(16,),
    ),
}  # fmt: skip
# A quarter of the batch, by the rules, for studies that are not about the largest one: an optimization batch of 128 is
# past CartPole's critical size at first, where it learns more slowly per step.
UNDER_CRITICAL: dict[str, SettingsByName] = {"CartPole-v1": dict(num_envs=16, learning_rate=5e-4)}
STEPS: dict[str, dict[str, int]] = {  # environment steps per seed
    "quick": {"CartPole-v1": 160_000},
    "laptop": {"CartPole-v1": 400_000, "Acrobot-v1": 200_000, "Pendulum-v1": 300_000, "Breakout-MinAtar": 200_000},
}
CLASSIC = ("CartPole-v1", "Acrobot-v1", "Pendulum-v1")
SEEDS = {"quick": 4, "laptop": 4, "paper": 4}


def environments(scale: str, *only: str) -> list[str]:
    """The environments of a scale, at laptop scale `only` some of them if any are named."""
    if scale == "paper":
        return [f"envpool/{game.capitalize()}Hard-v0" for game in PROCGEN_HARD]
    return [env for env in STEPS[scale] if not only or env in only]


def base(algo: str, env: str, scale: str, small: Mapping[str, object] | None = None, **overrides: object) -> Config:
    """The settings of one algorithm on one environment at a scale, before what a study varies.

    `small` is for quick and laptop; `overrides` are for the paper's settings too.
    """
    if scale == "paper":
        settings = PROCGEN_PHASES if algo.startswith("ppg") else PROCGEN
    else:
        settings = SETTINGS[env] | dict(total_timesteps=STEPS[scale][env]) | dict(small or {})
    return preset(algo, env, None, **(settings | overrides))
