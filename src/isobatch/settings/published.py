"""Settings that others have published, by name: `preset("procgen-ppg-ewma")`, `isobatch train --preset atari-ppo`.

They stand beside the presets of environments, since they are as published and not what is best here.
"""

from __future__ import annotations

from typing import NamedTuple

from isobatch.settings.parsing import SettingsByName


class Published(NamedTuple):
    """An algorithm with settings of its own, and the environment it is meant for unless another one is named."""

    algo: str
    env: str
    settings: SettingsByName
    source: str


# Hilton 2021, section 5.1 and appendix B: Procgen hard, images through channels 16, 32, 32 and 256 outputs. What the
# paper does not say is the reference code's: no gradient clipping, and PyTorch's epsilon. Its value loss is .5 times
# the squared error, here vf_coef times half of it.
PROCGEN: SettingsByName = dict(
    num_envs=256, num_steps=256, num_minibatches=8, update_epochs=3, total_timesteps=100_000_000, learning_rate=5e-4,
    beta1=0.9, beta2=0.999, optimizer_eps=1e-8, max_grad_norm=float("inf"), gamma=0.999, gae_lambda=0.95,
    clip_eps=0.2, vf_coef=1.0, ent_coef=0.01,
    normalize_rewards=True, reward_norm_gamma=0.99, reward_clip=10.0, arrangement="shared", encoder="impala",
    lr_schedule="constant",
)  # fmt: skip
PROCGEN_PHASES: SettingsByName = PROCGEN | dict(
    update_epochs=1, value_epochs=1, policy_iterations_per_phase=32, aux_epochs=6, aux_minibatches=16,
    aux_learning_rate=5e-4, beta_clone=1.0, objective="kl", kl_coef=1.0, arrangement="dual",
    total_timesteps=48 * 32 * 256 * 256,  # the whole phases nearest to 100M
)  # fmt: skip
# CleanRL, ppo_atari_envpool.py: rewards are clipped to their sign and a lost life ends an episode, in training.
ATARI: SettingsByName = dict(
    num_envs=8, num_steps=128, num_minibatches=4, update_epochs=4, total_timesteps=10_000_000, learning_rate=2.5e-4,
    lr_schedule="linear", optimizer_eps=1e-5, gamma=0.99, gae_lambda=0.95, clip_eps=0.1, clip_value_loss=True,
    value_clip_eps=0.1, vf_coef=0.5, ent_coef=0.01, max_grad_norm=0.5, advantage_norm="minibatch",
    arrangement="shared", encoder="nature", env_kwargs={"episodic_life": True, "reward_clip": True},
)  # fmt: skip
# CleanRL, ppo_continuous_action.py.
MUJOCO: SettingsByName = dict(
    num_envs=1, num_steps=2048, num_minibatches=32, update_epochs=10, total_timesteps=1_000_000, learning_rate=3e-4,
    lr_schedule="linear", optimizer_eps=1e-5, gamma=0.99, gae_lambda=0.95, clip_eps=0.2, clip_value_loss=True,
    value_clip_eps=0.2, vf_coef=0.5, ent_coef=0.0, max_grad_norm=0.5, advantage_norm="minibatch",
    normalize_observations=True, obs_clip=10.0, normalize_rewards=True, reward_norm_gamma=0.99, reward_clip=10.0,
    arrangement="dual", hidden_sizes=(64, 64), activation="tanh",
)  # fmt: skip

HILTON = "Hilton, Cobbe, Schulman 2021"
PUBLISHED = {
    "procgen-ppo": Published("ppo", "envpool/CoinrunHard-v0", PROCGEN, HILTON),
    "procgen-ppo-ewma": Published("ppo-ewma", "envpool/CoinrunHard-v0", PROCGEN, HILTON),
    "procgen-ppg": Published("ppg", "envpool/CoinrunHard-v0", PROCGEN_PHASES, HILTON),
    "procgen-ppg-ewma": Published("ppg-ewma", "envpool/CoinrunHard-v0", PROCGEN_PHASES, HILTON),
    "atari-ppo": Published("ppo", "envpool/Breakout-v5", ATARI, "CleanRL, ppo_atari_envpool.py"),
    "mujoco-ppo": Published("ppo", "envpool/HalfCheetah-v4", MUJOCO, "CleanRL, ppo_continuous_action.py"),
}
