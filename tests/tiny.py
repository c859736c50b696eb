"""The smallest runs that still do everything, shared by tests so that they share compiled programs too."""

from typing import Any

from isobatch.settings.config import Config
from isobatch.settings.presets import ALGORITHMS, preset

ALGOS = sorted(ALGORITHMS)
SIZES: dict[str, Any] = dict(num_envs=4, num_steps=8, hidden_sizes="8", total_timesteps=32 * 12)
OPTIONS: dict[str, Any] = dict(num_seeds=2, checkpoint_interval=4, keep_checkpoints=2)  # of a run that is kept
PER_ALGORITHM: dict[str, dict[str, Any]] = {
    "ppo": dict(num_minibatches=2, update_epochs=2),
    "ppo-ewma": dict(num_minibatches=2, update_epochs=2),
    "ppg": dict(num_minibatches=2, policy_iterations_per_phase=3, aux_epochs=2, aux_minibatches=2),
    "ppg-ewma": dict(num_minibatches=2, policy_iterations_per_phase=3, aux_epochs=2, aux_minibatches=2),
    "a2c": {},
    "reinforce": {},
}


def tiny(algo: str = "ppo", env: str = "Probe-ActionObserved", **overrides: Any) -> Config:
    """A run of twelve iterations of 32 steps."""
    return preset(algo, env, **(SIZES | PER_ALGORITHM[algo] | overrides))


def flags(config: Config) -> list[str]:
    """The same run as flags of the command line."""

    def text(value: Any) -> str:
        return ",".join(map(str, value)) if isinstance(value, list) else str(value)

    return [word for name, value in config.to_dict().items() for word in ("--" + name.replace("_", "-"), text(value))]
