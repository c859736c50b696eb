"""Settings whose rollout is 8192 samples, with and without phases."""

from isobatch.settings.config import Config

BASE = Config().replace(num_envs=64, num_steps=128, num_minibatches=32, update_epochs=1)  # 8192 samples in 256s
PPG = BASE.replace(policy_iterations_per_phase=4, total_timesteps=32 * 8192)
