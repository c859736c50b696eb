"""Settings for environments of gymnax that a search found with PPO: docs/results/presets.md says what they reach.

Values are those that docs/results/presets.py wrote into presets.json.
"""

from __future__ import annotations

from isobatch.settings.parsing import SettingsByName

SMALL: SettingsByName = dict(
    num_envs=16, num_steps=128, num_minibatches=8, update_epochs=4, lr_schedule="linear", total_timesteps=491_520
)
SCALED: SettingsByName = SMALL | dict(normalize_observations=True, normalize_rewards=True)
IMAGES: SettingsByName = dict(
    num_envs=64, num_steps=64, num_minibatches=8, update_epochs=3, lr_schedule="linear", arrangement="shared",
    activation="relu", hidden_sizes=(64,), channels=(16,),
)  # fmt: skip

SEARCHED: dict[str, SettingsByName] = {
    "MountainCar-v0": SCALED | dict(learning_rate=0.003658, ent_coef=0.007557, gae_lambda=0.9614, gamma=0.9984),
    "Catch-bsuite": SMALL | dict(learning_rate=0.002427, ent_coef=0.005029, gae_lambda=0.9422, gamma=0.9967),
    "DeepSea-bsuite": SMALL | dict(learning_rate=0.002742, ent_coef=0.005682, gae_lambda=0.9577, gamma=0.9974),
    "UmbrellaChain-bsuite": SMALL | dict(learning_rate=0.001722, ent_coef=0.0002226, gae_lambda=0.9698, gamma=0.9875),
    "DiscountingChain-bsuite": SMALL | dict(learning_rate=0.001178, ent_coef=0.005057, gae_lambda=0.8397, gamma=0.9831),
    "FourRooms-misc": SMALL | dict(learning_rate=0.001722, ent_coef=0.0002226, gae_lambda=0.9698, gamma=0.9875),
    "FrozenLake-misc": SMALL | dict(learning_rate=0.002767, ent_coef=0.009872, gae_lambda=0.7377, gamma=0.996),
    "Reacher-misc": SCALED | dict(learning_rate=0.002156, ent_coef=0.03336, gae_lambda=0.7525, gamma=0.9646),
    "Swimmer-misc": SCALED | dict(learning_rate=0.00205, ent_coef=0.01487, gae_lambda=0.9474, gamma=0.9963),
}
