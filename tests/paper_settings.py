"""The paper's settings, with and without phases."""

import math

from isobatch.settings.config import Config

PAPER = Config().replace(
    num_envs=256,
    num_steps=256,
    num_minibatches=8,
    update_epochs=1,
    learning_rate=5e-4,
    aux_learning_rate=5e-4,
    objective="kl",
    proximal_policy="ewma",
    policy_iterations_per_phase=32,
    total_timesteps=48 * 2_097_152,  # whole phases
    max_grad_norm=math.inf,
)
PAPER_WITHOUT_PHASES = PAPER.replace(policy_iterations_per_phase=0)
